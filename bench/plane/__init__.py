"""The control plane under load: a real etcd, API server, controller manager and kube-scheduler, nodes that are only objects.

There is no kubelet: `player` moves pods through their lives. So every figure is about the control plane; run times are told to the
player, and nothing here runs a model. `bench/local` holds the cells with a real kubelet.
"""
