"""Asks both ends of the pipeline and rules on what they answer."""
