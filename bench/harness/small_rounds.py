"""Small drawn clusters that are short of room, and the most pods that any plan places, by sums of our own."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from msgspec import structs

from flowcore.cluster.cluster import Cluster
from flowcore.model.cost_policy import PricedBy, UnscheduledPrice
from flowcore.model.gang_spec import GangKey, GangRef, GangSource, GangSpec
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, SpreadConstraint
from flowcore.model.nodes import Node
from flowcore.model.pods import ANY_ADDRESS, HostPort, Pod, PodClass
from flowcore.model.policies import Policy, PreemptionMode, PreemptionPolicy
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.questions.scenario import Scenario

NOW = 1_795_478_400.0
HOST, ZONE = "kubernetes.io/hostname", "zone"
#: What rounds may have: each is a kind of rule that makes them harder.
RULES = ("plain", "spread", "ports", "apart", "gangs", "unequal gangs")
_GI = 2**30


@dataclass(frozen=True)
class Shape:
    """What is drawn.

    Attributes:
        rules: one of ``RULES``.
        priorities: those of pods; () draws one to four.
        nodes, groups, members: most nodes, groups of equal pods, and pods of one.
        old: whether pods may have waited for days.
        preempts: whether policies and pods may keep others from being preempted.
        per: what the price of waiting counts. What tries all plans counts pods, whatever their size.
    """

    rules: str = "plain"
    priorities: Sequence[int] = ()
    nodes: int = 4
    groups: int = 4
    members: int = 3
    old: bool = False
    preempts: bool = True
    per: PricedBy = field(default=PricedBy.POD, repr=False)


def draw_round(seed: int, shape: Shape) -> Scenario:
    """A cluster in which mostly some pods have to wait."""
    draw = random.Random(f"{seed} {shape}")
    cluster = Cluster()
    cluster.set_namespace("default", ())
    nodes = draw.randint(1 if shape.rules == "plain" else 2, shape.nodes)
    for number in range(nodes):
        cluster.put_node(_node(draw, f"n{number}"))
    priorities = shape.priorities or draw.sample((0, 1, 10, 100, 1000), draw.randint(1, 4))
    for number in range(draw.randint(2, shape.groups)):
        for pod in _pods(draw, f"p{number}", shape, draw.choice(priorities)):
            cluster.put_pod(pod)
    scenario = Scenario(cluster)
    policy = Policy("p", unscheduled=UnscheduledPrice(per=shape.per))
    if shape.preempts and draw.random() < 0.5:
        mode = draw.choice((PreemptionMode.NEVER, PreemptionMode.LOWER_PRIORITY))
        policy = structs.replace(policy, preemption=PreemptionPolicy(mode, draw.choice((0, 30))))
    scenario.policies["p"] = policy
    return scenario


def _node(draw: random.Random, name: str) -> Node:
    amounts = {"cpu": 1000 * draw.randint(2, 6), "memory": 4 * _GI * draw.randint(1, 4), "pods": 110}
    labels = ((HOST, name), (ZONE, draw.choice("ab")))
    return Node(name, name, labels, allocatable=tuple(sorted(amounts.items())))


def _pods(draw: random.Random, app: str, shape: Shape, priority: int) -> list[Pod]:
    ruled = shape.rules in ("spread", "ports", "apart") and draw.random() < 0.6
    in_gang = shape.rules in ("gangs", "unequal gangs") and draw.random() < 0.6
    selector = LabelSelector((Requirement("app", "In", (app,)),))
    rules = None
    if ruled and shape.rules == "spread":
        rules = InterPodConstraints(spread=(SpreadConstraint(draw.choice((ZONE, HOST)), 1, selector),))
    elif ruled and shape.rules == "apart":
        rules = InterPodConstraints(anti_affinity=(AffinityTerm(draw.choice((ZONE, HOST)), selector, ("default",)),))
    ports = (HostPort(ANY_ADDRESS, "TCP", draw.choice((80, 443))),) if ruled and shape.rules == "ports" else ()
    count = draw.randint(2 if in_gang else 1, shape.members)
    key = GangKey(GangSource.THALWEG, "default", app)
    gang = GangRef(key, GangSpec(min_member=draw.randint(2, count))) if in_gang else None
    preempts = not (shape.preempts and draw.random() < 0.3)
    requests = _requests(draw)
    pods = []
    for member in range(count):
        if member and in_gang and shape.rules == "unequal gangs":
            requests = _requests(draw)
        waited = draw.choice((0, 10, 600, 86_400 * draw.randint(0, 20))) if shape.old else draw.randint(0, 300)
        pods.append(
            Pod(
                "default",
                f"{app}-{member}",
                f"{app}-{member}",
                PodClass(tuple(sorted(requests.items())), priority=priority, host_ports=ports),
                labels=(("app", app),),
                scheduler_name="thalweg",
                created=NOW - waited,
                usage=tuple(sorted(requests.items())),
                constraints=rules,
                gang=gang,
                preempts=preempts,
            )
        )
    return pods


def _requests(draw: random.Random) -> dict[str, int]:
    return {"cpu": 500 * draw.choice((1, 2, 4, 6)), "memory": _GI * draw.choice((1, 2, 4, 8))}


def most_placed(scenario: Scenario) -> tuple[int, ...]:
    """How many pods the best plan places, by priority from the highest: found by trying every plan."""
    return _Exhaustion(scenario).best()


class _Exhaustion:
    """Every way to place the waiting pods of a drawn cluster, equal pods in the order of the nodes."""

    def __init__(self, scenario: Scenario) -> None:
        cluster = scenario.cluster
        self._nodes = list(cluster.nodes.values())
        self._free = [dict(node.allocatable) for node in self._nodes]
        pods = sorted(
            cluster.pods.values(),
            key=lambda pod: (-pod.pod_class.priority, pod.name.partition("-")[0], pod.pod_class.requests, pod.name),
        )
        self._kinds = [
            list(equal) for _, equal in groupby(pods, key=lambda pod: (pod.labels, pod.pod_class, pod.constraints))
        ]
        self._levels = sorted({pod.pod_class.priority for pod in pods}, reverse=True)
        self._least = {pod.labels[0][1]: (pod.gang.spec.min_member or 0) if pod.gang is not None else 0 for pod in pods}
        self._ports: list[set[int]] = [set() for _ in self._nodes]
        self._placed: dict[str, list[int]] = {app: [0] * len(self._nodes) for app in self._least}
        self._best: tuple[int, ...] = ()
        self._rest = [
            tuple(sum(len(kind) for kind in self._kinds[at:] if kind[0].pod_class.priority == level)
                  for level in self._levels)
            for at in range(len(self._kinds) + 1)
        ]  # fmt: skip

    def best(self) -> tuple[int, ...]:
        """The most, level by level."""
        self._decide(0, (0,) * len(self._levels))
        return self._best

    def _decide(self, at: int, counts: tuple[int, ...]) -> None:
        possible = tuple(count + rest for count, rest in zip(counts, self._rest[at], strict=True))
        if possible <= self._best:
            return
        if at == len(self._kinds):
            if self._holds():
                self._best = counts
            return
        self._place(at, 0, len(self._kinds[at]), counts)

    def _place(self, at: int, node: int, left: int, counts: tuple[int, ...]) -> None:
        """Places some pods of a kind on a node, the most first, and the others on the nodes after it."""
        if node == len(self._nodes):
            self._decide(at + 1, counts)
            return
        pod = self._kinds[at][0]
        level, app = self._levels.index(pod.pod_class.priority), pod.labels[0][1]
        requests, free = (*pod.pod_class.requests, ("pods", 1)), self._free[node]
        fits = min(left, *(free.get(name, 0) // amount for name, amount in requests if amount))
        ports = {port.port for port in pod.pod_class.host_ports}
        if ports:
            fits = 0 if ports & self._ports[node] else min(fits, 1)
        if pod.constraints is not None and pod.constraints.anti_affinity:
            fits = min(fits, 1)
        for count in range(fits, -1, -1):
            for name, amount in requests:
                free[name] = free.get(name, 0) - amount * count
            self._placed[app][node] += count
            self._ports[node] |= ports if count else set()
            more = tuple(each + count * (number == level) for number, each in enumerate(counts))
            self._place(at, node + 1, left - count, more)
            self._ports[node] -= ports if count else set()
            self._placed[app][node] -= count
            for name, amount in requests:
                free[name] += amount * count

    def _holds(self) -> bool:
        """Whether rules and gangs hold."""
        for kind in self._kinds:
            pod = kind[0]
            app = pod.labels[0][1]
            total = sum(self._placed[app])
            if 0 < total < self._least[app]:
                return False
            if pod.constraints is None or not total:
                continue
            for term in pod.constraints.anti_affinity:
                if max(self._by_domain(app, term.topology_key)) > 1:
                    return False
            for spread in pod.constraints.spread:
                counts = self._by_domain(app, spread.topology_key)
                if max(counts) - min(counts) > spread.max_skew:
                    return False
        return True

    def _by_domain(self, app: str, key: str) -> list[int]:
        domains: dict[str, int] = {}
        for node, count in zip(self._nodes, self._placed[app], strict=True):
            domain = dict(node.labels)[key]
            domains[domain] = domains.get(domain, 0) + count
        return list(domains.values())
