"""What must hold of the rows of a mirror; a file each, and its name is its key in the config."""
