"""Shared code of the verbs of `sluice`: options, the client of the service, offline status."""
