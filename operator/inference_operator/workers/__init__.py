"""What runs: the model and back end resolved, the worker's pod and Service, attempts, problems of pods, profiles. Pure."""
