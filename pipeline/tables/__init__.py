"""Table formats, one file or folder each: how mirrors are read and written; and lake readers."""
