"""Reusable machinery: queue, clock, rate limit. Knows nothing of InferenceJobs."""
