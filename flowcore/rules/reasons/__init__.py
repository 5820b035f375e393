"""Why a pod waits, in words a user understands."""

from flowcore.rules.reasons.reasons import Reason, no_domain, node_reasons, reason_for, summary

__all__ = ["Reason", "no_domain", "node_reasons", "reason_for", "summary"]
