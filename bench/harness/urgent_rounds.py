"""Small drawn clusters that are full, a few urgent pods, and the best plan that there is, by sums of our own."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from flowcore.cluster.cluster import Cluster
from flowcore.model.cost_policy import PricedBy, UnscheduledPrice
from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints
from flowcore.model.nodes import Node
from flowcore.model.pods import ANY_ADDRESS, HostPort, Pod, PodClass
from flowcore.model.policies import Policy
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.round import RoundResult
from flowcore.questions.scenario import Scenario
from harness.drawn_pods import drawn_pod, started

HOST = "kubernetes.io/hostname"
_GI = 2**30
_APPS = ("a", "b", "c")
#: Below all priorities, and what kube-scheduler adds to each before it sums them (pickOneNodeForPreemption).
_NOBODY, _ABOVE_ALL = -(2**32), 2**31


@dataclass(frozen=True)
class UrgentShape:
    """What is drawn.

    Attributes:
        urgent: priorities of the pods that wait.
        rules: whether pods may have host ports and keep away from apps on their node.
    """

    urgent: Sequence[int] = (1000,)
    rules: bool = True


@dataclass(frozen=True)
class UrgentRound:
    """A drawn cluster, and the PodDisruptionBudgets in it."""

    scenario: Scenario
    budgets: Sequence[DisruptionBudget]


def draw_urgent(seed: int, shape: UrgentShape) -> UrgentRound:
    """A cluster in which two to four pods wait, mostly for others to leave.

    Its policy prices waiting by pod: plans are compared by pods here.
    """
    draw = random.Random(f"{seed} {shape}")
    cluster = Cluster()
    cluster.set_namespace("default", ())
    number = 0
    for place in range(draw.randint(2, 4)):
        node = _node(f"n{place}", draw.randint(4, 8))
        cluster.put_node(node)
        cpu, ports = dict(node.allocatable)["cpu"], set[int]()
        for _ in range(draw.randint(1, 5)):
            wanted, port = 500 * draw.choice((1, 2, 2, 3, 4, 6)), draw.choice((80, 443)) if draw.random() < 0.15 else 0
            if wanted <= cpu and port not in ports:
                cpu, ports = cpu - wanted, ports | ({port} if port and shape.rules else set())
                pod = _pod(draw, f"r{number}", draw.choice((0, 0, 10, 20, 50, 100)), wanted, shape, port)
                pod = started(draw, pod, node.name)
                if all(_tolerate(pod, each) for each in cluster.pods.values() if each.node_name == node.name):
                    cluster.put_pod(pod)
                    number += 1
    for place in range(draw.randint(2, 4)):
        port = draw.choice((80, 443)) if draw.random() < 0.1 else 0
        wanted = 500 * draw.choice((2, 3, 4, 6, 8))
        cluster.put_pod(_pod(draw, f"p{place}", draw.choice(shape.urgent), wanted, shape, port))
    budgets = [
        DisruptionBudget("default", f"b-{app}", _selects(app), draw.randint(0, 2))
        for app in draw.sample(_APPS, draw.randint(0, 2))
    ]
    for budget in budgets:
        cluster.set_disruption_budget(budget.key, budget)
    policy = Policy("by-pod", unscheduled=UnscheduledPrice(per=PricedBy.POD))
    return UrgentRound(Scenario(cluster, policies={policy.name: policy}), budgets)


def _node(name: str, cpu: int) -> Node:
    amounts = (("cpu", 1000 * cpu), ("memory", 64 * _GI), ("pods", 110))
    return Node(name, name, ((HOST, name),), allocatable=amounts)


def _selects(app: str) -> LabelSelector:
    return LabelSelector((Requirement("app", "In", (app,)),))


def _pod(draw: random.Random, name: str, priority: int, cpu: int, shape: UrgentShape, port: int) -> Pod:
    requests = (("cpu", cpu), ("memory", _GI))
    ports = (HostPort(ANY_ADDRESS, "TCP", port),) if port and shape.rules else ()
    rules = None
    if shape.rules and draw.random() < (0.1 if name.startswith("r") else 0.3):
        term = AffinityTerm(HOST, _selects(draw.choice(_APPS)), ("default",))
        rules = InterPodConstraints(anti_affinity=(term,))
    pod_class = PodClass(requests, priority=priority, host_ports=ports)
    return drawn_pod(draw, name, pod_class, _APPS, constraints=rules)


def _cpu(pod: Pod) -> int:
    return dict(pod.pod_class.requests)["cpu"]


def _tolerate(first: Pod, second: Pod) -> bool:
    """Whether neither keeps the other off its node."""
    if {port.port for port in first.pod_class.host_ports} & {port.port for port in second.pod_class.host_ports}:
        return False
    for pod, beside in ((first, second), (second, first)):
        terms = () if pod.constraints is None else pod.constraints.anti_affinity
        if any(term.selector.matches(beside.labels) for term in terms):
            return False
    return True


# -- what plans are compared by ----------------------------------------------------------------------------------------


def standing(pods: Iterable[int], placed: Sequence[int], victims: Sequence[int]) -> tuple[int, ...]:
    """What a plan is compared by, the smaller the better, by priorities of pods: all that wait before, placed, evicted.

    For each priority of waiting pods, the highest first: how many of its pods wait; of the victims that no lower pod
    could evict the highest priority, and their sum as kube-scheduler counts it.
    """
    waiting = Counter(pods)
    waiting.subtract(placed)
    levels = sorted(waiting, reverse=True)
    result: list[int] = []
    for number, level in enumerate(levels):
        lower = levels[number + 1] if number + 1 < len(levels) else _NOBODY
        upper = level if number else _ABOVE_ALL
        lost = [priority for priority in victims if lower <= priority < upper]
        result += [waiting[level], max(lost, default=_NOBODY), sum(priority + _ABOVE_ALL for priority in lost)]
    return tuple(result)


def standing_of(drawn: UrgentRound, result: RoundResult) -> tuple[int, ...]:
    """The same of a round's plan: victims with a new node are not lost."""
    placed = [each.pod.pod_class.priority for each in result.placements]
    waiting = [pod.pod_class.priority for pod in drawn.scenario.waiting()]
    return standing(waiting, placed, [each.pod.priority for each in result.evictions if not each.to])


def best_standing(drawn: UrgentRound) -> tuple[int, ...]:
    """The same of the best plan: found by trying every node for every pod, and all sets of victims of each node."""
    return _Exhaustion(drawn).best()


class _Exhaustion:
    def __init__(self, drawn: UrgentRound) -> None:
        scenario = drawn.scenario
        self._budgets, cluster = drawn.budgets, scenario.cluster
        self._nodes = list(cluster.nodes.values())
        self._pods = sorted(scenario.waiting(), key=lambda pod: -pod.pod_class.priority)
        self._running = {node.name: [pod for pod in cluster.pods.values() if pod.node_name == node.name]
                         for node in self._nodes}  # fmt: skip
        self._known: dict[tuple[str, tuple[int, ...]], list[tuple[Pod, ...]]] = {}

    def best(self) -> tuple[int, ...]:
        """What the best plan is compared by."""
        best: tuple[int, ...] | None = None
        for priorities, placed, gone, choice in self._all():
            if best is None or standing(priorities, placed, ()) < best:
                each = min(standing(priorities, placed, lost) for lost in self._lost(gone, choice))
                best = each if best is None else min(best, each)
        assert best is not None
        return best

    def _all(self) -> Iterator[tuple[Sequence[int], Sequence[int], Sequence[Pod], Sequence[int | None]]]:
        """All plans: priorities of the pods, of those that are placed, who leaves, and the node of each pod."""
        priorities = [pod.pod_class.priority for pod in self._pods]
        places: list[int | None] = [None, *range(len(self._nodes))]
        for choice in product(places, repeat=len(self._pods)):
            ways = []
            for number, node in enumerate(self._nodes):
                coming = tuple(pod for pod, place in enumerate(choice) if place == number)
                ways.append(self._victims(node, coming) if coming else [()])
            placed = [
                pod.pod_class.priority for pod, place in zip(self._pods, choice, strict=True) if place is not None
            ]
            for victims in product(*ways):
                gone = [pod for each in victims for pod in each]
                if self._is_allowed(gone):
                    yield priorities, placed, gone, choice

    def _lost(self, gone: Sequence[Pod], choice: Sequence[int | None]) -> Iterator[list[int]]:
        """Priorities of those that leave without a new node: for each set of the others that have one, and no rules."""
        leaving, now, end = {id(pod) for pod in gone}, dict[str, int](), dict[str, int]()
        beside: dict[str, list[Pod]] = {}
        for number, node in enumerate(self._nodes):
            running = self._running[node.name]
            coming = [pod for pod, place in zip(self._pods, choice, strict=True) if place == number]
            stay = [pod for pod in running if id(pod) not in leaving]
            at_once = coming if len(stay) == len(running) else []
            now[node.name] = dict(node.allocatable)["cpu"] - sum(map(_cpu, (*running, *at_once)))
            end[node.name] = dict(node.allocatable)["cpu"] - sum(map(_cpu, (*stay, *coming)))
            beside[node.name] = [*running, *coming]

        def have_nodes(pods: Sequence[Pod]) -> bool:
            if not pods:
                return True
            first = pods[0]
            for name in now:
                fits = min(now[name], end[name]) >= _cpu(first) and all(_tolerate(first, pod) for pod in beside[name])
                if name == first.node_name or not fits:
                    continue
                now[name], end[name] = now[name] - _cpu(first), end[name] - _cpu(first)
                beside[name].append(first)
                placed = have_nodes(pods[1:])
                beside[name].pop()
                now[name], end[name] = now[name] + _cpu(first), end[name] + _cpu(first)
                if placed:
                    return True
            return False

        for count in range(len(gone) + 1):
            for kept in combinations(gone, count):
                if not any(pod.constraints or pod.pod_class.host_ports for pod in kept) and have_nodes(kept):
                    keeping = set(map(id, kept))
                    yield [pod.pod_class.priority for pod in gone if id(pod) not in keeping]

    def _is_allowed(self, gone: Sequence[Pod]) -> bool:
        lost = Counter[str]()
        for pod in gone:
            budgets = self._budgets_of(pod)
            if len(budgets) > 1:
                return False
            lost.update(budgets)
        return all(lost[budget.key] <= budget.allowed for budget in self._budgets)

    def _budgets_of(self, pod: Pod) -> list[str]:
        return [budget.key for budget in self._budgets if budget.selects(pod.namespace, pod.labels)]

    def _victims(self, node: Node, coming: tuple[int, ...]) -> list[tuple[Pod, ...]]:
        """All sets that let these pods in, but those with a smaller one in them."""
        known = self._known.get((node.name, coming))
        if known is None:
            pods = [self._pods[number] for number in coming]
            highest = max(pod.pod_class.priority for pod in pods)
            lower = [pod for pod in self._running[node.name] if pod.pod_class.priority < highest]
            known = []
            for count in range(len(lower) + 1):
                for gone in combinations(lower, count):
                    smaller = any(set(map(id, each)) <= set(map(id, gone)) for each in known)
                    if not smaller and self._fit(node, pods, gone) and self._are_needed(node, pods, gone):
                        known.append(gone)
            self._known[node.name, coming] = known
        return known

    def _fit(self, node: Node, pods: Sequence[Pod], gone: Sequence[Pod]) -> bool:
        left = {id(pod) for pod in gone}
        beside = [pod for pod in self._running[node.name] if id(pod) not in left]
        for name, amount in node.allocatable:
            asked = sum(dict((*pod.pod_class.requests, ("pods", 1))).get(name, 0) for pod in (*beside, *pods))
            if asked > amount:
                return False
        every = [*beside, *pods]
        return all(_tolerate(pod, other) for pod in pods for other in every if other is not pod)

    def _are_needed(self, node: Node, pods: Sequence[Pod], gone: Sequence[Pod]) -> bool:
        """Whether each leaves for pods of a higher priority than its own: these do not fit beside it."""
        for pod in gone:
            above = [each for each in pods if each.pod_class.priority > pod.pod_class.priority]
            if not above or self._fit(node, above, [other for other in gone if other is not pod]):
                return False
        return True
