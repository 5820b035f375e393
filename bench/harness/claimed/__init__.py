"""Pods with claims for `claims.py`: what a cluster has, what each pod claims, and what is wrong in the end."""
