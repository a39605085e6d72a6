"""The local cluster with its real kubelets: a small batch as a `batch/v1` Job, as an InferenceJob, and on a warm worker."""
