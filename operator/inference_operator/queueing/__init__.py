"""Batches in Kueue's queues: what a Workload asks for, and what Kueue's answer means."""
