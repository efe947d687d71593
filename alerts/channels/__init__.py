"""One file per channel; the file name is the key in the config."""
