"""Running pods that an annotation keeps where a waiting pod would have room."""

from __future__ import annotations

from flowcore.cluster.running import immovable_reason
from flowcore.model.policies import KEEPING
from flowcore.questions.diagnosis.finding import UnplacedCase


def kept_there(pod: UnplacedCase, node: int) -> tuple[str, ...]:
    """A sentence for the smallest pod of a node whose room would be enough, and that an annotation keeps there.

    Args:
        node: its number.
    """
    after, running = pod.plan.result.after, pod.plan.before.running
    requests, cluster = after.vector(pod.unplaced.pod.pod_class.requests), pod.scenario.cluster
    asked, name = requests > 0, after.table.nodes[node].name
    kept = []
    for resident in () if running is None else running.pods:
        if resident.node == name and pod.context.may_name(resident.key):
            usage, reason = after.vector(resident.usage), immovable_reason(cluster, cluster.pods[resident.key])
            makes_room = (after.free[node] + usage >= requests)[asked].all()
            if makes_room and any(annotation in reason for annotation in KEEPING):
                kept.append((float((usage / requests.clip(1))[asked].sum()), resident.key, reason))
    if not kept:
        return ()
    _, key, reason = min(kept)
    return (f"{key} holds enough room there, and no policy moves it: {reason}.",)
