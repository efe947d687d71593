"""One file a channel; its name is its key in the config."""
