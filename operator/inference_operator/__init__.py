"""The operator: watches InferenceJobs and InferenceModels, places the work on worker pods, and reports in the status."""

__version__ = "0.1.0"
