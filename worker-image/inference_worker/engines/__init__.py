"""What computes: one engine for each back end, found by its name in `registry.py`."""
