"""Which running pods leave, and for whom."""
