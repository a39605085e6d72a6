"""The software bill of materials of an image: what its package managers say is in it."""
