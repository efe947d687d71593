"""A reader of source and mirror, and their judge, that share no code with what they judge."""
