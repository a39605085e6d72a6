"""Values only: the API's types, names, conditions, and the cluster as the operator sees it. No I/O, no clock."""
