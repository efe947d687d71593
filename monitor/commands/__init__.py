"""The verbs of `sluice`, one file each; a file's ``COMMAND`` is the verb."""
