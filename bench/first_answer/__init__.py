"""How long a new user waits, and how many steps it takes: from an install to the first answer, and from a submit to a result."""
