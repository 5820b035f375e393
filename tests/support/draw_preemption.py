"""Crowded clusters with PodDisruptionBudgets, and urgent pods for them, drawn by hypothesis: see support/draw.py.

No running pod has volume claims: who may have their disks next is kube-scheduler's to say.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hypothesis import strategies as st
from support import draw_volumes
from support.draw import Case, Drawn, Manifest, cases

#: One in so many pods has a rule about others; 0: none has.
SELDOM, OFTEN, NEVER = 6, 2, 0
#: Of running pods: most are below the urgent pods', some are not.
PRIORITIES = (0, 0, 0, 0, 5, 5, 5, -10, -10, 50, 50, 100, 1000, 2_000_001_000)
STARTS = tuple(f"2026-01-0{day}T00:00:00Z" for day in range(1, 5))
APPS = ("web", "db", "job")
_MIRROR = {"kubernetes.io/config.mirror": "0123456789abcdef"}

_priority: Drawn[int] = st.sampled_from(PRIORITIES)
_start: Drawn[str] = st.sampled_from(STARTS)
_URGENT: Drawn[int] = st.sampled_from((100, 100, 1000, 100, 10))
_app: Drawn[str] = st.sampled_from(APPS)


def _rarely(drawn: Drawn[Any], one_in: int = 10) -> Drawn[Any]:
    """``drawn`` once in so many times, else None; 0: never."""
    return st.none() if not one_in else st.integers(1, one_in).flatmap(lambda at: drawn if at == one_in else st.none())


def _rule(kind: str, app: str, topology: str) -> Manifest:
    term = {"topologyKey": topology, "labelSelector": {"matchLabels": {"app": app}}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


_topology: Drawn[str] = st.sampled_from(("kubernetes.io/hostname", "zone"))
_anti_affinity: Drawn[Manifest] = st.builds(_rule, st.just("podAntiAffinity"), _app, _topology)
_affinity: Drawn[Manifest] = st.builds(_rule, st.just("podAffinity"), _app, _topology)
_spread: Drawn[list[Manifest]] = st.builds(
    lambda app, topology, skew: [
        {
            "topologyKey": topology,
            "maxSkew": skew,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": app}},
        }
    ],
    _app,
    _topology,
    st.integers(1, 2),
)


def _pod(name: str, app: str, cpu: int, memory: int, port: int | None, **spec: Any) -> Manifest:
    container: Manifest = {
        "name": "main",
        "resources": {"requests": {"cpu": f"{cpu}m", **({"memory": f"{memory}Mi"} if memory else {})}},
    }
    if port is not None:
        container["ports"] = [{"containerPort": 80, "hostPort": port, "protocol": "TCP"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {"app": app}},
        "spec": {"containers": [container], **{field: value for field, value in spec.items() if value is not None}},
    }


@st.composite
def _node(draw: st.DrawFn, name: str) -> Manifest:
    labels = {"kubernetes.io/hostname": name, "zone": draw(st.sampled_from(("a", "b", "c")))}
    room = {"cpu": "4", "memory": "8Gi", "pods": draw(st.sampled_from(("110", "110", "110", "4", "2")))}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {"allocatable": room},
    }


@st.composite
def _running(draw: st.DrawFn, name: str, node: str, cpu: int, memory: int, rules: int) -> Manifest:
    pod = _pod(
        name,
        draw(_app),
        cpu,
        memory,
        draw(_rarely(st.sampled_from((80, 8080)), 8)),
        priority=draw(_priority),
        nodeName=node,
        affinity=draw(_rarely(_anti_affinity, 2 * rules)),
    )
    pod["status"] = {"phase": "Running", "startTime": draw(_start)}
    if draw(st.integers(1, 15)) == 15:
        pod["metadata"]["deletionTimestamp"] = "2026-01-05T00:00:00Z"
    if draw(st.integers(1, 15)) == 15:
        pod["metadata"]["annotations"] = _MIRROR
    return pod


@st.composite
def _pods_on(draw: st.DrawFn, node: Manifest, rules: int) -> list[Manifest]:
    """Pods that a node has room for."""
    name = node["metadata"]["name"]
    cpu, memory, pods = 4000, 8192, int(node["status"]["allocatable"]["pods"])
    found: list[Manifest] = []
    for at in range(draw(st.sampled_from((8, 6, 4, 2, 0)))):
        wanted = draw(st.sampled_from((1000, 500, 500, 250, 1500, 2000, 3000)))
        more = draw(st.sampled_from((0, 0, 512, 1024, 4096)))
        if wanted <= cpu and more <= memory and len(found) < pods:
            found.append(draw(_running(f"{name}-{at}", name, wanted, more, rules)))
            cpu, memory = cpu - wanted, memory - more
    if cpu and len(found) < pods and draw(st.integers(1, 4)) > 1:
        found.append(draw(_running(f"{name}-rest", name, cpu, 0, rules)))
    return found


@st.composite
def _urgent(draw: st.DrawFn, name: str, priority: Drawn[int], rules: int = SELDOM) -> Manifest:
    return _pod(
        name,
        draw(_app),
        draw(st.sampled_from((2000, 1000, 1500, 500, 3000, 4000))),
        draw(st.sampled_from((0, 0, 1024, 6000))),
        draw(_rarely(st.sampled_from((80, 8080)), 6)),
        priority=draw(priority),
        affinity=draw(_rarely(_anti_affinity | _affinity, rules)),
        topologySpreadConstraints=draw(_rarely(_spread, rules)),
        nodeSelector=draw(_rarely(st.sampled_from(({"zone": "a"}, {"zone": "b"})), 8)),
        preemptionPolicy=draw(_rarely(st.just("Never"), 12)),
    )


_budget_selectors: Drawn[Any] = st.one_of(
    _app.map(lambda app: {"matchLabels": {"app": app}}),
    st.lists(_app, min_size=1, max_size=3).map(
        lambda apps: {"matchExpressions": [{"key": "app", "operator": "In", "values": apps}]}
    ),
    st.none(),
)


def _budgets(selectors: Drawn[Any], namespaces: Drawn[str]) -> Drawn[list[Manifest]]:
    parts = st.tuples(selectors, namespaces, st.sampled_from((0, 0, 1, 1, 2, 3)))
    return st.lists(parts, max_size=3).map(
        lambda drawn: [
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": f"b{at}", "namespace": namespace, "generation": 1},
                "spec": {} if selector is None else {"selector": selector},
                "status": {"observedGeneration": 1, "disruptionsAllowed": allowed},
            }
            for at, (selector, namespace, allowed) in enumerate(drawn)
        ]
    )


@st.composite
def batches(draw: st.DrawFn, rules: int = SELDOM, most_kinds: int = 3) -> list[Manifest]:
    """5 to 30 pods of one or some kinds, all equally urgent."""
    kinds = [draw(_urgent(f"p{at}", st.just(100), rules)) for at in range(draw(st.integers(1, most_kinds)))]
    return [
        _renamed(kind, f"{kind['metadata']['name']}-{copy}")
        for kind in kinds
        for copy in range(draw(st.integers(5, 30)) // len(kinds))
    ]


def _renamed(pod: Manifest, name: str) -> Manifest:
    return {**pod, "metadata": {**pod["metadata"], "name": name, "uid": name}}


@st.composite
def crowded_nodes(draw: st.DrawFn, rules: int = SELDOM, pending: Drawn[list[Manifest]] | None = None) -> Case:
    """2 to 8 nodes with up to 8 pods each, which fit, and urgent pods of which some fit only if others leave.

    Args:
        rules: one in so many pods has a rule about others.
        pending: the urgent pods; None: one.
    """
    nodes = [draw(_node(f"n{at}")) for at in range(draw(st.sampled_from((2, 3, 4, 5, 8))))]
    return Case(
        nodes=nodes,
        pods=[pod for node in nodes for pod in draw(_pods_on(node, rules))],
        pending=[draw(_urgent("p0", _URGENT, rules))] if pending is None else draw(pending),
        budgets=draw(_budgets(_budget_selectors | st.just({}), st.just("default"))),
    )


@st.composite
def ruled_pods(draw: st.DrawFn, aspects: Collection[str]) -> Case:
    """Small clusters with any rules and odd values, where running pods have priorities and pending ones are urgent.

    No budget selects pods without labels: kube-scheduler's preemption ignores budgets for them, evictions do not.
    """
    case = draw(cases(frozenset(aspects) - frozenset(draw_volumes.ASPECTS)))
    pods = []
    for pod in case.pods:
        spec = {**pod["spec"], "priority": draw(_priority)}
        pods.append({**pod, "spec": spec, "status": {**pod.get("status", {}), "startTime": draw(_start)}})
    pending = [{**pod, "spec": {**pod["spec"], "priority": draw(_URGENT)}} for pod in case.pending]
    labelled = st.one_of(
        st.sampled_from(("web", "db")).map(lambda app: {"matchLabels": {"app": app}}),
        st.just({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}),
    )
    budgets = draw(_budgets(labelled, st.sampled_from(("default", "red"))))
    return Case(case.nodes, pods, pending, case.namespaces, case.storage, budgets)
