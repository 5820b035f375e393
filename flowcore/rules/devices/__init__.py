"""Devices that pods claim (DRA): which of them a pod's claims can have on a node, and what a node says to a pod's claims.

`cel` evaluates selectors, `device_selectors` remembers what they say of devices, `allocation` chooses devices for the
claims of one pod on one node, `pod_claims` finds a pod's claims, `claim_verdicts` has kube-scheduler's verdicts and words.
"""
