"""Scenes in which something holds across pods: gangs, and what policies say."""

from __future__ import annotations

from flowcore.model.constrained import HOSTNAME
from flowcore.model.constraints import Conflict, Constraint, Exclusive, Global, OneDomain
from flowcore.model.nodes import Node
from flowcore.model.pods import PodClass
from flowcore.model.policies import Policy
from flowcore.model.selectors import LabelSelector, Requirement
from thalweg.demo.scene import Scene, Wish, asks, node

_ZONE = "topology.kubernetes.io/zone"


def across_pods() -> tuple[Scene, ...]:
    """All of them, in the order in which they are shown."""
    return (*all_or_none(), _zones(), _exclusive(), _everywhere(), _machines())


def all_or_none() -> tuple[Scene, ...]:
    """Those with pods of which all are placed or none; one by one nobody heeds that."""
    return (_gangs(), _together())


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


def _gangs() -> Scene:
    turns = tuple(
        Wish(f"{gang}-{member}", 1, f"1 core, gang {gang}", PodClass(asks(1, 1)), gang=f"gang demo/{gang}")
        for member in range(3)
        for gang in ("red", "blue")
    )
    return Scene(
        "Two gangs, room for one",
        "Each runs only with all three of its pods, which came in turns. One by one each gets two of the four slots "
        "and neither ever runs; a round takes one whole gang, and the slot left goes to the pod that came last.",
        (_host("node-1", 2), _host("node-2", 2)),
        (*turns, Wish("alone", 1, "1 core", PodClass(asks(1, 1)))),
        gangs={"gang demo/red": 3, "gang demo/blue": 3},
    )


def _together() -> Scene:
    racks = {f"node-{at}": ("r1" if at < 3 else "r2") for at in range(1, 5)}
    return Scene(
        "All in one rack, or none",
        "The ring's pods talk to each other all the time. The freest node is in the rack that cannot hold all of them; "
        "one by one, that is where the first of them goes. No rack could hold both pods of the pair.",
        tuple(
            _host(name, 6 if name == "node-1" else 1 if name == "node-2" else 5, rack=rack)
            for name, rack in racks.items()
        ),
        (_pods("ring", 4, "2 cores", 2), _pods("pair", 2, "6 cores", 6)),
        _policy(OneDomain("ring", _named("ring"), "rack"), OneDomain("pair", _named("pair"), "rack")),
    )


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
