"""ImageLocality: nodes that already hold the images of a pod.

Source: kube-scheduler plugins/imagelocality/image_locality.go. An image counts with its size times the share of nodes
that hold it, so that what few nodes hold does not draw everything there; the sum is cut to 23 MiB below and to
1000 MiB above, for each container and, since 1.37, each image volume.
"""

from __future__ import annotations

import numpy as np

from flowcore.cluster.arrays.node_reports import Reports
from flowcore.cluster.arrays.snapshot import Int64s, NodeTable
from flowcore.model.pods import PodClass

#: The best score.
MAX_SCORE = 100
_MIB = 1024 * 1024
_LEAST_SIZE, _MOST_SIZE = 23 * _MIB, 1000 * _MIB


def locality(pod_class: PodClass, reports: Reports, table: NodeTable) -> Int64s:
    """int64[N], 0..100: how much of its images each node holds."""
    held = [reports.holders(name, table.index) for name in pod_class.images]
    count = len(table.nodes)
    if sum(float(sizes.max()) * len(sizes) / count for _, sizes in held if len(sizes)) < _LEAST_SIZE:
        return np.zeros(count, dtype=np.int64)  # as for most images: no node's sum exceeds the least size
    total = np.zeros(count, dtype=np.float64)
    for nodes, sizes in held:
        total[nodes] += np.floor(sizes * (len(nodes) / count))
    most = _MOST_SIZE * max(pod_class.containers + pod_class.image_volumes, 1)
    cut = np.clip(total, _LEAST_SIZE, most).astype(np.int64)
    score: Int64s = MAX_SCORE * (cut - _LEAST_SIZE) // (most - _LEAST_SIZE)
    return score
