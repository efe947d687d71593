"""The JSON of Maxwell's daemon."""
