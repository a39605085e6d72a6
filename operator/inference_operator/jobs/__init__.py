"""One job's life: admission, what it demands, and the plan of what to do and to say. Pure."""
