"""The whole story on the local cluster: install, apply, wait, and check every answer against its truth."""
