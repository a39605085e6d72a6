"""Processes that hold the callers' connections, so that the worker's own process has nothing to do but to run the model."""
