"""A network that a policy draws: aggregators, and arcs with a cost, a minimum, a maximum and a gain.

Each pod sends one unit of flow. A unit that arrives at a node places a pod there. Source: the figures of
pod-affinity-and-gangs.md, and Firmament's policy API.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from fractions import Fraction
from typing import Annotated

import msgspec

from flowcore.model.selectors import Labels, LabelSelector, NodeSelectorTerm, value_of

#: Ends of arcs that are no aggregators: all nodes, and the end of flow that places no pod.
NODES, UNSCHEDULED = "Nodes", "Unscheduled"
#: Labels that pods of a network have in a round, and only there: their class of ways, and the pods that they are a twin
#: of. No label of Kubernetes has such a key.
WAY, TWINS = "(way)", "(twins)"
#: More units on one arc are a mistake, and no unit costs more on one arc; sums stay far from overflow.
UnitCount = Annotated[int, msgspec.Meta(ge=0, le=10**6)]
SomeUnits = Annotated[int, msgspec.Meta(ge=1, le=10**6)]
UnitCost = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Weight = Annotated[int, msgspec.Meta(ge=0, le=1000)]
#: Nodes by name and how many pods a rule counts there that no selector of it matches.
PodsBeside = tuple[tuple[str, int], ...]


class CostPart(StrEnum):
    """What a unit on an arc to nodes costs beside its number: a part of what nodes cost pods."""

    #: Which share of the node is taken, of cpu and memory the larger one: 1000 for a full node.
    UTILISATION = "Utilisation"
    #: Preferred node affinity of the pod.
    PREFERENCES = "Preferences"
    #: PreferNoSchedule taints that the pod does not tolerate.
    TAINTS = "Taints"
    #: All that the policy's cost model and weights say.
    MODEL = "Model"


class Segment(msgspec.Struct, frozen=True):
    """UnitCount that cost the same.

    Attributes:
        cost: what one costs.
        up_to: how many units enter the arc before a further one costs more; None: any number.
    """

    cost: UnitCost
    up_to: SomeUnits | None = None


class ArcCost(msgspec.Struct, frozen=True):
    """What units cost that enter an arc: the first ones the least.

    Attributes:
        segments: rising; the last one has no end.
        part: is added for each unit, ``weight`` times; None: nothing is.
    """

    segments: tuple[Segment, ...] = (Segment(0),)
    part: CostPart | None = None
    weight: Weight = 1


class PodEnd(msgspec.Struct, frozen=True):
    """Pods as the start of arcs: those that wait and that the policy governs, or those that have a node.

    Attributes:
        runs: they have a node, whoever governs them; their units go to it, before those of any waiting pod.
    """

    selector: LabelSelector
    runs: bool = False

    @property
    def text(self) -> str:
        """For people."""
        return f"{'running ' if self.runs else ''}pods{f' {self.selector.text}' if self.selector.text else ''}"


class NetworkArc(msgspec.Struct, frozen=True):
    """An arc, or one to each of several ends.

    Attributes:
        head: NODES, UNSCHEDULED, an aggregator, or a node, by name.
        minimum, maximum: units that enter it at least and at most; None: any number.
        gain: units that leave it for each that enters, as numerator and denominator in lowest terms.
        whole_or_none: no unit is enough too, in place of the minimum.
    """

    head: str
    cost: ArcCost = ArcCost()
    minimum: UnitCount = 0
    maximum: UnitCount | None = None
    gain: tuple[int, int] = (1, 1)
    whole_or_none: bool = False

    @property
    def factor(self) -> Fraction:
        """The gain."""
        return Fraction(*self.gain)


class Over(msgspec.Struct, frozen=True):
    """What an aggregator stands for. One of these is given, or none: then it is one point that arcs lead to and from.

    Attributes:
        node_label: there is one for each value that nodes have; units that pass it go to nodes with that value.
        nodes: there is one; its arcs to NODES lead to the nodes that match.
        pods: there is one; pods of the policy that match have an arc to it, which costs nothing.
    """

    node_label: str = ""
    nodes: LabelSelector | None = None
    pods: LabelSelector | None = None


class Aggregator(msgspec.Struct, frozen=True):
    """A point of the network, or one for each value of a label, and the arcs that leave it."""

    name: str
    over: Over = Over()
    arcs: tuple[NetworkArc, ...] = ()


class PodArc(msgspec.Struct, frozen=True):
    """An arc that leaves pods."""

    tail: PodEnd
    arc: NetworkArc


class NetworkSpec(msgspec.Struct, frozen=True):
    """All that is drawn.

    Attributes:
        refused: why a cost model drew nothing that can be planned, a clause: all pods wait. "": it did.
    """

    aggregators: tuple[Aggregator, ...] = ()
    arcs: tuple[PodArc, ...] = ()
    refused: str = ""

    @property
    def pod_labels(self) -> frozenset[str]:
        """The labels of waiting pods that it reads."""
        return frozenset(requirement.key for selector in self._selectors() for requirement in selector.requirements)

    def _selectors(self) -> Iterator[LabelSelector]:
        yield from (each.tail.selector for each in self.arcs if not each.tail.runs)
        yield from (each.over.pods for each in self.aggregators if each.over.pods is not None)


class LimitedArc(msgspec.Struct, frozen=True):
    """An arc whose units are limited, or cost more and more, as a rule of the pods that pass it.

    Attributes:
        name: for people.
        topology_key: in whose domains units are counted; "": all together; or each node by itself (``EACH_NODE``).
        nodes: that ways through it lead to; (): all.
        selectors: pods whose units pass it, those that run too.
        maximum: of units; None: any number.
        segments: of its cost; the first one alone is a part of what ways cost.
        minimum: of units, in each domain; in place of it none where ``whole_or_none``.
        closed: nodes in whose domains it takes none in this round.
        beside: pods that run and have a choice of ways: of them so many pass it to each node.
    """

    name: str
    topology_key: str
    nodes: tuple[NodeSelectorTerm, ...]
    selectors: tuple[LabelSelector, ...]
    maximum: int | None
    segments: tuple[Segment, ...]
    minimum: int = 0
    whole_or_none: bool = False
    closed: tuple[NodeSelectorTerm, ...] = ()
    beside: PodsBeside = ()


class PassedArc(msgspec.Struct, frozen=True):
    """An arc on a way.

    Attributes:
        name: where it is declared.
        tail: the aggregator that it leaves; "": pods.
        tail_label, head_label: labels that its ends are over; "": none.
    """

    name: str
    tail: str
    tail_label: str
    arc: NetworkArc
    head_label: str


class NetworkUnit(msgspec.Struct, frozen=True):
    """Pods that are one unit on some arcs: placed all at once, or none of them.

    Attributes:
        size: how many.
        topology_key: in one domain of which they are; "": on any nodes.
        arcs: names of the arcs that they pass as one, from their pods to an arc with a gain.
    """

    size: int = 1
    topology_key: str = ""
    arcs: tuple[str, ...] = ()


ONE_POD = NetworkUnit()


class NetworkWay(msgspec.Struct, frozen=True):
    """A way from pods to nodes.

    Attributes:
        nodes: where it leads; None: to all.
        cost, part, weight: what all its arcs cost together that cost always the same.
        arcs: its limited ones, by number.
        path: all its arcs, in their order.
        ends_nowhere: why it leads to no node of the round, a clause; "": it leads to some.
        sizes: for each of these, how many pods one of its units is.
        beside: arcs to UNSCHEDULED that units pass beside it, each with how many pods one of its units is.
        unit: the pods that are one unit on its arcs up to the one with a gain.
    """

    nodes: NodeSelectorTerm | None
    cost: int
    part: CostPart | None
    weight: int
    arcs: frozenset[int]
    path: tuple[PassedArc, ...]
    sizes: tuple[Fraction, ...] = ()
    beside: tuple[tuple[PassedArc, Fraction], ...] = ()
    ends_nowhere: str = ""
    unit: NetworkUnit = ONE_POD


class NetworkRules(msgspec.Struct, frozen=True):
    """A network as rules of single pods: which nodes, at what price, and how many of them. Nodes of a round decide it.

    Where two ways of a pod to a node pass different limits, it depends on others which one the pod takes. Then each pod
    is of a class of ways (label WAY), of which at most one leads to a node.

    Attributes:
        name: for people.
        namespaces: whose pods count.
        ways: by the pods that they begin at.
        arcs: that ways pass.
        waiting: what waiting costs pods beside their prices.
        dearest: what any way costs at most.
        units: pods that go to nodes as units of several only.
        has_choice: whether some pod, one that runs too, has ways to one node which pass different limits.
        classes: where one has, the ways of each class of waiting pods by its value of WAY.
        choices: the classes of pods by which of ``ways`` begin at them, the cheapest first.
        refused: why no plan can keep to it, a clause: all pods wait. "": some may.
    """

    name: str
    namespaces: LabelSelector | None = None
    ways: tuple[tuple[LabelSelector, tuple[NetworkWay, ...]], ...] = ()
    arcs: tuple[LimitedArc, ...] = ()
    waiting: tuple[tuple[LabelSelector, int], ...] = ()
    dearest: int = 0
    units: tuple[tuple[LabelSelector, NetworkUnit], ...] = ()
    has_choice: bool = False
    classes: tuple[tuple[str, tuple[NetworkWay, ...]], ...] = ()
    choices: tuple[tuple[frozenset[int], tuple[str, ...]], ...] = ()
    refused: str = ""

    @property
    def has_minimums(self) -> bool:
        """Whether some arc must have units, or none."""
        return any(arc.minimum for arc in self.arcs)

    @property
    def may_move(self) -> bool:
        """Whether a pod may go elsewhere and the network has all that it must, as far as single pods tell."""
        return not (self.has_minimums or self.has_choice or self.refused)

    def ways_of(self, labels: Labels) -> tuple[NetworkWay, ...]:
        """The ways of pods with these labels: those of their class, or of all."""
        if value := value_of(labels, WAY):
            return dict(self.classes)[value]
        return tuple(way for selector, ways in self.ways if selector.matches(labels) for way in ways)

    def classes_of(self, labels: Labels) -> tuple[str, ...]:
        """The classes that pods with these labels may be of."""
        begun = frozenset(number for number, (selector, _) in enumerate(self.ways) if selector.matches(labels))
        return dict(self.choices).get(begun, ())
