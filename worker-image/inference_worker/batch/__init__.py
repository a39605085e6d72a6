"""Batch tasks: read an input, run it in batches, commit the answers part by part."""
