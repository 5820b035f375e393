"""Recorded rounds as Kubernetes objects, and judges of plans for them that import no planner."""
