"""Reads a Delta table and its log at one version, commits to the log, and maintains both."""
