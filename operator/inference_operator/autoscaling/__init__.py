"""The load of a service, the replicas that its latency target takes, and the HPA that is told. Pure but for controller.py."""
