"""Rules between pods: topology domains, how many pods each has, and what that forbids. Every formula stands here once.

`domains` and `counters` say who counts where; `spread`, `affinity` and `limits` are the rules; `soft_affinity` and
`soft_spread` are kube-scheduler's scores; `constraints` is a pod's part in the rules of a round, made by
`build_constraints`; `domain_counts` keeps the counts while a round places pods; `drift` and `waves` are about a plan
that is carried out.
"""
