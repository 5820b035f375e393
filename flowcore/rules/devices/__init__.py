"""Devices that pods claim (DRA): which of them a node has for the claims of a pod, and what it says if it has none.

`cel` evaluates selectors, `device_selectors` remembers what they say of devices, `allocation` chooses devices for the
claims of one pod on one node, `pod_claims` finds those of a pod, `node_reach` says which nodes
reach a device, `claim_verdicts` has kube-scheduler's verdicts, `columns` makes devices that are alike amounts of room.
"""
