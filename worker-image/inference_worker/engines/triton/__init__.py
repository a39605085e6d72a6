"""The tritonserver beside the worker as an Engine: what it is told, where its models lie, and how it is asked."""
