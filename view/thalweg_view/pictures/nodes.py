"""The nodes as columns: the map of use."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from flowcore.model.resources import PODS
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.device_use import devices_of
from thalweg_view.pictures.names import unit_of
from thalweg_view.pictures.node_devices import node_devices
from thalweg_view.pictures.node_list import domain_of, grouping_labels, is_not_ready, label_of, nodes_of, planned_usage
from thalweg_view.pictures.shapes import Picture, RoundQuery
from thalweg_view.view_data import ViewData


class NodesQuery(RoundQuery, frozen=True, forbid_unknown_fields=True):
    """Which nodes.

    Attributes:
        by: a label whose values are in the column ``domain``: "zone", "rack" or a key; "": none.
    """

    by: str = ""


class ResourceColumns(msgspec.Struct, frozen=True):
    """One resource, an entry for each node.

    Attributes:
        unit: "milli-cores", "bytes", "bits per second", or "" for pods and devices.
        allocatable: what the node offers.
        used: what its pods request.
        planned: what the round's placements add to ``used``.
    """

    unit: str
    allocatable: list[int]
    used: list[int]
    planned: list[int]


class NodesAnswer(Picture, frozen=True, rename="camel"):
    """All nodes, a list for each property; entries at one position belong to one node.

    Attributes:
        names: of the nodes.
        zone, rack: values of the labels; "": the node has none.
        domain: value of the label ``by``.
        unschedulable: whether the node is cordoned.
        not_ready: whether the node controller says that it is not ready, or does not answer.
        taints: taints of each node that keep pods away, as kubectl writes them.
        labels: keys of labels that group the nodes, for ``by``.
        pods: numbers of pods that run there.
        resources: by name, those that any node offers. ``DRIVER devices`` are those in ResourceSlices of a driver that
            the node alone reaches, those of all but 16 drivers together; used are those that claims have.
        unsearched: pods with claims that the round places, beyond the first 2,000: their devices are not in
            ``resources``.
    """

    names: list[str]
    zone: list[str]
    rack: list[str]
    domain: list[str]
    unschedulable: list[bool]
    not_ready: list[bool]
    taints: list[tuple[str, ...]]
    pods: list[int]
    labels: list[str]
    resources: dict[str, ResourceColumns]
    unsearched: int = 0


def answer_nodes(data: ViewData, query: NodesQuery, _context: AnswerContext) -> NodesAnswer:
    """The map of use.

    Raises:
        ModelError: no node has the label ``by``, or the round is not kept.
    """
    plan = data.rounds.find(query.round)
    nodes = nodes_of(data, plan)
    zone, rack = label_of("zone", nodes), label_of("rack", nodes)
    by = label_of(query.by, nodes) if query.by and nodes else ""
    planned = planned_usage(data, plan)
    allocatable = [dict(node.allocatable) for node in nodes]
    used = [{**dict(node.used), PODS: node.pods} for node in nodes]
    added: list[Mapping[str, int]] = [planned.get(node.name, {}) for node in nodes]
    resources = {
        name: ResourceColumns(
            unit_of(name),
            [each.get(name, 0) for each in allocatable],
            [each.get(name, 0) for each in used],
            [each.get(name, 0) for each in added],
        )
        for name in sorted({name for each in allocatable for name in each})
    }
    devices = node_devices(data, plan)
    for driver, (before, after) in devices.by_driver.items():
        resources[devices_of(driver)] = ResourceColumns(
            "",
            [before.published[node.name] for node in nodes],
            [before.taken[node.name] for node in nodes],
            [after.taken[node.name] - before.taken[node.name] for node in nodes],
        )
    return NodesAnswer(
        data.generation,
        0 if plan is None else plan.number,
        [node.name for node in nodes],
        [domain_of(node, zone) for node in nodes],
        [domain_of(node, rack) for node in nodes],
        [domain_of(node, by) for node in nodes],
        [node.unschedulable for node in nodes],
        [is_not_ready(node) for node in nodes],
        [node.taints for node in nodes],
        [node.pods for node in nodes],
        grouping_labels(nodes),
        resources,
        devices.unsearched,
    )
