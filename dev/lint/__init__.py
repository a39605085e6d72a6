"""Checks of our own that no linter knows: retired words, commit subjects, the version. Each is a command of its own."""
