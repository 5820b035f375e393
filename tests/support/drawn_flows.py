"""Small networks as policies draw them, and all flows through them by arithmetic of their own.

Nothing of the planner is imported. A pod takes a way of arcs, one for each value of a label, or waits. The least cost
of each placement is what the cheapest choice of ways costs that keeps all minimums and maximums.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any

#: More combinations of ways than this are not tried.
MOST_TRIED = 4_000
Labels = Mapping[str, str]
#: An arc with its ends: where it is declared, the point that it leaves, and its end.
Instance = tuple[str, int, str, str]


class TooMany(Exception):
    """There are too many flows to try."""


@dataclass(frozen=True)
class DrawnCase:
    """A cluster, pods and the network of their policy.

    Attributes:
        nodes: labels by name.
        room: millicores that are free, of 4000.
        pods: labels and millicores of each that waits.
        runs: labels and node of pods of the policy that run.
    """

    network: dict[str, Any]
    nodes: Mapping[str, Labels]
    room: Mapping[str, int]
    pods: Sequence[tuple[Labels, int]]
    runs: Sequence[tuple[Labels, str]]


def draw_case(seed: int, *, running: bool = False) -> DrawnCase:
    """Two or three nodes, up to three aggregators and four pods."""
    choose = random.Random(seed)
    nodes = {f"m{at}": {"rack": choose.choice("rs"), "pool": choose.choice("xy")} for at in range(choose.randint(2, 3))}
    nodes = {name: {"kubernetes.io/hostname": name, **labels} for name, labels in nodes.items()}
    if choose.random() < 0.3:
        nodes["m0"].pop("rack")
    names = [f"g{at}" for at in range(choose.randint(0, 3))]
    pods = [(_app(choose), choose.choice([1000, 1000, 2000])) for _ in range(choose.randint(2, 4))]
    arcs = [
        {"from": {"podSelector": choose.choice([{}, _matching("a"), _matching("b")])}, **_arc(choose, names, nodes)}
        for _ in range(choose.randint(1, 3))
    ]
    led_to = {arc["to"] for arc in arcs}
    aggregators = []
    for place, name in enumerate(names):
        over = choose.choice(_OVER)
        if name not in led_to and "podSelector" not in over:
            over = {"podSelector": _matching(choose.choice("ab"))}
        leaving = [_arc(choose, names[place + 1 :], nodes) for _ in range(choose.randint(1, 2))]
        led_to |= {arc["to"] for arc in leaving}
        aggregators.append({"name": name, "over": over, "arcs": leaving})
    return DrawnCase(
        {"aggregators": aggregators, "arcs": [_of_pods(arc) for arc in arcs]},
        nodes,
        {name: choose.choice([1000, 2000, 3000]) for name in nodes},
        pods,
        [(_app(choose), choose.choice(list(nodes))) for _ in range(choose.randint(1, 3))] if running else [],
    )


def draw_case_with_gains(seed: int) -> DrawnCase:
    """The same, but that a unit of one arc makes two.

    All pods are alike, nodes have room for all of them, and no price rises: gangs choose their nodes one by one.
    """
    choose, case = random.Random(seed), draw_case(seed)
    inner = [arc for each in case.network["aggregators"] for arc in each["arcs"]]
    for arc in inner:
        # Beside an arc with a gain it would take units that the gain makes again.
        arc["to"] = "Nodes" if arc["to"] == "Unscheduled" else arc["to"]
    arcs = [*case.network["arcs"], *inner]
    choose.choice([arc for arc in arcs if arc["to"] != "Unscheduled"] or [{}])["gain"] = 2
    for arc in arcs:
        arc.pop("minimum", None), arc.pop("wholeOrNone", None)
        if isinstance(arc.get("cost"), dict):
            arc["cost"]["weight"] = 100
        elif isinstance(arc.get("cost"), list):
            arc["cost"] = arc["cost"][0]["each"]
    return replace(case, pods=[({"app": "a"}, 500)] * choose.randint(2, 5), room=dict.fromkeys(case.room, 3000))


def draw_case_of_single_pods(seed: int) -> DrawnCase:
    """Three kinds of pods that each have one way to a node; most arcs have a minimum, a maximum or rising costs."""
    choose = random.Random(seed)
    nodes = {f"m{at}": {"rack": choose.choice("rs"), "pool": choose.choice("xy")} for at in range(choose.randint(2, 3))}
    nodes = {name: {"kubernetes.io/hostname": name, **labels} for name, labels in nodes.items()}
    over = {"rack": {"nodeLabel": "rack"}, "x": {"nodeSelector": {"matchLabels": {"pool": "x"}}}, "any": {}}
    ends = {"rack": "Nodes", "x": "Nodes", "any": choose.choice(["rack", "Nodes", "x"])}
    aggregators = [{"name": name, "over": over[name], "arcs": [_limited(choose, end)]} for name, end in ends.items()]
    arcs = [
        {"from": {"podSelector": _matching(app)}, **_limited(choose, end)}
        for app in "abc"
        for end in choose.choice([["rack"], ["x"], ["any"], ["Nodes"], ["m0"], ["m0", "m1"]])
    ]
    if choose.random() < 0.3:
        arcs.append({"from": {"podSelector": _matching("a")}, "to": "Unscheduled", "cost": 50_000})
    led_to = {arc["to"] for arc in arcs}
    led_to |= {ends["any"]} if "any" in led_to else set()
    runs = [({"app": choose.choice("abc")}, choose.choice(list(nodes))) for _ in range(choose.choice([0, 0, 1, 2]))]
    return DrawnCase(
        {"aggregators": [each for each in aggregators if each["name"] in led_to], "arcs": arcs},
        nodes,
        {name: choose.choice([1000, 2000, 3000]) for name in nodes},
        [({"app": choose.choice("abc")}, choose.choice([1000, 1000, 2000])) for _ in range(choose.randint(2, 5))],
        runs,
    )


def _limited(choose: random.Random, end: str) -> dict[str, Any]:
    arc: dict[str, Any] = {"to": end}
    if choose.random() < 0.5:
        arc["minimum"], arc["wholeOrNone"] = choose.randint(1, 3), choose.random() < 0.5
    if choose.random() < 0.4:
        arc["maximum"] = max(arc.get("minimum", 1), choose.randint(1, 4))
    kind = choose.random()
    if kind < 0.3:
        arc["cost"] = choose.choice([0, 10, 90_000, 150_000])
    elif kind < 0.6:
        first, then = choose.choice([0, 5]), choose.choice([10, 60_000, 120_000])
        arc["cost"] = [{"upTo": choose.randint(1, 2), "each": first}, {"each": then}]
    return arc


_OVER: list[dict[str, Any]] = [
    {}, {"nodeLabel": "rack"}, {"nodeLabel": "rack"}, {"nodeSelector": {"matchLabels": {"pool": "x"}}},
    {"podSelector": {"matchLabels": {"app": "a"}}}, {"nodeLabel": "kubernetes.io/hostname"},
]  # fmt: skip


def _app(choose: random.Random) -> dict[str, str]:
    return {"app": choose.choice("ab")}


def _matching(app: str) -> dict[str, Any]:
    return {"matchLabels": {"app": app}}


def _arc(choose: random.Random, names: Sequence[str], nodes: Mapping[str, Labels]) -> dict[str, Any]:
    ends = ["Nodes", "Nodes", *names, *names, *([choose.choice(list(nodes))] if choose.random() < 0.3 else [])]
    arc: dict[str, Any] = {"to": choose.choice([*ends, "Unscheduled"] if choose.random() < 0.2 else ends)}
    kind = choose.random()
    if kind < 0.3:
        arc["cost"] = choose.choice([10_000, 30_000, 60_000])
    elif kind < 0.5:
        first, then = choose.choice([0, 10_000]), choose.choice([10_000, 40_000, 150_000])
        arc["cost"] = [{"upTo": choose.randint(1, 2), "each": first}, {"each": then}]
    elif kind < 0.6 and (arc["to"] == "Nodes" or arc["to"] in nodes):
        arc["cost"] = {"of": "Utilisation", "weight": choose.choice([1, 100])}
    if choose.random() < 0.35:
        arc["maximum"] = choose.randint(1, 3)
    if choose.random() < 0.2:
        arc["minimum"] = min(choose.randint(1, 2), arc.get("maximum", 9))
        arc["wholeOrNone"] = choose.random() < 0.6
    return arc


def _of_pods(arc: dict[str, Any]) -> dict[str, Any]:
    """An arc of pods to Unscheduled has a number as its cost, and no limits."""
    if arc["to"] != "Unscheduled":
        return arc
    cost = arc.get("cost", 0)
    return {"from": arc["from"], "to": arc["to"], "cost": cost if isinstance(cost, int) else 0}


class Flows:
    """All flows of a case."""

    def __init__(self, case: DrawnCase, prices: Sequence[int]) -> None:
        """``prices``: what each pod costs that has no node."""
        self._case, self._prices = case, prices
        self._arcs = {each["name"]: each["arcs"] for each in case.network["aggregators"]}
        self._over = {each["name"]: each["over"] for each in case.network["aggregators"]}
        self._points = {name: self._points_of(over) for name, over in self._over.items()}
        #: Each arc by its instance, and the arcs that have none.
        self._instances: dict[Instance, dict[str, Any]] = {}
        self._nowhere: list[dict[str, Any]] = []
        for number, arc in enumerate(case.network["arcs"]):
            self._note(arc, [self._key("", number, "", head) for head in self._heads(arc, "", "")])
        for name, arcs in self._arcs.items():
            for number, arc in enumerate(arcs):
                self._note(
                    arc,
                    [
                        self._key(name, number, value, head)
                        for value in self._points[name]
                        for head in self._heads(arc, name, value)
                    ],
                )

    def _note(self, arc: dict[str, Any], keys: Sequence[Instance]) -> None:
        self._instances |= dict.fromkeys(keys, arc)
        if not keys:
            self._nowhere.append(arc)

    def _points_of(self, over: dict[str, Any]) -> dict[str, frozenset[str]]:
        """Nodes by the value of a label; "" where the aggregator has none."""
        nodes = self._case.nodes
        if key := over.get("nodeLabel"):
            values = {labels[key] for labels in nodes.values() if key in labels}
            return {value: frozenset(name for name in nodes if nodes[name].get(key) == value) for value in values}
        wanted = over.get("nodeSelector", {}).get("matchLabels", {})
        return {"": frozenset(name for name, labels in nodes.items() if wanted.items() <= labels.items())}

    def _heads(self, arc: dict[str, Any], tail: str, value: str) -> list[tuple[str, str]]:
        """Ends of an arc: a kind and a name, or an aggregator and its value."""
        here = self._points[tail][value] if tail else frozenset(self._case.nodes)
        inside = here if tail and "nodeLabel" in self._over[tail] else frozenset(self._case.nodes)
        if arc["to"] == "Nodes":
            return [("node", name) for name in sorted(here)]
        if arc["to"] == "Unscheduled":
            return [("waits", "")]
        if arc["to"] not in self._points:
            return [("node", arc["to"])] if arc["to"] in inside else []
        labelled = "nodeLabel" in self._over[arc["to"]]
        return [
            (arc["to"], other) for other, nodes in self._points[arc["to"]].items() if not labelled or nodes & inside
        ]

    @staticmethod
    def _key(tail: str, number: int, value: str, head: tuple[str, str]) -> Instance:
        return tail, number, value, " ".join(head)

    def _onward(
        self, head: tuple[str, str], inside: frozenset[str]
    ) -> Iterator[tuple[tuple[Instance, ...], str | None]]:
        """Ways from a head on.

        Args:
            inside: nodes that have the values of all labels of the way.
        """
        if head[0] in ("node", "waits"):
            if head[0] == "waits" or head[1] in inside:
                yield (), head[1] or None
            return
        name, value = head
        inside = inside & self._points[name][value] if "nodeLabel" in self._over[name] else inside
        for number, arc in enumerate(self._arcs[name]) if inside else ():
            for after in self._heads(arc, name, value):
                for rest, end in self._onward(after, inside):
                    yield (self._key(name, number, value, after), *rest), end

    def _ways(self, labels: Labels, *, waits: bool = True) -> list[tuple[tuple[Instance, ...], str | None]]:
        ways, declared = [], not waits
        for number, arc in enumerate(self._case.network["arcs"]):
            if arc["from"]["podSelector"].get("matchLabels", {}).items() <= labels.items():
                declared = declared or arc["to"] == "Unscheduled"
                for head in self._heads(arc, "", ""):
                    onward = self._onward(head, frozenset(self._case.nodes))
                    ways += [((self._key("", number, "", head), *rest), end) for rest, end in onward]
        for name, over in self._over.items():
            if "podSelector" in over and over["podSelector"]["matchLabels"].items() <= labels.items():
                ways += list(self._onward((name, ""), frozenset(self._case.nodes)))
        # A unit that waits is one pod: a gain makes none of it.
        ways = [(arcs, end) for arcs, end in ways if end is not None or not any(map(self._has_gain, arcs))]
        return ways if declared else [*ways, ((), None)]

    def _has_gain(self, key: Instance) -> bool:
        return "gain" in self._instances[key]

    def _running(self) -> dict[Instance, int]:
        """Units of pods that run: on their one way.

        Raises:
            TooMany: one has several ways, or they pass a maximum: which of them count is not said.
        """
        counts: dict[Instance, int] = {}
        for labels, node in self._case.runs:
            ways = [arcs for arcs, end in self._ways(labels, waits=False) if end == node]
            if len(ways) > 1:
                raise TooMany
            for arc in ways[0] if ways else ():
                counts[arc] = counts.get(arc, 0) + 1
        if any(count > self._instances[key].get("maximum", count) for key, count in counts.items()):
            raise TooMany
        return counts

    def least_costs(self) -> dict[tuple[str | None, ...], int]:
        """The least cost of each placement: the node of each pod, None for one that waits.

        Raises:
            TooMany: of flows.
        """
        running, ways = self._running(), [self._ways(labels) for labels, _ in self._case.pods]
        tried = 1
        for some in ways:
            tried *= len(some)
        if tried > MOST_TRIED:
            raise TooMany
        if any(arc.get("minimum") and not arc.get("wholeOrNone") for arc in self._nowhere):
            return {}
        least: dict[tuple[str | None, ...], int] = {}
        for chosen in product(*ways):
            where = tuple(end for _, end in chosen)
            cost = self._cost([arcs for arcs, _ in chosen], where, running)
            if cost is not None:
                least[where] = min(cost, least.get(where, cost))
        return least

    def _cost(
        self, ways: Sequence[tuple[Instance, ...]], where: Sequence[str | None], running: Mapping[Instance, int]
    ) -> int | None:
        """What a flow costs; None: it is none."""
        taken = dict.fromkeys(self._case.nodes, 0)
        for (_, cpu), node in zip(self._case.pods, where, strict=True):
            if node is not None:
                taken[node] += cpu
        if any(taken[node] > self._case.room[node] for node in taken):
            return None
        counts: dict[Instance, Fraction | int] = dict(running)
        for way in ways:
            part = Fraction(1)
            for arc in reversed(way):
                part /= self._instances[arc].get("gain", 1)
                counts[arc] = counts.get(arc, 0) + part
        if any("gain" in self._instances[arc] and count != int(count) for arc, count in counts.items()):
            return None
        cost: Fraction | int = sum(price for price, node in zip(self._prices, where, strict=True) if node is None)
        for key, arc in self._instances.items():
            count, minimum = counts.get(key, 0), arc.get("minimum", 0)
            new = count - running.get(key, 0)
            is_none = arc.get("wholeOrNone") and not new
            if count > arc.get("maximum", count) or (count < minimum and not is_none):
                return None
            cost += self._units(arc, key, count) - self._units(arc, key, count - new)
        return int(cost)

    def _units(self, arc: dict[str, Any], key: Instance, count: Fraction | int) -> Fraction | int:
        cost = arc.get("cost", 0)
        if isinstance(cost, int):
            return cost * count
        if isinstance(cost, dict):
            used: int = 1000 * (4000 - self._case.room[key[3].removeprefix("node ")]) // 4000
            return int(cost["weight"]) * used * count
        (first, then) = cost
        paid: Fraction | int = first["each"] * min(count, first["upTo"]) + then["each"] * max(0, count - first["upTo"])
        return paid
