"""The Spark session, what its workers preload, and the jars that both need."""
