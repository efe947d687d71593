"""A shop that keeps changing: tables of one MySQL server, writers, and a ledger of their deeds."""
