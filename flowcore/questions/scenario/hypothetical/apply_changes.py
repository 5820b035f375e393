"""Makes hypothetical changes of a scenario, and takes them back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.hypothetical import (
    change_claims,
    change_nodes,
    change_objects,
    change_pods,
    change_rules,
)
from flowcore.questions.scenario.hypothetical.changes import (
    AddNodes,
    Change,
    Cordon,
    CountDevices,
    Drain,
    DropDeviceConstraint,
    DropNodeSelector,
    DropPodRules,
    EvictPods,
    FailDomain,
    HonorTaints,
    MovePod,
    PutObjects,
    PutPolicy,
    RaiseCap,
    RaiseQueueLimit,
    RemoveNode,
    RemoveTaint,
    ReplaceDeviceSelector,
    ReplaceNodeLabel,
    Request,
    SetPriority,
    Tolerate,
    Uncordon,
)
from flowcore.questions.scenario.reading.edits import Edits
from flowcore.questions.scenario.scenario import Scenario


@contextmanager
def applied(scenario: Scenario, changes: Iterable[Change], context: AnswerContext) -> Iterator[list[str]]:
    """The scenario with these changes, one after the other, until the end of the ``with`` block.

    Snapshots and plans that were made of the scenario before share parts with it: read them before.

    Yields:
        sentences about what the changes would meet in a real cluster.

    Raises:
        UnknownName: a change names an object that is not there, or that the asker may not see.
        ModelError: an object to be put cannot be read.
    """
    edits, notes = Edits(scenario), []
    try:
        for change in changes:
            notes += _apply(edits, change, context)
        yield notes
    finally:
        edits.undo()


def _apply(edits: Edits, change: Change, context: AnswerContext) -> list[str]:
    match change:
        case Cordon(node):
            change_nodes.cordon(edits, node, unschedulable=True)
        case Uncordon(node):
            change_nodes.cordon(edits, node, unschedulable=False)
        case Drain(node):
            return change_nodes.drain(edits, node, context)
        case RemoveNode(node):
            change_nodes.remove(edits, [node], context)
        case FailDomain():
            change_nodes.remove(edits, change_nodes.nodes_of_domain(edits, change), context)
        case AddNodes():
            change_nodes.add(edits, change)
        case RemoveTaint():
            change_nodes.remove_taint(edits, change)
        case EvictPods(keys):
            pods = change_pods.running(edits, keys, context)
            notes = change_nodes.hindrances(edits, pods, context)
            change_pods.evict(edits, pods, context.now)
            return notes
        case MovePod():
            change_pods.move(edits, change, context)
        case (
            SetPriority()
            | Tolerate()
            | DropNodeSelector()
            | ReplaceNodeLabel()
            | Request()
            | DropPodRules()
            | HonorTaints()
        ):
            change_pods.change_spec(edits, change, context)
        case ReplaceDeviceSelector() | DropDeviceConstraint() | CountDevices():
            change_claims.change(edits, change, context)
        case RaiseCap():
            change_rules.raise_cap(edits, change)
        case RaiseQueueLimit():
            change_rules.raise_queue_limit(edits, change)
        case PutPolicy(policy):
            return change_objects.put(edits, [policy], context)
        case PutObjects(objects):
            return change_objects.put(edits, objects, context)
    return []
