"""Build the images of the project and of its local cluster, and bring them to the nodes."""
