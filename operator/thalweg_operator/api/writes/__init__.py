"""Writes to the API server: in queues that are fair to namespaces, and Events."""
