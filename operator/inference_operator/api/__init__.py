"""What users write and read: the types of the API, their schema and CRDs, names, conditions. Values only."""
