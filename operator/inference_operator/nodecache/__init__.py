"""The cache of models on each node: which worker may read what of it, and what a node should have before workers start."""
