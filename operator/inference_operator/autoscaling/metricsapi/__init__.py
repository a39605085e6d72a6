"""custom.metrics.k8s.io, served by the operator itself, so that an HPA needs nothing else installed (docs/adr/0007)."""
