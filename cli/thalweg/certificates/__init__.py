"""Certificates of the extender: a CA, a server's and a client's, kept in Secrets and renewed before they end.

`rotation` decides what to keep and what to renew (pure), `secrets` reads and writes the Secrets.
"""
