"""The drill: faults put into a running pipeline, and what found them."""
