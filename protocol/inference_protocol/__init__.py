"""What operator and worker say to each other: one definition for both sides.

Nothing here does I/O. The operator writes a `WorkerConfig` into the pod; the worker answers with `Telemetry` while it
runs and with a `TerminationReport` when it ends.
"""
