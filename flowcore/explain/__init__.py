"""Why a pod waits, in words a user understands."""

from flowcore.explain.reasons import no_domain, node_reasons, reason_for, summary

__all__ = ["no_domain", "node_reasons", "reason_for", "summary"]
