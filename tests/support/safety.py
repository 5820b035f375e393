"""What must hold of every plan, whatever the cluster: safety, liveness, and an honest account.

Each check reads the snapshot and the plan only, and counts for itself in Python's own integers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from support.model import ports_clash

from flowcore.cluster.arrays.snapshot import NodeTable, Snapshot
from flowcore.cluster.assembly import build_snapshot
from flowcore.model.constraints import Conflict, Exclusive, Global
from flowcore.model.inter_pod_constraints import HOSTNAME
from flowcore.model.pod_index import PodIndex
from flowcore.model.pods import HostPort
from flowcore.model.policies import Policy
from flowcore.model.resources import PODS
from flowcore.model.selectors import LabelSelector, domain_value
from flowcore.planning.problem.passes.constraint_gangs import with_constraint_gangs
from flowcore.planning.round import RoundResult, run_round
from flowcore.planning.round.round import DEFAULT_POLICIES
from flowcore.rules.filters import run_filters


def check_plan(snapshot: Snapshot, result: RoundResult, policies: Mapping[str, Policy] = DEFAULT_POLICIES) -> None:
    """All that holds of any plan, of a round or of one-by-one scheduling."""
    check_complete(snapshot, result)
    check_capacity(snapshot, result)
    check_host_ports(snapshot, result)
    check_filters(snapshot, result)
    check_constraints(snapshot, result, policies)
    snapshot = with_constraint_gangs(snapshot, policies)
    check_gangs(snapshot, result)
    check_maximal(snapshot, result)
    check_costs(result)


def plan_and_check(snapshot: Snapshot, policies: Mapping[str, Policy] = DEFAULT_POLICIES) -> RoundResult:
    """A round's plan with all checks done, that of being the same each time among them."""
    result = run_round(snapshot, policies)
    check_plan(snapshot, result, policies)
    again = run_round(snapshot, policies)
    same = (again.placements, again.unplaced, again.cost) == (result.placements, result.unplaced, result.cost)
    assert same, "another plan for the same snapshot"
    return result


def check_complete(snapshot: Snapshot, result: RoundResult) -> None:
    """Every pending pod is placed or left, exactly once, and nothing else is."""
    planned = Counter(entry.pod.key for entry in (*result.placements, *result.unplaced))
    pending = Counter(pod.key for pod in snapshot.pending)
    assert planned == pending, f"not each pending pod once: {(planned - pending) + (pending - planned)}"
    assert result.generation == snapshot.generation, "a plan for another generation"


def check_capacity(snapshot: Snapshot, result: RoundResult) -> None:
    """No node gives more than it has of any resource that a pod placed there asks for."""
    names, table = snapshot.resources, snapshot.table
    taken: dict[tuple[str, str], int] = {}
    for placement in result.placements:
        for name, amount in (*placement.pod.pod_class.requests, (PODS, 1)):
            taken[placement.node, name] = taken.get((placement.node, name), 0) + amount
    for (node, name), amount in taken.items():
        at, column = table.index[node], names.index(name)
        free = int(snapshot.allocatable[at, column]) - int(snapshot.used[at, column])
        assert amount <= free, f"{node} gives {amount} of {name} and has {free}"
    for at, node in enumerate(table.nodes):
        for column, name in enumerate(names):
            expected = int(snapshot.used[at, column]) + taken.get((node.name, name), 0)
            assert int(result.after.used[at, column]) == expected, f"{name} of {node.name} is miscounted afterwards"


def check_filters(snapshot: Snapshot, result: RoundResult) -> None:
    """Each pod may go where it goes, by every filter, as things stand when those before it in the plan run."""
    now = replace(snapshot, used=snapshot.used.copy(), ports=dict(snapshot.ports), pod_index=recount_pods(snapshot))
    for placement in result.placements:
        verdicts = run_filters(placement.pod.pod_class, now, placement.pod.signature)
        at = snapshot.table.index[placement.node]
        assert verdicts.fits[at], f"{placement.pod.key} on {placement.node}: {verdicts.of_node(at)}"
        now.used[at] += now.vector(placement.pod.pod_class.requests)
        ports = dict(now.ports)
        ports[at] = ports.get(at, frozenset()) | frozenset(placement.pod.pod_class.host_ports)
        now = replace(now, ports=ports)
        now.pod_index.change(placement.pod.signature, placement.node, 1)


def check_constraints(snapshot: Snapshot, result: RoundResult, policies: Mapping[str, Policy]) -> None:
    """No cap of a policy is broken and no excluded pods meet, for each governed pod as things stand at its turn."""
    labels_of = {node.name: dict(node.labels) for node in snapshot.table.nodes}
    there = [
        (node, kind.namespace, kind.labels)
        for kind, node, count in snapshot.pod_index.counts()
        if node in labels_of
        for _ in range(count)
    ]
    for placement in result.placements:
        policy, kind, node = policies[placement.pod.policy], placement.pod.signature, placement.node
        scope = policy.selects.namespaces

        def counted(*of: LabelSelector, key: str, node: str = node, scope: LabelSelector | None = scope) -> int:
            domain = labels_of[node].get(key)
            assert domain is not None or not key, f"{node} is in no domain of {key}"
            return sum(
                any(each.matches(labels) for each in of)
                for other, namespace, labels in there
                if (not key or labels_of[other].get(key) == domain)
                and (scope is None or scope.matches(snapshot.pod_index.namespaces.get(namespace, ())))
            )

        there.append((node, kind.namespace, kind.labels))
        for each in policy.constraints:
            told = f"{placement.pod.key} on {node} breaks {each}"
            match each:
                case Conflict() if each.pods.matches(kind.labels):
                    assert counted(each.pods, key=each.topology_key) <= each.max_per_domain, told
                case Exclusive() if mine := [group for group in each.groups if group.matches(kind.labels)]:
                    others = [group for group in each.groups if group not in mine]
                    assert len(mine) == 1, told
                    assert not counted(*others, key=each.topology_key), told
                    assert (
                        each.max_per_domain is None
                        or counted(*each.groups, key=each.topology_key) <= each.max_per_domain
                    ), told
                    assert each.max_placed is None or counted(*each.groups, key="") <= each.max_placed, told
                case Global() if each.pods.matches(kind.labels):
                    assert each.nodes.matches(tuple(labels_of[node].items())), told
                    assert counted(each.pods, key=HOSTNAME) <= 1, told


def recount_pods(snapshot: Snapshot) -> PodIndex:
    """Its neighbours, counted anew."""
    pod_index = PodIndex(snapshot.pod_index.namespaces)
    for kind, node, count in snapshot.pod_index.counts():
        pod_index.change(kind, node, count)
    return pod_index


def check_host_ports(snapshot: Snapshot, result: RoundResult) -> None:
    """No host port of a node is given twice."""
    held: dict[str, set[HostPort]] = {snapshot.table.nodes[at].name: set(ports) for at, ports in snapshot.ports.items()}
    for placement in result.placements:
        there = held.setdefault(placement.node, set())
        wanted = placement.pod.pod_class.host_ports
        clash = any(ports_clash(port, other) for port in wanted for other in there)
        assert not clash, f"{placement.pod.key} on {placement.node}: host port given twice"
        there.update(wanted)


def check_gangs(snapshot: Snapshot, result: RoundResult) -> None:
    """No gang is half-placed: as many as it needs or none, in one domain where it must be, and units are whole."""
    placed: dict[str, list[str]] = {}
    for placement in result.placements:
        for name in placement.pod.gangs:
            placed.setdefault(name, []).append(placement.node)
    for name, nodes in placed.items():
        assert name in snapshot.gangs, f"{name} is not known, and has placements"
        gang = snapshot.gangs[name]
        assert not gang.unschedulable_reason, f"{name} cannot be placed, and is"
        assert len(nodes) >= gang.min_placed, f"{name} is half-placed: {len(nodes)} of {gang.min_placed}"
        if gang.topology_key:
            found = {
                domain_value(snapshot.table.nodes[snapshot.table.index[node]].labels, gang.topology_key)
                for node in nodes
            }
            assert len(found) == 1, f"{name} is in several domains: {found}"
            assert None not in found, f"{name} is in no domain"
            assert gang.domain in ("", *found), f"{name} is in {found}, not {gang.domain}"
    for gang in snapshot.gangs.values():
        others = [
            other for other in snapshot.gangs.values() if gang.atomic_group and other.atomic_group == gang.atomic_group
        ]
        for other in others:
            lacks = other.min_placed > 0 and len(placed.get(other.name, ())) < other.min_placed
            waiting = gang.min_placed > 0 and gang.name in placed
            assert not (waiting and lacks), f"{gang.name} is placed and {other.name} of its unit is not"
    units: dict[str, set[str]] = {}
    for placement in result.placements:
        waits = any(snapshot.gangs[name].min_placed > 0 for name in placement.pod.gangs)
        # A pod more than its gang needs may wait alone for others that leave.
        assert bool(placement.atomic_group or placement.victims) >= waits, f"{placement.pod.key} is of no unit"
        if placement.atomic_group and not placement.optional:
            units.setdefault(placement.atomic_group, set()).update(placement.pod.gangs)
    for name, gangs in units.items():
        for gang_name in gangs:
            needed = sum(
                gang_name in p.pod.gangs and p.atomic_group == name and not p.optional for p in result.placements
            )
            least = snapshot.gangs[gang_name].min_placed
            assert needed >= least, f"{needed} of {gang_name} are needed by its unit, and it needs {least}"


def _whole_gang_fits(snapshot: Snapshot, after: Snapshot, name: str) -> bool:
    """Whether there is room for what a gang needs, where it is pods of one class without rules, ports or domain."""
    gang = snapshot.gangs.get(name)
    pods = [pod for pod in snapshot.pending if name in pod.gangs]
    plain = len({pod.pod_class for pod in pods}) == 1 and all(
        pod.signature.constraints is None and pod.gangs == (name,) and not pod.pod_class.host_ports for pod in pods
    )
    if (
        gang is None
        or not plain
        or gang.atomic_group
        or gang.topology_key
        or gang.unschedulable_reason
        or len(pods) < gang.min_placed
    ):
        return False
    first, free, room = pods[0], after.free, 0
    wanted = dict((*first.pod_class.requests, (PODS, 1)))
    for at in run_filters(first.pod_class, after, first.signature).fits.nonzero()[0].tolist():
        room += min(int(free[at, after.resources.index(r)]) // amount for r, amount in wanted.items() if amount)
    return room >= gang.min_placed


def check_maximal(snapshot: Snapshot, result: RoundResult) -> None:
    """What is left fits nowhere beside what was placed, gangs as a whole; each pod that is left has a reason."""
    after = apply_placements(snapshot, result)
    keeps = any("is held for" in left.reason for left in result.unplaced)
    present = {name for p in result.placements if p.atomic_group for name in p.pod.gangs}
    for left in result.unplaced:
        gangs = [snapshot.gangs.get(name) for name in left.pod.gangs]
        if any(gang is None or gang.min_placed > 0 or gang.unschedulable_reason or gang.topology_key for gang in gangs):
            assert left.reason.endswith("."), f"{left.pod.key} waits without a reason"
            for name in set(left.pod.gangs) - present:
                assert keeps or not _whole_gang_fits(snapshot, after, name), f"{name} still fits"
            continue
        if "Room is held for " in left.reason:
            continue
        verdicts = run_filters(left.pod.pod_class, after, left.pod.signature)
        assert not verdicts.fits.any(), f"{left.pod.key} still fits"
        said = left.reason.startswith(f"0/{len(after.table.nodes)} nodes are available: ")
        assert said, f"{left.pod.key} waits without a reason"


def check_costs(result: RoundResult) -> None:
    """The prices add up to the cost, and none is below nothing."""
    prices = [entry.price for entry in (*result.placements, *result.unplaced, *result.evictions)]
    gains = sum(each.gain for each in result.evictions)
    assert sum(prices) - gains == result.cost, "the prices do not add up to the cost"
    assert all(price >= 0 for price in prices), "a price below nothing"


def apply_placements(snapshot: Snapshot, result: RoundResult) -> Snapshot:
    """The snapshot with the placements as running pods, counted anew."""
    placed = [(p.node, p.pod.pod_class.requests, p.pod.pod_class.host_ports) for p in result.placements]
    pod_index = recount_pods(snapshot)
    for placement in result.placements:
        pod_index.change(placement.pod.signature, placement.node, 1)
    after = count_running(snapshot, placed, pod_index)
    if snapshot.numa is None:
        return after
    numa = snapshot.numa.copy()
    for placement in result.placements:
        if placement.pod.pod_class.numa is not None:
            at = snapshot.table.index[placement.node]
            numa.take(placement.pod.pod_class.numa, np.array([at]), np.array([1]))
    return replace(after, numa=numa)


def count_running(
    snapshot: Snapshot,
    placed: list[tuple[str, tuple[tuple[str, int], ...], tuple[HostPort, ...]]],
    pod_index: PodIndex,
) -> Snapshot:
    """A snapshot of the same nodes on which what was used stays used and ``placed`` runs too."""
    nodes = snapshot.table.nodes
    before = [
        (node.name, tuple((r, int(snapshot.used[at, c])) for c, r in enumerate(snapshot.resources) if r != PODS), ())
        for at, node in enumerate(nodes)
    ]
    rebuilt = build_snapshot(
        generation=snapshot.generation,
        now=snapshot.now,
        table=NodeTable.of(nodes),
        running=[*before, *placed],
        pending=snapshot.pending,  # for the columns of what they ask for
    )
    used, pods = rebuilt.used.copy(), rebuilt.resources.index(PODS)
    for at in range(len(nodes)):
        used[at, pods] += int(snapshot.used[at, snapshot.resources.index(PODS)]) - 1  # ``before`` counted as one pod
    ports = {at: rebuilt.ports.get(at, frozenset()) | snapshot.ports.get(at, frozenset()) for at in range(len(nodes))}
    held = {at: taken for at, taken in ports.items() if taken}
    return rebuilt.with_usage(used, rebuilt.non_zero_requested, held, pod_index)
