"""What scheduling reads of a cluster, as frozen values: pods, nodes, policies, resources, volumes.

``quantities`` and ``selectors`` are Kubernetes' own small languages. ``flowcore.api`` makes these values from
Kubernetes JSON; ``flowcore.cluster`` keeps them and makes snapshots with arrays.
"""
