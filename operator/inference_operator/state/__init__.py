"""The cluster as the operator sees it: frozen objects, their parsing, the store and its indexes."""
