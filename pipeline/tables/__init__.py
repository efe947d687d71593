"""One file or folder a table format: how mirrors are read and written; and the lake's readers."""
