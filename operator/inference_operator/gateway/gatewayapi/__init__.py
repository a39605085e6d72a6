"""Routes and pools for gateways of somebody else: the Gateway API, and its Inference Extension."""
