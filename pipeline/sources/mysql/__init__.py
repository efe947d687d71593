"""All that is MySQL's, and MariaDB's: its session, its log, its tables, what it allows."""
