"""The control plane under load: a real etcd, API server, controller manager and kube-scheduler, nodes that are only objects.

There is no kubelet: `simulated_kubelets` patches the statuses of pods. So every figure is about the control plane; run times are
declared, and nothing here runs a model. `bench/local` holds the scenarios with a real kubelet.
"""
