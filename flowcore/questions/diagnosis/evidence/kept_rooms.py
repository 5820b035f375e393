"""Room that is kept for nominated pods until others have left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from flowcore.questions.diagnosis.finding import UnplacedCase
from flowcore.questions.diagnosis.lists import listed_pods
from flowcore.rules.filters import node_resources_fit
from flowcore.rules.reasons.shortage import lacking


def kept_rooms(pod: UnplacedCase) -> Iterator[str]:
    """A sentence for each node that would have room for a pod but for nominated pods."""
    snapshot, cluster = pod.plan.result.after, pod.scenario.cluster
    meant = defaultdict[str, list[str]](list)
    for key, room in pod.plan.awaiting.items():
        meant[room.node].append(key)
    for node in sorted(pod.most_open_nodes(node_resources_fit.NAME) & meant.keys()):
        # More than those hold that terminate there.
        kept = sum(snapshot.vector(cluster.pods[key].pod_class.requests) for key in meant[node])
        victims = {victim for key in meant[node] for victim in pod.plan.awaiting[key].victims}
        kept = np.maximum(kept - sum(snapshot.vector(cluster.pods[key].usage) for key in victims), 0)
        amounts = dict(zip(snapshot.resources, kept.tolist(), strict=True))
        lacks = lacking(pod.unplaced.pod.pod_class, snapshot, snapshot.table.index[node])
        if all(each.amount <= amounts.get(each.resource, 0) for each in lacks):
            yield f"Room on {node} is kept for {listed_pods(meant[node], pod.context)}, until others have left there."
