"""Why a pod waits, in words a user understands."""

from flowcore.rules.reasons.reasons import Reason, before_nodes, no_domain, node_reasons, reason_for, summary

__all__ = ["Reason", "before_nodes", "no_domain", "node_reasons", "reason_for", "summary"]
