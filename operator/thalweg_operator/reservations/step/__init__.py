"""The pure step: an event changes cluster and ledger, and says what is to be done."""
