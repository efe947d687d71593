"""Decodes Debezium's envelope, in each form in which it is sent."""
