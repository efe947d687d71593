"""Files of logs below one folder: which there are, which were taken, and what is in them."""
