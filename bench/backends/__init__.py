"""One model on every back end of the worker, under the same load."""
