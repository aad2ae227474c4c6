"""Places for large bytes: a directory, and object stores; and the keeper of what nobody needs."""
