"""The one SQL database: history, incidents, certificates, outbox."""
