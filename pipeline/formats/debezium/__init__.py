"""What Debezium writes: its envelope, and the forms it comes in."""
