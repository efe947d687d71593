"""Reading the lake's tables at one version, without Spark."""
