"""The worker beside its peers and beside a bare ONNX Runtime loop. Start at run.py."""
