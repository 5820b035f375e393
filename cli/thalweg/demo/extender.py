"""Asks Thalweg's extender about the pods of a scene, on loopback and with kube-scheduler's own requests."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientSession
from thalweg_extender import FilterOutcome, listening

from flowcore.model.advice import Advice, ExtenderPod
from flowcore.planning.problem.demands.demands import demands_of
from flowcore.planning.problem.placements.plans import Plan
from flowcore.planning.round import run_round
from flowcore.planning.round.round import DEFAULT_POLICIES
from flowcore.planning.scores import scores_of
from thalweg.demo.page import ScenePage
from thalweg.demo.scene import Scene
from thalweg.demo.scene_result import checked


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
        demands = demands_of(self._snapshot, Plan(self._snapshot).load(), DEFAULT_POLICIES)
        self._demands = {pod.key: demand for demand in demands for pod in demand.group.pods}
        self._promised: dict[str, str] = {}
        self.plan: dict[str, str] = {}

    def make_plan(self) -> None:
        """A round; before, the plan is empty."""
        self.plan = {each.pod.key: each.node for each in run_round(self._snapshot).placements}

    def fitting(self, key: str) -> list[str]:
        """Nodes that pass the in-tree filters: kube-scheduler asks about no others."""
        return [node.name for node, fits in zip(self._nodes, self._demands[key].allowed, strict=True) if fits]

    def unavailable(self) -> str:
        return ""

    def planned_at_once(self, asked: ExtenderPod, names: Sequence[str]) -> bool:  # noqa: ARG002
        return True

    async def until_planned(self, asked: ExtenderPod, names: Sequence[str]) -> None:
        """The plan is there or not; nobody makes one meanwhile."""

    def advise(self, asked: ExtenderPod, names: Sequence[str]) -> Advice:
        taken = self._full()
        if asked.key not in self._demands:
            return Advice(infeasible_nodes=taken)
        node, hold = self.plan.get(asked.key, ""), asked.key in self._must
        return Advice(managed=True, node=node, hold=hold, infeasible_nodes=taken, scores=self._scores(asked.key, names))

    def answered(self, asked: ExtenderPod, advice: Advice, outcome: FilterOutcome, passed: Sequence[str]) -> None:  # noqa: ARG002
        if outcome is FilterOutcome.STEERED:
            self._promised[asked.key] = passed[0]

    def _full(self) -> frozenset[str]:
        """Nodes all of whose cores are promised to pods that are on their way."""
        cores: Counter[str] = Counter()
        for key, node in self._promised.items():
            cores[node] += dict(self._demands[key].group.pod_class.requests)["cpu"]
        return frozenset(node.name for node in self._nodes if cores[node.name] >= dict(node.allocatable)["cpu"])

    def _scores(self, key: str, names: Sequence[str]) -> dict[str, int]:
        demand = self._demands[key]
        scores = scores_of(demand.first_cost, demand.allowed)
        return {node.name: int(score) for node, score in zip(self._nodes, scores, strict=True) if node.name in names}


async def exchanges(scene: Scene) -> list[Exchange]:
    """What kube-scheduler would ask and be told while the web and training pods of the scene come to their nodes."""
    training = [key for each in scene.sets if each.name == "train" for key in each.keys]
    guide = _Planned(scene, must=("demo/web-0", *training))
    done = []
    async with listening("127.0.0.1", 0, guide) as port, ClientSession() as http:

        async def ask(when: str, verb: str, key: str, asked: Any) -> None:
            pod = key.removeprefix("demo/")
            field = "NodeNameToMetaVictims" if verb == "preempt" else "NodeNames"
            body = {"Pod": {"metadata": {"name": pod, "namespace": "demo", "uid": pod}}, field: asked}
            async with http.post(f"http://127.0.0.1:{port}/extender/{verb}", data=json.dumps(body)) as response:
                done.append(Exchange(when, verb, pod, asked, await response.json()))

        await ask("No plan yet: a pod that must have its node is held", "filter", "web-0", guide.fitting("demo/web-0"))
        guide.make_plan()
        home = guide.plan["demo/web-0"]
        await ask("Planned and nominated: kube-scheduler asks about its node alone", "filter", "web-0", [home])
        lost = guide.plan["demo/web-1"]
        left = [name for name in guide.fitting("demo/web-1") if name != lost]
        when = f"{lost} was cordoned: a pod that prefers its node goes where it costs least"
        await ask(when, "filter", "web-1", left)
        await ask("", "prioritize", "web-1", left)
        home = guide.plan[training[0]]
        victims = {home: {"Pods": [{"UID": "somebody"}], "NumPDBViolations": 0}}
        await ask("kube-scheduler would evict a pod for a planned one: no pod is", "preempt", training[0], victims)
        for key in training:
            when = "There is no need: all of them fit" if key == training[0] else ""
            await ask(when, "filter", key, [guide.plan[key]])
        await ask(f"All of {home} is promised now: other pods are kept off", "filter", "stranger", left)
    return done


async def extender_page(scene: Scene) -> ScenePage:
    """The requests and answers, and what follows from them.

    Raises:
        ClaimError: the answers do not lead the training pods to one node.
    """
    done = await exchanges(scene)
    lines = []
    for exchange in done:
        if exchange.when:
            lines.append(f"{exchange.when}:")
        lines.append(
            f"  {exchange.verb} {exchange.pod} [{', '.join(exchange.asked)}] -> {answer_text(exchange.answer)}"
        )
    story = (
        "The GPU scene with kube-scheduler binding the pods. No kube-scheduler runs here: the demo sends the requests "
        "that it would send to Thalweg's extender, over HTTP on loopback. [nodes asked about] -> answer."
    )
    return ScenePage("Through kube-scheduler", (story, *lines), (), (), claim(done))


def claim(done: Sequence[Exchange]) -> str:
    """Where the training pods go, and what is kept from others.

    Raises:
        ClaimError: they do not all go to one node, a pod is evicted for them, or their node is open to others.
    """
    training = [each for each in done if each.verb == "filter" and each.pod.startswith("train")]
    nodes = {name for each in training for name in each.answer["NodeNames"]}
    evicted = [name for each in done if each.verb == "preempt" for name in each.answer["NodeNameToMetaVictims"]]
    home, kept = ", ".join(nodes), done[-1].answer
    return checked(
        f"{len(training)} training pods pass to {home}, {len(evicted)} pods are evicted, {done[-1].pod} is kept off.",
        len(nodes) == 1,
        all(each.answer["NodeNames"] for each in training),
        not evicted,
        nodes <= set(kept["FailedAndUnresolvableNodes"]),
    )


def answer_text(answer: Any) -> str:
    """An answer of the extender in words."""
    if isinstance(answer, list):
        return ", ".join(f"{each['Host']} scores {each['Score']}" for each in answer)
    if "NodeNameToMetaVictims" in answer:
        return ", ".join(answer["NodeNameToMetaVictims"]) or "evict nothing"
    passed = ", ".join(answer["NodeNames"]) or "no node"
    refused = answer.get("FailedAndUnresolvableNodes") or {}
    reasons = "; ".join(f"not {name}: {reason}" for name, reason in refused.items())
    return f"{passed}; {reasons}" if reasons else passed
