"""Real servers on one machine and a shop that keeps them busy, for tests and benchmarks only."""
