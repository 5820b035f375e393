"""What the ledger remembers beside reservations and victims."""
