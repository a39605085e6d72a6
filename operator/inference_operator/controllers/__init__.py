"""Watches into state, keys through queues, plans into writes: the only rooms that wait for the world on behalf of jobs."""
