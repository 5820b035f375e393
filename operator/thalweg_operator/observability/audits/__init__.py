"""Audits at an interval: what placement costs, and whose placements closed rooms."""
