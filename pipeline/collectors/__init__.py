"""One file a collector: what it has acknowledged, and to whom it is connected."""
