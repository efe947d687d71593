"""Shared by the benchmarks: alternating rounds, a session, and the comparison of results."""
