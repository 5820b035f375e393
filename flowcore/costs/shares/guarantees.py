"""Which guarantees count: those that can all be kept at once."""

from __future__ import annotations

from collections.abc import Mapping

from flowcore.cluster.indexes.queue_index import QueueProblem, QueueTree
from flowcore.model.resources import Amounts


def check_guarantees(
    tree: QueueTree, capacity: Mapping[str, float]
) -> tuple[dict[str, Amounts], dict[str, QueueProblem]]:
    """The guarantees that count, and why the others do not.

    They are looked at from the top of the tree down, siblings by name. A guarantee counts if what is left of that of
    the nearest queue above it that guarantees the resource, or of the cluster, is enough for it.

    Args:
        capacity: what all queues can have of each resource.
    """
    counted: dict[str, Amounts] = {}
    problems: dict[str, QueueProblem] = {}
    left: dict[tuple[str, str], float] = {}
    for name, queue in tree.queues.items():
        limit = dict(queue.limit)
        sources: dict[str, str] = {}
        for resource, amount in queue.guarantee:
            if amount > limit.get(resource, amount):
                text = f"spec.guarantee.{resource}: it is above spec.limit.{resource}; the queue has no guarantee"
                problems[name] = QueueProblem("GuaranteeAboveLimit", text)
                break
            above = _nearest(tree, name, resource, counted)
            of_whom = f"FlowQueue {above}" if above else "the cluster"
            most = dict(counted[above])[resource] if above else capacity.get(resource, 0.0)
            if amount > left.setdefault((above, resource), most):
                reason = "GuaranteeAboveParent" if above else "GuaranteeAboveCluster"
                text = (
                    f"spec.guarantee.{resource}: it is above what {of_whom} has left beside the guarantees of queues "
                    "that come first by name; the queue has no guarantee"
                )
                problems[name] = QueueProblem(reason, text)
                break
            sources[resource] = above
        else:
            counted[name] = queue.guarantee
            for resource, amount in queue.guarantee:
                left[sources[resource], resource] -= amount
    return counted, problems


def _nearest(tree: QueueTree, name: str, resource: str, counted: Mapping[str, Amounts]) -> str:
    """The nearest queue above one that guarantees a resource; "": none does."""
    above = reversed(tree.path(name)[:-1])
    return next((each for each in above if any(listed == resource for listed, _ in counted.get(each, ()))), "")
