"""Who gets which place, decided for all at once: filters, node capacity, the timeline, the explanation. Pure."""
