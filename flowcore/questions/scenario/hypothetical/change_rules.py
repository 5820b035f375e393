"""Hypothetical changes of what policies and queues allow."""

from __future__ import annotations

import msgspec

from flowcore.cluster.kinds import QUEUES
from flowcore.model.constraints import Conflict, Exclusive
from flowcore.model.errors import ModelError
from flowcore.model.quantities import MAX_AMOUNT
from flowcore.questions.scenario.context import UnknownName
from flowcore.questions.scenario.hypothetical.changes import RaiseCap, RaiseQueueLimit
from flowcore.questions.scenario.near_names import did_you_mean
from flowcore.questions.scenario.reading.edits import Edits

#: Most pods that a constraint may be told to let into a domain.
MAX_CAP = 2**31 - 1


def raise_cap(edits: Edits, change: RaiseCap) -> None:
    """Lets more pods into each domain of a constraint."""
    policy = edits.scenario.policies.get(change.policy)
    if policy is None:
        near = did_you_mean(change.policy, edits.scenario.policies)
        raise UnknownName("", f"there is no FlowSchedulingPolicy {change.policy}{near}")
    rule = next((constraint for constraint in policy.constraints if constraint.name == change.constraint), None)
    if not isinstance(rule, Conflict | Exclusive):
        raise UnknownName("", f"policy {change.policy} has no constraint {change.constraint} with maxPerDomain")
    if not 0 <= change.value <= MAX_CAP:
        raise ModelError("value", f"{change.value}: give a number from 0 to {MAX_CAP}")
    raised = msgspec.structs.replace(rule, max_per_domain=change.value)
    constraints = tuple(raised if constraint is rule else constraint for constraint in policy.constraints)
    edits.put_policy(msgspec.structs.replace(policy, constraints=constraints))


def raise_queue_limit(edits: Edits, change: RaiseQueueLimit) -> None:
    """Lets a queue use more of a resource."""
    queue = edits.scenario.cluster.queues.objects.get(change.queue)
    if queue is None:
        near = did_you_mean(change.queue, edits.scenario.cluster.queues.objects)
        raise UnknownName("", f"there is no FlowQueue {change.queue}{near}")
    if not 0 <= change.amount <= MAX_AMOUNT:
        raise ModelError("amount", f"{change.amount}: give a number from 0 to {MAX_AMOUNT}")
    limit = tuple(sorted({**dict(queue.limit), change.resource: change.amount}.items()))
    edits.put_object(QUEUES, msgspec.structs.replace(queue, limit=limit))
