"""What both benchmarks share: rounds that alternate, a session, and what results must equal."""
