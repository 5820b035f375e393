"""Chooses devices of a node for the claims of one pod, as kube-scheduler's structured allocator does.

`pools` says which devices a node reaches, `allocated_devices` which of them others have, `requested_devices` what the
claims ask for, and `allocator` searches; the other modules are the rules that a choice keeps.
"""
