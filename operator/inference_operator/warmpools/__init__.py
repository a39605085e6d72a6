"""Warm pools: which jobs may use one, how many workers it keeps, tasks that run on them, and their credentials."""
