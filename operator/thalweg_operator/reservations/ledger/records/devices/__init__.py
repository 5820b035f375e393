"""What the ledger remembers of devices: who writes claims, who chooses devices on a node, and which come free."""
