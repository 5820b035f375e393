"""Pods that kube-scheduler binds: their nominations, in which order, and what kube-scheduler is told."""
