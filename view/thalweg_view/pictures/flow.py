"""The plan as a flow: what waits goes to groups of nodes and to their nodes, or is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from flowcore.model.errors import ModelError
from flowcore.planning.plan_document import PlanDocument, PlanPod
from flowcore.questions.scenario.context import AnswerContext
from flowcore.rules.reasons.short_words import short_words, without_amounts
from thalweg_view.pictures.names import class_name
from thalweg_view.pictures.node_list import domain_of, label_of, nodes_of
from thalweg_view.pictures.reasons import Reasons
from thalweg_view.pictures.shapes import Picture, RoundQuery
from thalweg_view.pictures.waiting import workload_name
from thalweg_view.view_data import ViewData

#: What a picture shows by itself at most; the rest is summed up as others.
MAX_SOURCES: Final = 40
MAX_GROUPS: Final = 40
MAX_NODES: Final = 160
OTHERS: Final = "others"
_HIDDEN: Final = "namespaces that you may not read"


class FlowQuery(RoundQuery, frozen=True, forbid_unknown_fields=True):
    """How the flow is grouped.

    Attributes:
        by: label by which nodes are grouped: "zone", "rack" or a key.
        of: what is on the left: "workload" (a gang, a controller, a pod by itself), "class" (pods that ask for the
            same), "policy", "queue", "priority" or "namespace".
    """

    by: str = "zone"
    of: str = "workload"


class FlowSource(msgspec.Struct, frozen=True):
    """Planned pods that are one block on the left, by ``FlowQuery.of``.

    Attributes:
        id: of the block, as links name it.
        pods: how many pods the block has.
        policy: name of the policy that governs all these pods; "": there are several.
        summed: how many workloads (or classes, policies, queues, ...) the block stands for.
    """

    id: str
    name: str
    pods: int
    policy: str
    summed: int = 1


class FlowGroup(msgspec.Struct, frozen=True):
    """Nodes with the same value of the label.

    Attributes:
        id: of the block, as links name it.
        name: the value; "": nodes without the label.
        nodes: how many there are.
        pods: how many pods go there.
        summed: how many groups it stands for.
    """

    id: str
    name: str
    nodes: int
    pods: int
    summed: int = 1


class FlowNode(msgspec.Struct, frozen=True):
    """A node that pods go to.

    Attributes:
        id: of the block, as links name it.
        group: id of its group.
        pods: how many pods go there.
        summed: how many nodes it stands for.
    """

    id: str
    group: str
    name: str
    pods: int
    summed: int = 1


class FlowLink(msgspec.Struct, frozen=True):
    """Pods from a source to a group, or from a group to a node.

    Attributes:
        source: id of the source or group.
        target: id of the group or node.
        pods: number of placements.
        price: sum of the prices of these placements.
    """

    source: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")
    pods: int
    price: int


class FlowLeft(msgspec.Struct, frozen=True):
    """Pods of a source that stay pending.

    Attributes:
        source: id of the source.
        code: code of the reason.
        short: what they wait for, in a few words.
        reason: the sentence of one of them that may be seen; "": none may.
        pods: how many wait for that.
    """

    source: str = msgspec.field(name="from")
    code: str
    short: str
    reason: str
    pods: int


class FlowAnswer(Picture, frozen=True, rename="camel"):
    """A plan as a flow.

    Each pod of a source is in one link to a group, or it is left. A group has as many pods in its links to nodes as in
    the links that lead to it.

    Attributes:
        label: key of the label that groups the nodes; "": no node has one.
        pods, placed, unplaced: numbers of pods.
        cost: sum of all prices of placements.
        sources: the pods, as blocks on the left side.
        groups: groups of nodes, in the middle.
        nodes: the right side.
        links: from sources to groups, and from groups to nodes.
        left: pods that stay pending.
    """

    label: str
    pods: int
    placed: int
    unplaced: int
    cost: int
    sources: list[FlowSource]
    groups: list[FlowGroup]
    nodes: list[FlowNode]
    links: list[FlowLink]
    left: list[FlowLeft]


@dataclass(slots=True)
class _Sum:
    """Placements that are drawn as one."""

    pods: int = 0
    price: int = 0

    def add(self, price: int) -> None:
        self.pods += 1
        self.price += price


@dataclass(slots=True)
class _Ids:
    """The ids of blocks by name: the largest have one each, all others share one."""

    letter: str
    shown: dict[str, str] = field(default_factory=dict)
    summed: int = 0

    @classmethod
    def of(cls, letter: str, counts: Mapping[str, int], most: int) -> _Ids:
        """Ids of the ``most`` largest blocks; of all blocks, if there is at most one more."""
        ordered = sorted(counts, key=lambda name: (-counts[name], name))
        kept = ordered if len(ordered) <= most else ordered[: most - 1]
        return cls(letter, {name: f"{letter}{number}" for number, name in enumerate(kept)}, len(ordered) - len(kept))

    @property
    def others(self) -> str:
        return f"{self.letter}-{OTHERS}"

    def __getitem__(self, name: str) -> str:
        return self.shown.get(name) or self.others


def answer_flow(data: ViewData, query: FlowQuery, context: AnswerContext) -> FlowAnswer:
    """The flow of a round; without a round it is empty.

    Raises:
        ModelError: ``by`` or ``of`` is unknown.
        UnknownName: the round is not kept.
    """
    plan = data.rounds.find(query.round)
    nodes = nodes_of(data, plan)
    label = label_of(query.by, nodes) if nodes else ""
    domains = {node.name: domain_of(node, label) for node in nodes}
    if plan is None:
        plan = PlanDocument(0, 0.0, 0.0, 0, 0, "", 0)
    names = _source_names(data, plan, query.of, context)
    sources = _Ids.of("c", Counter(names), MAX_SOURCES)
    pods_by_node = Counter(each.node for each in plan.placements)
    pods_by_group: Counter[str] = Counter()
    for node, pods in pods_by_node.items():
        pods_by_group[domains.get(node, "")] += pods
    groups = _Ids.of("g", pods_by_group, MAX_GROUPS)
    targets = _Ids.of("n", pods_by_node, MAX_NODES)
    sums: dict[tuple[str, str], _Sum] = {}
    for placement in plan.placements:
        group = groups[domains.get(placement.node, "")]
        for link in ((sources[names[placement.pod]], group), (group, _target(targets, placement.node, group))):
            sums.setdefault(link, _Sum()).add(placement.price)
    return FlowAnswer(
        data.generation,
        plan.number,
        label,
        len(plan.pending),
        len(plan.placements),
        len(plan.unplaced),
        sum(each.price for each in plan.placements),
        _sources(plan, names, sources, query.of),
        _groups(domains, pods_by_group, groups),
        _nodes(domains, pods_by_node, groups, targets),
        [FlowLink(start, end, total.pods, total.price) for (start, end), total in sums.items()],
        _left(data, plan, names, sources, context),
    )


def _target(targets: _Ids, node: str, group: str) -> str:
    return targets.shown.get(node) or f"{targets.others}-{group}"


def _source_names(data: ViewData, plan: PlanDocument, of: str, context: AnswerContext) -> list[str]:
    """What each pending pod counts as on the left."""
    match of:
        case "workload":
            return [
                workload_name(data, pod.key, pod.gangs) if context.may_name(pod.key) else _HIDDEN
                for pod in plan.pending
            ]
        case "class":
            names = [class_name(each.requests) for each in plan.classes]
            by_class = [
                f"{name}, priority {pod_class.priority}" if pod_class.priority else name
                for name, pod_class in zip(names, plan.classes, strict=True)
            ]
            return [by_class[pod.pod_class] for pod in plan.pending]
        case "policy":
            return [plan.policies[pod.policy].name for pod in plan.pending]
        case "queue":
            return [pod.queue or "no queue" for pod in plan.pending]
        case "priority":
            return [str(plan.classes[pod.pod_class].priority) for pod in plan.pending]
        case "namespace":
            return [_namespace(pod, context) for pod in plan.pending]
    raise ModelError("of", f'"{of}" is unknown; known are: workload, class, policy, queue, priority, namespace')


def _namespace(pod: PlanPod, context: AnswerContext) -> str:
    return pod.key.partition("/")[0] if context.may_name(pod.key) else _HIDDEN


def _sources(plan: PlanDocument, names: list[str], sources: _Ids, of: str) -> list[FlowSource]:
    pods: Counter[str] = Counter()
    policies: dict[str, set[int]] = {}
    for name, pod in zip(names, plan.pending, strict=True):
        source = sources[name]
        pods[source] += 1
        policies.setdefault(source, set()).add(pod.policy)
    shown = {identifier: name for name, identifier in sources.shown.items()}

    def policy(source: str) -> str:
        return plan.policies[next(iter(policies[source]))].name if len(policies[source]) == 1 else ""

    rows = [FlowSource(source, shown[source], pods[source], policy(source)) for source in shown]
    if sources.summed:
        rest = f"{OTHERS} ({sources.summed} {'classes' if of == 'class' else 'more'})"
        rows.append(FlowSource(sources.others, rest, pods[sources.others], policy(sources.others), sources.summed))
    return rows


def _groups(domains: dict[str, str], pods: Counter[str], groups: _Ids) -> list[FlowGroup]:
    nodes: Counter[str] = Counter()
    pods_by_id: Counter[str] = Counter()
    for domain, count in Counter(domains.values()).items():
        if domain in pods:
            nodes[groups[domain]] += count
    for domain, count in pods.items():
        pods_by_id[groups[domain]] += count
    rows = [FlowGroup(group, name, nodes[group], pods_by_id[group]) for name, group in groups.shown.items()]
    if groups.summed:
        name = f"{OTHERS} ({groups.summed})"
        rows.append(FlowGroup(groups.others, name, nodes[groups.others], pods_by_id[groups.others], groups.summed))
    return rows


def _nodes(domains: dict[str, str], pods: Counter[str], groups: _Ids, targets: _Ids) -> list[FlowNode]:
    rows = [FlowNode(target, groups[domains.get(name, "")], name, pods[name]) for name, target in targets.shown.items()]
    rest: dict[str, list[int]] = {}
    for name, count in pods.items():
        if name not in targets.shown:
            rest.setdefault(groups[domains.get(name, "")], []).append(count)
    rows.extend(
        FlowNode(f"{targets.others}-{group}", group, f"{len(counts)} {OTHERS}", sum(counts), len(counts))
        for group, counts in rest.items()
    )
    return rows


def _left(
    data: ViewData, plan: PlanDocument, names: list[str], sources: _Ids, context: AnswerContext
) -> list[FlowLeft]:
    counts: Counter[tuple[str, str, str]] = Counter()
    told: dict[tuple[str, str, str], str] = {}
    reasons = Reasons(data, plan, context)
    for place, reason in plan.unplaced:
        code, pod = plan.codes[reason], plan.pending[place].key
        short = without_amounts(short_words(code, plan.reasons[reason], plan.lacks.get(pod, "")))
        key = sources[names[place]], code, short
        counts[key] += 1
        if key not in told and context.may_name(pod):
            told[key] = reasons.text(plan.reasons[reason])
    return [
        FlowLeft(source, code, short, told.get((source, code, short), ""), pods)
        for (source, code, short), pods in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    ]
