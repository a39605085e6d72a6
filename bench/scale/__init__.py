"""Ten thousand InferenceJobs on a real API server without nodes."""
