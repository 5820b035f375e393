"""Scenes in which something holds across pods: gangs, and constraints of policies."""

from __future__ import annotations

from collections.abc import Mapping

from flowcore.model.amount_text import counted
from flowcore.model.constraints import Conflict, Constraint, Exclusive, Global, OneDomain
from flowcore.model.inter_pod_constraints import HOSTNAME
from flowcore.model.nodes import Node
from flowcore.model.pods import PodClass
from flowcore.model.policies import Policy
from flowcore.model.selectors import LabelSelector, Requirement
from thalweg.demo.scene import PodSet, Scene, asks, node
from thalweg.demo.scene_result import SceneResult, checked

_ZONE = "topology.kubernetes.io/zone"


def gangs() -> Scene:
    """Two gangs, and room for one of them."""
    names = ("red", "blue")

    def claim(thalweg: SceneResult, one_by_one: SceneResult) -> str:
        whole, sequential = (outcome.complete(names) for outcome in (thalweg, one_by_one))
        useless = one_by_one.placed(*names)
        return checked(
            f"{len(whole)} of {len(names)} gangs can start, not {len(sequential)}; one by one, {useless} GPUs are held "
            "in vain.",
            len(whole) > len(sequential) == 0,
            thalweg.placed(*names) == thalweg.placed(*whole),
            useless > 0,
        )

    def gang(name: str) -> PodSet:
        return PodSet(name, 6, f"1 GPU, all of gang {name}", PodClass(asks(4, 16, 1)), gang=name)

    return Scene(
        "Two gangs, room for one",
        "Each gang can start only with all six of its pods. Their pods and the single ones came in turns.",
        (node("gpu-1", 32, 128, gpus=4), node("gpu-2", 32, 128, gpus=4)),
        (*(gang(name) for name in names), PodSet("single", 2, "1 GPU", PodClass(asks(4, 16, 1)))),
        claim,
        in_turns=True,
    )


def one_rack() -> Scene:
    """Pods that talk to each other all the time, and two racks."""

    def claim(thalweg: SceneResult, one_by_one: SceneResult) -> str:
        planned, sequential = (outcome.domains("ring") for outcome in (thalweg, one_by_one))
        return checked(
            f"the ring is in {counted(len(planned), 'rack')}, not {len(sequential)}; the web pods are in the other.",
            len(planned) == 1,
            len(sequential) > 1,
            thalweg.waiting() == 0,
            not planned & thalweg.domains("web"),
        )

    sizes = {"rack1-a": 6, "rack1-b": 1, "rack2-a": 4, "rack2-b": 4}
    return Scene(
        "All in one rack, or none",
        "A policy keeps the ring in one rack. The freest node is in rack1, which cannot hold all of the ring.",
        tuple(_host(name, cores, rack=name.partition("-")[0]) for name, cores in sizes.items()),
        (_pods("web", 2, "2 cores", 2), _pods("ring", 4, "2 cores, one rack", 2, one_domain=True)),
        claim,
        _policy(OneDomain("ring", _named("ring"), "rack")),
    )


def exclusive() -> Scene:
    """Two kinds of pods that share no node."""

    def claim(thalweg: SceneResult, one_by_one: SceneResult) -> str:
        planned, sequential = (len(outcome.nodes("loud")) for outcome in (thalweg, one_by_one))
        return checked(
            f"{thalweg.placed()} pods run, not {one_by_one.placed()}; the loud ones use {counted(planned, 'node')}, "
            f"not {sequential}.",
            thalweg.waiting() == 0,
            sequential > planned,
            one_by_one.waiting("quiet") == one_by_one.waiting() > 0,
            not any(outcome.nodes("loud") & outcome.nodes("quiet") for outcome in (thalweg, one_by_one)),
        )

    return Scene(
        "Never on the same node",
        "A policy keeps loud and quiet pods on different nodes. The loud ones came first.",
        tuple(_host(f"node-{number}", 4) for number in (1, 2, 3)),
        (_pods("loud", 3, "1 core", 1), _pods("quiet", 8, "1 core", 1)),
        claim,
        _policy(Exclusive("noise", (_named("loud"), _named("quiet")), HOSTNAME)),
    )


def zones() -> Scene:
    """A limit for each zone, and some pods that can use one zone only."""
    most = 2

    def claim(thalweg: SceneResult, one_by_one: SceneResult) -> str:
        planned, sequential = (outcome.placed("api") for outcome in (thalweg, one_by_one))
        held = one_by_one.in_domain("web", "a")
        busiest = max(
            outcome.in_domain("web", zone) + outcome.in_domain("api", zone)
            for outcome in (thalweg, one_by_one)
            for zone in "abc"
        )
        return checked(
            f"{planned} api pods run, not {sequential}; one by one, {held} web pods are in zone a.",
            busiest <= most,
            held == most,
            thalweg.waiting() == 0,
            planned > sequential,
        )

    return Scene(
        "At most two in each zone",
        f"A policy allows {most} of these pods in each zone. Web pods can run anywhere and came first; api pods "
        "need zone a.",
        tuple(
            _host(name, cores, **{_ZONE: name.partition("-")[0]})
            for name, cores in (("a-1", 8), ("b-1", 4), ("c-1", 2))
        ),
        (_pods("web", 3, "2 cores", 2), _pods("api", 2, "2 cores, zone a", 2, selector={_ZONE: "a"})),
        claim,
        _policy(Conflict("az", _named("web", "api"), _ZONE, most)),
    )


def agents() -> Scene:
    """One pod on each node of a kind."""

    def claim(thalweg: SceneResult, one_by_one: SceneResult) -> str:
        planned, sequential = (outcome.placed("agent") for outcome in (thalweg, one_by_one))
        return checked(
            f"{planned} agents run, not {sequential}, one on each GPU node; no batch pod waits.",
            planned > sequential,
            thalweg.waiting("batch") == 0,
            thalweg.cells["agent"].get("gpu-1") == thalweg.cells["agent"].get("gpu-2") == 1,
            planned == thalweg.in_domain("agent", "gpu") == len(thalweg.nodes("agent")),
        )

    return Scene(
        "One on each GPU node",
        "A policy allows one agent on each GPU node and none elsewhere. Batch pods can run anywhere and came first.",
        (_host("gpu-1", 4, gpu="true"), _host("gpu-2", 4, gpu="true"), _host("plain", 4)),
        (_pods("batch", 10, "1 core", 1), _pods("agent", 3, "1 core, GPU node", 1)),
        claim,
        _policy(Global("agents", _named("agent"), LabelSelector((Requirement("gpu", "In", ("true",)),)))),
    )


def _policy(*constraints: Constraint) -> Policy:
    return Policy("demo", constraints=constraints)


def _pods(
    name: str,
    count: int,
    text: str,
    cores: float,
    *,
    one_domain: bool = False,
    selector: Mapping[str, str] | None = None,
) -> PodSet:
    """Pods with their name as a label, for nodes with these labels."""
    pod_class = PodClass(asks(cores, cores), node_selector=tuple(sorted((selector or {}).items())))
    return PodSet(name, count, text, pod_class, (("app", name),), one_domain=one_domain)


def _named(*names: str) -> LabelSelector:
    return LabelSelector((Requirement("app", "In", names),))


def _host(name: str, cores: int, **labels: str) -> Node:
    return node(name, cores, 32, {HOSTNAME: name, **labels})
