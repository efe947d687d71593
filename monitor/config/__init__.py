"""Reads `sluice.yaml` into checked values, or reports all its faults."""
