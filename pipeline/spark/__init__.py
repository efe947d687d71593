"""The Spark session, what its workers begin with, and the jars that both need."""
