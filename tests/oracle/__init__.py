"""Judges of a run that share no code with what they judge."""
