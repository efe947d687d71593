"""Debezium on Kafka Connect: how far it has come, and what is to be put right in its settings."""
