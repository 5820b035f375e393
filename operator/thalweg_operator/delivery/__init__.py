"""Writes to the cluster: binds, nominates, evicts, tells pods why they wait, and keeps the status of policies."""
