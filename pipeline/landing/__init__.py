"""From topics into the change log: one bounded batch, one commit, one checkpoint."""
