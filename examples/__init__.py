"""Examples of jobs, models and data; nothing in the operator or the worker imports them."""
