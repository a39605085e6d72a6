"""A user's way from a file on a laptop to answers: by a bucket, a registry and a hub, step by step."""
