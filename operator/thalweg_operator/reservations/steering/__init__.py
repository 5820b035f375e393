"""Pods that kube-scheduler binds: their nominations, the order of these, and the answers to kube-scheduler."""
