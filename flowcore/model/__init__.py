"""What scheduling reads of a cluster, as frozen values.

``quantities`` and ``selectors`` are Kubernetes' own small languages, ``pods``, ``nodes`` and
``policies`` the values, ``wire`` the way from Kubernetes JSON to them, ``snapshot`` one
consistent view with arrays.
"""
