"""Reports on the NUMA zones of nodes, and the pods that a report may not show.

A report has no list of its pods, and comes some time after a pod has started. A pod counts beside it until the report
was written after the pod's start, or the pod has run for so long that its node would have reported it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import numpy as np

from flowcore.cluster.arrays.numa_room import NumaRoom
from flowcore.model.numa import NO_CLAIMS, NumaClaims, NumaNeeds, NumaNode, claims_of
from flowcore.model.pods import Pod

#: Seconds after which a node has reported a pod. Those who report look at least once a minute, and write what changed.
REPORTED_AFTER: Final = 120.0


class NumaIndex:
    """Reports on NUMA zones, with the pods that count beside them.

    Attributes:
        reports: by node name.
        waiting: keys of waiting pods that need something of a zone.
    """

    def __init__(self) -> None:
        self.reports: dict[str, NumaNode] = {}
        self.waiting: set[str] = set()
        #: Bound pods that a report may not show, by node and key.
        self._recent: dict[str, dict[str, Pod]] = {}
        self._followers: list[set[str]] = []

    def follow(self) -> set[str]:
        """A new set: each node with a report is added to it as soon as its report, or what counts beside it, changes.

        It begins with all nodes that have a report. The follower empties it.
        """
        changed = set(self.reports)
        self._followers.append(changed)
        return changed

    def claims_changed(self, node: str) -> None:
        """Records that pods take other room on a node than its report may show."""
        if node in self.reports:
            self._tell(node)

    def _tell(self, node: str) -> None:
        for follower in self._followers:
            follower.add(node)

    def set_report(self, node: str, report: NumaNode | None) -> bool:
        """Takes the report of a node; None: it is gone. Whether pods wait that may be placed otherwise now."""
        before = self.reports.pop(node, None)
        if report is not None:
            self.reports[node] = report
        if before != report:
            self._tell(node)
        return before != report and bool(self.waiting)

    def put_pod(self, old: Pod | None, new: Pod) -> None:
        """Takes a new or changed pod."""
        if old is not None and old.pod_class.numa is not None:
            self.drop_pod(old)
        if new.pod_class.numa is None or new.terminal:
            return
        if new.node_name:
            self._recent.setdefault(new.node_name, {})[new.key] = new
            self.claims_changed(new.node_name)
        else:
            self.waiting.add(new.key)

    def drop_pod(self, pod: Pod) -> None:
        """A pod is gone."""
        self.waiting.discard(pod.key)
        here = self._recent.get(pod.node_name)
        if here is not None:
            if here.pop(pod.key, None) is not None:
                self.claims_changed(pod.node_name)
            if not here:
                del self._recent[pod.node_name]

    def forget_reported(self, now: float) -> None:
        """Drops pods that the reports show. To be called now and then with the seconds since the epoch."""
        for node in list(self._recent):
            here = self._recent[node]
            rest = {key: pod for key, pod in here.items() if not self._is_reported(pod, now)}
            if len(rest) < len(here):
                self.claims_changed(node)
            if rest:
                self._recent[node] = rest
            else:
                del self._recent[node]

    def _is_reported(self, pod: Pod, now: float) -> bool:
        if not pod.started:
            return False
        report = self.reports.get(pod.node_name)
        # A report that does not say when it was written was read together with the pods.
        known = report is not None and (not report.written or pod.started < report.written)
        return known or now - pod.started > REPORTED_AFTER

    def claims(self, node: str, planned: Iterable[NumaNeeds] = (), now: float = 0.0) -> NumaClaims:
        """What pods take on a node that its report may not show.

        Args:
            planned: needs of pods that are to come there.
            now: seconds since the epoch; 0: as when ``forget_reported`` was called last.
        """
        recent = self._recent.get(node, {}).values()
        needs = [pod.pod_class.numa for pod in recent if not self._is_reported(pod, now)]
        return self._claims([*(each for each in needs if each is not None), *planned], node)

    def _claims(self, needs: list[NumaNeeds], node: str) -> NumaClaims:
        report = self.reports.get(node)
        return NO_CLAIMS if report is None or not needs else claims_of(needs, report)


@lru_cache(maxsize=2**14)
def has_zone(report: NumaNode, claims: NumaClaims, needs: NumaNeeds) -> bool:
    """Whether a pod with these needs finds a zone beside pods with these claims."""
    room = NumaRoom.of({report.name: (report, claims)}, {report.name: 0})
    return bool(room.counts(needs, np.array([0]))[0])
