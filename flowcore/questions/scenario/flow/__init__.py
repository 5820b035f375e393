"""The flow in the networks of policies, arc by arc."""
