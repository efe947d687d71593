"""Reads the progress of Debezium on Kafka Connect, and checks its settings."""
