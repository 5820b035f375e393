"""What must hold of every plan, and what is wrong with one: sentences, none where it is safe."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from harness.recorded.objects import Cluster, Pod, selects
from harness.recorded.planners import Leaver, Plan
from harness.recorded.rules import PlacedPods

_KINDS = ("Preemption", "Reclaim", "Migration")
#: What a policy allows where it says nothing (the CRD's defaults), and how long a pod has run before it is moved.
_LIMITS = {"perRound": 50, "perNode": 10, "perNamespace": 30, "perOwner": 10}
_MIN_AGE = 600.0


def problems(cluster: Cluster, plan: Plan) -> list[str]:
    """All that is wrong with a plan."""
    wrong = [*_incomplete(cluster, plan)]
    if wrong:  # what follows takes each name for a pod
        return wrong
    return [
        *_now(cluster, plan),
        *_in_the_end(cluster, plan).broken(),
        *_beside_nominated(cluster, plan),
        *_gangs(cluster, plan),
        *_leavers(cluster, plan),
        *_budgets(cluster, plan),
        *_gangs_that_leave(cluster, plan),
        *_moves(cluster, plan),
        *_in_vain(cluster, plan),
    ]


def _incomplete(cluster: Cluster, plan: Plan) -> Iterator[str]:
    told = Counter([*plan.placed, *plan.waiting])
    nominated = {pod.key for pod in cluster.nominated}
    for pod in cluster.waiting:
        if told[pod.key] != 1:
            yield f"{pod.key} is in the plan {told[pod.key]} times"
    known = {pod.key for pod in cluster.waiting} | nominated
    yield from (f"{key} does not wait, and is planned" for key in told if key not in known)
    leaving = Counter(each.pod for each in plan.leavers)
    for key, count in leaving.items():
        pod = cluster.pods.get(key)
        if pod is None or not pod.node or pod.deleting:
            yield f"{key} leaves, and does not run"
        if count > 1:
            yield f"{key} leaves {count} times"
    for each in plan.leavers:
        if each.to and each.to not in cluster.nodes:
            yield f"{each.pod} moves to {each.to}, which is not there"
    for key, victims in plan.victims.items():
        yield from (f"{key} waits for {victim}, which stays" for victim in victims if victim not in leaving)


# -- where pods are ----------------------------------------------------------------------------------------------------


def _now(cluster: Cluster, plan: Plan) -> Iterator[str]:
    """Room first: who waits for nobody, and who is moved, fits beside all that run."""
    coming = [(cluster.pods[key], node) for key, node in plan.placed.items() if not plan.victims.get(key)]
    moved = [each for each in plan.leavers if each.kind == "Migration" and each.to and not each.after]
    replacements = [_replacement(cluster.pods[each.pod], each.to) for each in moved]
    yield from (f"now: {sentence}" for sentence in _with(cluster, (), [*coming, *replacements]).broken())


def _in_the_end(cluster: Cluster, plan: Plan, stays: str = "") -> PlacedPods:
    """Once all have left and come; ``stays``: but for this one, which keeps its room and gets no other."""
    leavers = [each for each in plan.leavers if each.pod != stays]
    coming = [(cluster.pods[key], node) for key, node in plan.placed.items()]
    replacements = [_replacement(cluster.pods[each.pod], each.to) for each in leavers if each.to]
    return _with(cluster, [each.pod for each in leavers], [*coming, *replacements])


def _with(cluster: Cluster, gone: Sequence[str], coming: Sequence[tuple[Pod, str]]) -> PlacedPods:
    left = set(gone)
    stay = [(pod, pod.node) for pod in cluster.running if pod.key not in left]
    return PlacedPods(cluster, [*stay, *coming], frozenset(pod.key for pod, _ in coming))


def _replacement(pod: Pod, node: str) -> tuple[Pod, str]:
    return replace(pod, key=f"{pod.key} (again)", node=""), node


def _beside_nominated(cluster: Cluster, plan: Plan) -> Iterator[str]:
    """What comes leaves the room that terminating pods leave to nominated ones of the same or a higher priority."""
    nominated = [(pod, pod.nominated) for pod in cluster.nominated if pod.key not in plan.placed]
    if not nominated:
        return
    later = _in_the_end(cluster, plan)
    stay = [(pod, node) for pod, node in later.pods if not (pod.node and pod.deleting)]
    if any(_with(cluster, [pod.key for pod in cluster.running if pod.deleting], nominated).broken()):
        return  # they have no room even without the plan
    for pod, node in nominated:
        beside = [(other, at) for other, at in stay if other.key not in later.new or other.priority <= pod.priority]
        there = [(other, at) for other, at in beside if at == node]
        here = PlacedPods(cluster, [*there, (pod, node)], frozenset((pod.key,)))
        yield from (f"{pod.key} is nominated: {sentence}" for sentence in here.overcommitted())


# -- gangs -------------------------------------------------------------------------------------------------------------


def _gangs(cluster: Cluster, plan: Plan) -> Iterator[str]:
    members: dict[str, list[Pod]] = defaultdict(list)
    for pod in cluster.pods.values():
        if pod.gang:
            members[pod.gang].append(pod)
    for gang, pods in members.items():
        placed = [pod for pod in pods if pod.key in plan.placed]
        if not placed:
            continue
        there = [pod for pod in pods if pod.node and not pod.deleting]
        least = max(pod.min_member for pod in pods)
        if len(placed) + len(there) < least:
            yield f"gang {gang} is not whole: {len(placed) + len(there)} of {least}"
        if key := placed[0].gang_topology:
            nodes = [*(plan.placed[pod.key] for pod in placed), *(pod.node for pod in there)]
            domains = {cluster.nodes[node].labels.get(key, "") for node in nodes}
            if len(domains) > 1 or "" in domains:
                yield f"gang {gang} is in {len(domains)} domains of {key}"


def _gangs_that_leave(cluster: Cluster, plan: Plan) -> Iterator[str]:
    lost = Counter(cluster.pods[each.pod].gang for each in plan.leavers)
    for gang, count in lost.items():
        if not gang:
            continue
        running = [pod for pod in cluster.running if pod.gang == gang and not pod.deleting]
        left = len(running) - count
        if left and left < max(pod.min_member for pod in running):
            yield f"gang {gang} keeps {left} pods, which is not whole"


# -- who leaves --------------------------------------------------------------------------------------------------------


def _leavers(cluster: Cluster, plan: Plan) -> Iterator[str]:
    never = cluster.policy.get("preemption", {}).get("mode") == "Never"
    after = _duration(cluster.policy.get("preemption", {}).get("after", "0s"))
    for each in plan.leavers:
        victim = cluster.pods[each.pod]
        if each.kind not in _KINDS:
            yield f"{each.pod} leaves by {each.kind}, which no judge knows"
        if not each.beneficiaries and not each.gain:
            yield f"{each.pod} leaves for nobody"
        for key in each.beneficiaries:
            pod = cluster.pods.get(key)
            if pod is None or key not in plan.placed:
                yield f"{each.pod} leaves for {key}, which gets no node"
                continue
            if each.kind == "Migration":
                continue
            if never or not pod.preempts or cluster.moment - pod.created < after:
                yield f"{each.pod} leaves for {key}, which may evict nobody"
            if victim.priority > pod.priority or (each.kind == "Preemption" and victim.priority == pod.priority):
                yield f"{each.pod} of priority {victim.priority} leaves for {key} of {pod.priority}"
            if each.kind == "Reclaim" and cluster.queue_of(victim) in ("", cluster.queue_of(pod)):
                yield f"{each.pod} leaves for {key}: its queue took nothing from that of {key}"


def _duration(text: str) -> float:
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    return float(text[:-1]) * units[text[-1]]


def _budgets(cluster: Cluster, plan: Plan) -> Iterator[str]:
    lost = Counter[str]()
    for each in plan.leavers:
        pod = cluster.pods[each.pod]
        own = [
            budget.name
            for budget in cluster.budgets
            if budget.namespace == pod.namespace and selects(budget.selector, pod.labels)
        ]
        if len(own) > 1:
            yield f"{each.pod} leaves, and {len(own)} PodDisruptionBudgets protect it"
        lost.update(own)
    for budget in cluster.budgets:
        if lost[budget.name] > budget.allowed:
            yield f"PodDisruptionBudget {budget.name} loses {lost[budget.name]} and allows {budget.allowed}"


def _moves(cluster: Cluster, plan: Plan) -> Iterator[str]:
    rescheduling = cluster.policy.get("rescheduling", {})
    moves = [each for each in plan.leavers if each.kind == "Migration"]
    if moves and rescheduling.get("mode") != "Act":
        yield "pods are moved, and no policy moves them"
    limits, counts = {**_LIMITS, **rescheduling.get("limits", {})}, Counter[tuple[str, str]]()
    for each in plan.leavers:
        pod = cluster.pods[each.pod]
        if each.to and (not pod.owner or pod.scheduler != "thalweg"):
            yield f"{each.pod} has a new node, and nobody would make it again"
    for each in moves:
        pod = cluster.pods[each.pod]
        if not each.to or each.to == pod.node:
            yield f"{each.pod} is moved nowhere"
        if pod.gang:
            yield f"{each.pod} is moved, and belongs to a gang"
        if cluster.moment - pod.started < _MIN_AGE:
            yield f"{each.pod} is moved, and has just started"
        if each.gain and "Gain" not in rescheduling.get("reasons", ()):
            yield f"{each.pod} is moved for gain"
        counts.update(
            [("perRound", ""), ("perNode", pod.node), ("perNamespace", pod.namespace), ("perOwner", pod.owner)]
        )
    yield from (f"{count} moves {which} {of}" for (which, of), count in counts.items() if count > limits[which])


def _in_vain(cluster: Cluster, plan: Plan) -> Iterator[str]:
    """Who could stay, with all else as planned; shares of queues, by which pods are reclaimed, are not judged."""
    for each in plan.leavers:
        if cluster.pods[each.pod].gang or each.gain or each.kind == "Reclaim":
            continue
        stays = _in_the_end(cluster, plan, stays=each.pod)
        home = cluster.pods[each.pod].node
        here = PlacedPods(cluster, [(pod, node) for pod, node in stays.pods if node == home], stays.new)
        if not any(here.overcommitted()) and not any(stays.broken()) and not _needed_by_chain(plan, each, home):
            yield f"{each.pod} leaves in vain"


def _needed_by_chain(plan: Plan, each: Leaver, home: str) -> bool:
    """Whether a replacement takes its room."""
    return any(each.pod in other.after and other.to == home for other in plan.leavers)
