"""The API server's client: connection, paths, leader election, events."""
