"""Tooling of this checkout: programs, cluster, images; none of it ships in a product image."""
