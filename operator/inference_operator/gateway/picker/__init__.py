"""Picks the worker for each request of somebody else's gateway: Envoy's external processing, as the Inference Extension has it."""
