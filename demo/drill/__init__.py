"""The drill: puts faults into a running pipeline, and reports what found them."""
