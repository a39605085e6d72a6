"""How inputs of batch tasks are read: one module for each form, found by `opening.py`."""
