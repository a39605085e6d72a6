"""Batch tasks: read an input, run it in batches, commit the answers chunk by chunk."""
