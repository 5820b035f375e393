"""The operator: keeps a snapshot of the cluster, runs rounds on it, binds what they place.

``program.run`` wires the parts. Data flows one way: ``reflector`` -> ``state`` -> ``rounds`` (through ``worker``) ->
``binder`` and ``waiting``. ``policies`` and ``policy_handlers`` serve FlowSchedulingPolicy.
"""
