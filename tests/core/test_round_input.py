"""The input of a round is made in steps: an event loop turns between two of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import pytest

from flowcore.cluster.arrays.snapshot import Victim
from flowcore.cluster.cluster import Cluster
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import BUILT_IN, Policy
from flowcore.planning.round_input import GovernedPod, RoundInput

PODS = 100
#: Pods that are looked at with one step, at most.
FEW = 10


class NothingKnown:
    """Of no pod is anything known but its object."""

    def rejected_nodes(self, pod: Pod) -> Iterable[str]:
        return ()

    def victim_of(self, pod: Pod, policy: Policy) -> Victim | None:
        return None

    def plannable_since(self, pod: Pod) -> float:
        return 0.0

    def preempts(self, pod: Pod) -> bool:
        return False

    def foreseen(self, pod: Pod) -> tuple[int, int] | None:
        return None


class CountedPods(Sequence[GovernedPod]):
    """Pods, and how many of them were looked at since the last step."""

    def __init__(self, pods: Sequence[GovernedPod]) -> None:
        self._pods, self.looks = pods, 0

    def __len__(self) -> int:
        return len(self._pods)

    @overload
    def __getitem__(self, position: int) -> GovernedPod: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[GovernedPod]: ...
    def __getitem__(self, position: int | slice) -> GovernedPod | Sequence[GovernedPod]:
        found = self._pods[position]
        self.looks += len(self._pods[position]) if isinstance(position, slice) else 1
        return found

    def __iter__(self) -> Iterator[GovernedPod]:
        for pod in self._pods:
            self.looks += 1
            yield pod


def test_a_step_looks_at_few_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where they are in no gang, so that 100,000 of them do not keep the event loop."""
    cluster = Cluster()
    pods = [Pod("ns", f"p{number}", f"u{number}", PodClass()) for number in range(PODS)]
    for pod in pods:
        cluster.put_pod(pod)
    waiting = CountedPods([GovernedPod(pod, BUILT_IN, BUILT_IN.delivery) for pod in pods])
    waiting_pod = cluster.gangs.waiting_pod

    def counted(key: str) -> Pod | None:
        waiting.looks += 1
        return waiting_pod(key)

    monkeypatch.setattr(cluster.gangs, "waiting_pod", counted)
    made = RoundInput(cluster, waiting, NothingKnown(), lambda _pod: BUILT_IN, stays_above=None)
    for _ in made.steps():
        assert waiting.looks <= FEW
        waiting.looks = 0
    assert len(made.pending) == PODS
