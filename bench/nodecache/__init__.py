"""The cache of models on a node: memory while it fetches, and what a worker's start takes with it."""
