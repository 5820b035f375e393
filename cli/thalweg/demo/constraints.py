"""Scenes in which policies say what holds across pods."""

from __future__ import annotations

from flowcore.model.constrained import HOSTNAME
from flowcore.model.constraints import Conflict, Constraint, Exclusive, Global
from flowcore.model.nodes import Node
from flowcore.model.pods import PodClass
from flowcore.model.policies import Policy
from flowcore.model.selectors import LabelSelector, Requirement
from thalweg.demo.scene import Scene, Wish, asks, node

_ZONE = "topology.kubernetes.io/zone"


def across_pods() -> tuple[Scene, ...]:
    """All of them, in the order in which they are shown."""
    return (_zones(), _exclusive(), _everywhere(), _machines())


def _policy(*constraints: Constraint) -> Policy:
    return Policy("demo", constraints=constraints)


def _pods(name: str, count: int, text: str, cores: float, **selector: str) -> Wish:
    """Pods with their name as a label, for nodes with these labels."""
    pod_class = PodClass(asks(cores, cores), node_selector=tuple(sorted(selector.items())))
    return Wish(name, count, text, pod_class, (("app", name),))


def _named(*names: str) -> LabelSelector:
    return LabelSelector((Requirement("app", "In", names),))


def _host(name: str, cores: int, **labels: str) -> Node:
    return node(name, cores, 32, {HOSTNAME: name, **labels})


def _zones() -> Scene:
    nodes = [(f"{zone}-{at}", cores, zone) for zone, sizes in (("a", (8, 2)), ("b", (4,)), ("c", (2,))) for at, cores in
             enumerate(sizes, start=1)]  # fmt: skip
    return Scene(
        "At most two in each zone, on its freest node",
        "Whoever owns them. Zone c has room for one pod only, which holds nobody back in a and b. The sixth pod waits: "
        "zone a has room for it, and two already.",
        tuple(node(name, cores, 32, {HOSTNAME: name, _ZONE: zone}) for name, cores, zone in nodes),
        (_pods("web", 4, "2 cores", 2), _pods("api", 2, "2 cores", 2)),
        _policy(Conflict("az", _named("web", "api"), _ZONE, 2)),
    )


def _exclusive() -> Scene:
    return Scene(
        "Never on the same node",
        "Loud and quiet pods share no node. One by one, the loud ones take the freest node each time and close it to "
        "the quiet ones; planned at once they take no more nodes than they need.",
        tuple(_host(f"node-{at}", 4) for at in (1, 2, 3)),
        (_pods("loud", 3, "1 core", 1), _pods("quiet", 8, "1 core", 1)),
        _policy(Exclusive("noise", (_named("loud"), _named("quiet")), HOSTNAME)),
    )


def _everywhere() -> Scene:
    return Scene(
        "One on each GPU node",
        "As many agents as GPU nodes with room for one, none elsewhere. Batch pods may go anywhere and came first; "
        "one by one they fill the GPU nodes. Thalweg makes no pods: the third agent waits.",
        (_host("gpu-1", 4, gpu="true"), _host("gpu-2", 4, gpu="true"), _host("plain-1", 4)),
        (_pods("batch", 10, "1 core", 1), _pods("agent", 3, "1 core, GPU nodes", 1)),
        _policy(Global("agents", _named("agent"), LabelSelector((Requirement("gpu", "In", ("true",)),)))),
    )


def _machines() -> Scene:
    ssd = {"disk": "ssd"}
    return Scene(
        "This host, or one like it",
        "The licence is bound to one host and the database wants a disk of a kind: plain node selectors, no policy. "
        "The worker pods came first and will do anywhere.",
        (_host("host-1", 4), _host("host-2", 6), _host("host-3", 5, **ssd)),
        (
            _pods("worker", 4, "2 cores", 2),
            _pods("licence", 1, "4 cores, host-2", 4, **{HOSTNAME: "host-2"}),
            _pods("db", 1, "3 cores, disk ssd", 3, **ssd),
        ),
    )
