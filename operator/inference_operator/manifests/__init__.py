"""Pure builders: domain values in, Kubernetes objects (plain dicts) out."""
