"""Nodes, leaders and the API server die on the local cluster: what callers, batches and the next decision notice."""
