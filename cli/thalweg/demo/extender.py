"""The plan of a scene, told to kube-scheduler: the real extender on loopback, asked as kube-scheduler asks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientSession
from thalweg_extender import Outcome, listening

from flowcore.model.guidance import Asked, Guidance
from flowcore.rounds import run_round
from flowcore.rounds.demands import demands_of
from flowcore.rounds.room import Room
from flowcore.rounds.round import DEFAULT_POLICIES
from flowcore.rounds.scores import scores_of
from thalweg.demo.scene import Scene


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer.

    Attributes:
        when: what has happened before it, in a few words.
        asked: what the request says beside the pod.
        answer: the JSON answer.
    """

    when: str
    verb: str
    pod: str
    asked: Any
    answer: Any


class _Planned:
    """A guide that knows one plan: the pods in ``must`` have their node or none, the others would rather."""

    def __init__(self, scene: Scene, must: Collection[str]) -> None:
        self._nodes, self._must, self._snapshot = scene.nodes, must, scene.snapshot()
        self._load = Room(self._snapshot).load()
        demands = demands_of(self._snapshot, self._load, DEFAULT_POLICIES)
        self._demands = {pod.key: demand for demand in demands for pod in demand.group.pods}
        self._promised: dict[str, str] = {}
        self.plan: dict[str, str] = {}

    def make_plan(self) -> None:
        """A round; before, the plan is empty."""
        self.plan = {each.pod.key: each.node for each in run_round(self._snapshot).placements}

    def fitting(self, key: str) -> list[str]:
        """Nodes that pass the in-tree filters: kube-scheduler asks about no others."""
        return [node.name for node, fits in zip(self._nodes, self._demands[key].allowed, strict=True) if fits]

    def guidance(self, asked: Asked, names: Sequence[str]) -> Guidance:
        taken = self._full()
        if asked.key not in self._demands:
            return Guidance(taken=taken)
        node, hold = self.plan.get(asked.key, ""), asked.key in self._must
        return Guidance(managed=True, node=node, hold=hold, taken=taken, scores=self._scores(asked.key, names))

    def answered(self, asked: Asked, outcome: Outcome, passed: Sequence[str]) -> None:
        if outcome is Outcome.STEERED:
            self._promised[asked.key] = passed[0]

    def _full(self) -> frozenset[str]:
        """Nodes all of whose cores are promised to pods that are on their way."""
        cores: Counter[str] = Counter()
        for key, node in self._promised.items():
            cores[node] += dict(self._demands[key].group.pod_class.requests)["cpu"]
        return frozenset(node.name for node in self._nodes if cores[node.name] >= dict(node.allocatable)["cpu"])

    def _scores(self, key: str, names: Sequence[str]) -> dict[str, int]:
        scores = scores_of(self._demands[key], self._load)
        return {node.name: int(score) for node, score in zip(self._nodes, scores, strict=True) if node.name in names}


async def exchanges(scene: Scene) -> list[Exchange]:
    """What kube-scheduler asks and is told while the pods of the first scene come to their nodes."""
    guide = _Planned(scene, must=("demo/web-0", "demo/train-0", "demo/train-1"))
    done = []
    async with listening("127.0.0.1", 0, guide) as port, ClientSession() as http:

        async def ask(when: str, verb: str, pod: str, asked: Any) -> None:
            field = "NodeNameToMetaVictims" if verb == "preempt" else "NodeNames"
            body = {"Pod": {"metadata": {"name": pod, "namespace": "demo", "uid": pod}}, field: asked}
            async with http.post(f"http://127.0.0.1:{port}/extender/{verb}", data=json.dumps(body)) as response:
                done.append(Exchange(when, verb, pod, asked, await response.json()))

        await ask("No plan yet: a pod that must have its node is held", "filter", "web-0", guide.fitting("demo/web-0"))
        guide.make_plan()
        home = guide.plan["demo/web-0"]
        await ask("Planned and nominated: its node alone is asked about", "filter", "web-0", [home])
        lost = guide.plan["demo/web-1"]
        left = [name for name in guide.fitting("demo/web-1") if name != lost]
        when = f"{lost} was cordoned: a pod that would rather have its node goes where it costs least"
        await ask(when, "filter", "web-1", left)
        await ask("", "prioritize", "web-1", left)
        home = guide.plan["demo/train-0"]
        found = {home: {"Pods": [{"UID": "somebody"}], "NumPDBViolations": 0}}
        await ask("kube-scheduler would evict somebody for a planned pod: nobody is", "preempt", "train-0", found)
        await ask("Nor need be: both find their room", "filter", "train-0", [home])
        await ask("", "filter", "train-1", [home])
        await ask(f"{home} is promised now, so pods of others are kept off", "filter", "stranger", left)
    return done
