"""Folders of files as a source: their ledger is its log."""
