"""A shop that keeps changing: tables of one server, writers, and a ledger of transactions."""
