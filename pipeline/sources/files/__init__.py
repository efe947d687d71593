"""The source for folders of files, whose log is the ledger of these files."""
