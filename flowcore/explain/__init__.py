"""Why a pod waits, in words a user understands."""

from flowcore.explain.reasons import node_reasons, reason_for, summary

__all__ = ["node_reasons", "reason_for", "summary"]
