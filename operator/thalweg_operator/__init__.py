"""The operator: it watches the cluster, plans waiting pods in rounds, and delivers the plans.

Data flows one way; ``app.run`` wires the parts:

1. A reflector lists and watches a kind. Its sink (``api.watches.sinks``) turns each object into an event.
2. ``Shell.apply`` passes the event to the pure step ``reservations.step.advance``, which changes cluster and ledger and
   returns effects.
3. The shell passes each effect to its handler in ``delivery``: bind, nominate, open a gate, evict, write a condition.
   The answer of the API server is an event too.
4. The effect ``RequestRound`` triggers the round loop (``planning``). It sends a request to the worker process and
   passes the plan to ``Shell.apply`` as events.

``policies`` reads FlowSchedulingPolicies; ``delivery.status.policy_status`` writes their status.
"""
