"""Real servers on one machine, and a shop that keeps them busy; imported by tests and benchmarks only."""
