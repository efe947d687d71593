"""Holds one file per message format, which decodes messages to columns of the change log."""
