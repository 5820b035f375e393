"""Which nodes each waiting pod may use, and why not the others: ``thalweg why --nodes``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

import msgspec
from rich.console import Console

from flowcore.cluster.assembly import to_snapshot
from flowcore.model.pods import Pod
from flowcore.planning.round import Eviction, compile_constraints, with_network_rules
from flowcore.questions.scenario import GovernedScenario, Scenario
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.plan_listing import unknown_namespace
from flowcore.questions.scenario.reading.missing_objects import (
    missing_objects,
    pods_with_unknown_claims,
    without_claims,
)
from flowcore.rules.filters import Verdicts, run_filters
from flowcore.rules.reasons import no_domain, summary
from flowcore.rules.reasons.preemption import only_lacks_room, why_nobody_leaves
from flowcore.rules.verdicts import group
from thalweg.plans import evictions
from thalweg.plans.local_plan import plan
from thalweg.sources.source import warn
from thalweg.terminal.consoles import stdout_console
from thalweg.terminal.documents import print_document
from thalweg.terminal.tables import MAX_ROWS, print_table, print_truncated
from thalweg_cost_models import find_models

#: Nodes of one verdict that a row names; ``-o json`` has all.
_MOST_NAMES: Final = 3


@dataclass(frozen=True, slots=True)
class Explanation:
    """A waiting pod with its verdicts. Pods that are equal for the filters share their verdicts.

    Attributes:
        gang_reason: why its gang cannot be placed whatever capacity is free; "" if it can, or without a gang.
        evictions: running pods that would leave for it, if it waited alone.
        nobody_leaves: why none would; "" where some would, where room would not help, and where nobody asked.
        skip_reason: why no plan places it, whatever room there is; "" where one may.
    """

    pod: Pod
    verdicts: Verdicts
    gang_reason: str = ""
    evictions: tuple[Eviction, ...] = ()
    nobody_leaves: str = ""
    skip_reason: str = ""


def explain(dump: Scenario, pods: list[Pod]) -> Iterator[Explanation]:
    """Verdicts for the present state of the dump under its policies; no waiting pod is placed before another.

    Args:
        pods: waiting pods of the dump.
    """
    governed, waiting = GovernedScenario(dump), dump.waiting()
    pending = tuple(map(governed.pending_pod, waiting))
    begun, policies = to_snapshot(dump.cluster, now=0.0, pending=pending), governed.policies
    drawn = with_network_rules(policies, begun, find_models().usable)
    snapshot, _ = compile_constraints(begun, {**policies, **drawn})
    groups = {pod.key: pod_group for pod_group in group(snapshot.pending, snapshot.pod_index) for pod in pod_group.pods}
    planned = governed.round_input(waiting)
    names = {pod.key: pod.gangs for pod in planned.pending}
    reasons_by_gang = {
        gang.name: gang.unschedulable_reason or no_domain(gang, snapshot.table) for gang in planned.gangs
    }
    unknown = pods_with_unknown_claims(dump, pods)
    known: dict[int, Verdicts] = {}
    for pod in pods:
        pod_group = groups[pod.key]
        if id(pod_group) not in known:
            verdicts = run_filters(pod_group.pod_class, snapshot, pod_group.signature)
            known[id(pod_group)] = without_claims(dump, verdicts) if pod.key in unknown else verdicts
        gang_reason = next((reasons_by_gang[name] for name in names.get(pod.key, ()) if reasons_by_gang[name]), "")
        yield Explanation(pod, known[id(pod_group)], gang_reason, skip_reason=pod.skip_reason)


def with_evictions(dump: Scenario, explanations: Iterable[Explanation], now: float) -> Iterator[Explanation]:
    """The same with the running pods that would leave for each pod. Pods of gangs are left out.

    Args:
        now: seconds since the epoch.
    """
    governed = GovernedScenario(dump)
    for explanation in explanations:
        pod, policy = explanation.pod, governed.policy_of(explanation.pod)
        if explanation.verdicts.fits.any() or pod.gang is not None or pod.replaces or explanation.skip_reason:
            yield explanation
            continue
        result = plan(dump, now, only=(pod.key,)).result
        leaving = tuple(each for each in result.evictions if pod.key in each.for_pods)
        waits = next((each.pod for each in result.unplaced), None)
        reason = ""
        if waits is not None and not leaving and only_lacks_room(waits.pod_class, explanation.verdicts, result.after):
            reason = why_nobody_leaves(waits, policy, governed.running_pods(now, ()), now, result.after)
        yield replace(explanation, evictions=leaving, nobody_leaves=reason)


def as_json(explanations: Iterable[Explanation]) -> list[dict[str, Any]]:
    """The output of ``-o json``: pod, verdicts by node, and what else is known of it."""
    nodes: dict[int, msgspec.Raw] = {}
    entries = []
    for explanation in explanations:
        verdicts_id = id(explanation.verdicts)  # unique while the generator runs
        if verdicts_id not in nodes:
            nodes[verdicts_id] = msgspec.Raw(msgspec.json.encode(_by_node(explanation.verdicts)))
        more = {
            "gang": explanation.gang_reason,
            "evictions": evictions.as_planned(explanation.evictions),
            "nobodyLeaves": explanation.nobody_leaves,
            "blocked": explanation.skip_reason,
        }
        known = {name: value for name, value in more.items() if value}
        entries.append({"pod": explanation.pod.key, "nodes": nodes[verdicts_id], **known})
    return entries


def _by_node(verdicts: Verdicts) -> dict[str, dict[str, Any]]:
    by_node = {}
    for row, node in enumerate(verdicts.table.nodes):
        filter_name, reason = verdicts.of_node(row)
        by_node[node.name] = {"fits": bool(verdicts.fits[row]), "filter": filter_name, "reason": reason}
    return by_node


def explain_one(dump: Scenario, key: str, now: float) -> Explanation:
    """A waiting pod with its verdicts, and who would leave for it.

    Args:
        key: of a waiting pod.
        now: seconds since the epoch.
    """
    pod = next(each for each in dump.waiting() if each.key == key)
    warn(missing_objects(dump, [pod]))
    (explanation,) = with_evictions(dump, explain(dump, [pod]), now)
    return explanation


def print_all(dump: Scenario, namespace: str, output: str) -> None:
    """Prints a line for each waiting pod; as JSON the verdicts of all nodes.

    Args:
        namespace: of the pods; "": all.
    """
    asker = AnswerContext(dump.moment).only(namespace)
    pods = [pod for pod in dump.waiting() if asker.may_name(pod.key)]
    warn([*dump.warnings, *unknown_namespace(dump, namespace, asker), *missing_objects(dump, pods)])
    explanations = explain(dump, pods)
    if output != "table":
        print_document(as_json(explanations), output)
        return
    console = stdout_console()
    if not pods:
        console.print(f"no pod{f' of namespace {namespace}' if namespace else ''} waits")
        return
    rows = ((each.pod.key, _sentence(each)) for each in islice(explanations, MAX_ROWS))
    print_table(console, ("POD", "VERDICT"), rows)
    print_truncated(console, len(pods))


def print_nodes(console: Console, explanation: Explanation) -> None:
    """Prints the nodes of a pod by verdict, and who would leave for it."""
    console.print(f"\nBefore other pods are planned: {_sentence(explanation)}", markup=False)
    rows = _node_rows(explanation.verdicts)
    if rows:
        print_table(console, ("NODES", "FITS", "FILTER", "REASON"), rows[:MAX_ROWS])
    print_truncated(console, len(rows))
    if explanation.nobody_leaves:
        console.print(
            f"if it waited alone, no running pod would leave for it: {explanation.nobody_leaves}", markup=False
        )
    evictions.print_evictions(console, "WOULD LEAVE IF IT WAITED ALONE", explanation.evictions)


def _node_rows(verdicts: Verdicts) -> list[tuple[str, ...]]:
    """A row for all nodes with the same verdict, in the order of their first nodes."""
    nodes: dict[tuple[str, str], list[str]] = {}
    for row, node in enumerate(verdicts.table.nodes):
        nodes.setdefault(verdicts.of_node(row), []).append(node.name)
    return [
        (_some(names), "no" if filter_name else "yes", filter_name, reason)
        for (filter_name, reason), names in nodes.items()
    ]


def _some(names: list[str]) -> str:
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES} more"


def _sentence(explanation: Explanation) -> str:
    text, skip_reason = summary(explanation.verdicts), explanation.skip_reason
    if explanation.gang_reason:
        text += f" {explanation.gang_reason[:1].upper()}{explanation.gang_reason[1:]}."
    return f"{text} Thalweg does not plan this pod: {skip_reason}." if skip_reason else text
