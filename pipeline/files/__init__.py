"""Files of logs below one folder: finds them, records the taken ones, and reads them."""
