"""Glue: events into the store, keys through the queue, decisions into effects."""
