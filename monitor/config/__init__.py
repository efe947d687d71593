"""From `sluice.yaml` to values that are whole, or to all that is wrong with it."""
