"""Writes to the cluster: binds, nominates, evicts, and says why pods wait."""
