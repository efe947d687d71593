"""One file a probe; its name is its key in the config."""
