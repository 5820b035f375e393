"""Scenes of pods that know nothing of each other."""

from __future__ import annotations

from flowcore.model.amount_text import counted
from flowcore.model.cost_policy import CostPolicy, Preferences
from flowcore.model.nodes import Node, Taint
from flowcore.model.pods import PodClass, Toleration
from flowcore.model.policies import Policy
from thalweg.demo.scene import GI, PodSet, Scene, asks, node, prefers
from thalweg.demo.scene_result import SceneResult, checked


def gpu_node() -> Scene:
    """Pods that can run anywhere take the only node on which others can run."""
    gpu = {"hardware": "gpu"}

    def claim(thalweg: SceneResult, one_by_one: SceneResult) -> str:
        planned, sequential = (outcome.placed("train") for outcome in (thalweg, one_by_one))
        taken = one_by_one.in_domain("web", "gpu")
        return checked(
            f"{planned} training pods run, not {sequential}; one by one, {taken} web pods are on the GPU node.",
            thalweg.waiting() == 0,
            thalweg.in_domain("web", "gpu") == 0,
            taken > 0,
            planned > sequential,
        )

    return Scene(
        "The only node with GPUs",
        "Web pods can run anywhere and came first. Training pods need a GPU.",
        (node("plain-1", 8, 32), node("plain-2", 8, 32), node("gpu-1", 16, 64, gpu, gpus=4)),
        (
            PodSet("web", 5, "2 cores", PodClass(asks(2, 8))),
            PodSet("train", 4, "4 cores, 1 GPU", PodClass(asks(4, 16, 1), node_selector=(("hardware", "gpu"),))),
        ),
        claim,
    )


def crowd() -> Scene:
    """A larger scene: 300 nodes, pods of eleven classes."""
    zones = ("a", "b", "c")
    nodes = tuple(
        node(
            f"node-{number:03}",
            16 if number % 3 else 32,
            64,
            {"zone": zones[number % 3], "hardware": "gpu" if number % 10 == 0 else "cpu"},
            gpus=8 if number % 10 == 0 else 0,
        )
        for number in range(300)
    )
    plain = tuple(
        PodSet(f"app{i}", 250, counted_cores(0.5 * (i + 1)), PodClass(asks(0.5 * (i + 1), 1 + i))) for i in range(6)
    )
    pinned = tuple(
        PodSet(f"zone-{zone}", 400, f"1.5 cores, zone {zone}", PodClass(asks(1.5, 4), node_selector=(("zone", zone),)))
        for zone in zones
    )
    training = PodSet("train", 240, "2 cores, 1 GPU", PodClass(asks(2, 6, 1)))
    sets = (*plain, *pinned, training, PodSet("solver", 60, "14 cores", PodClass(asks(14, 32))))

    def claim(thalweg: SceneResult, one_by_one: SceneResult) -> str:
        solver, train = ([outcome.placed(name) for outcome in (thalweg, one_by_one)] for name in ("solver", "train"))
        names = [each.name for each in sets]
        return checked(
            f"{solver[0]} solver and {train[0]} training pods run, not {solver[1]} and {train[1]}.",
            solver[0] > solver[1],
            train[0] > train[1],
            thalweg.waiting(*names) < one_by_one.waiting(*names),
        )

    return Scene(
        "A crowd",
        f"{counted(sum(each.count for each in sets), 'pod')} at once on {counted(len(nodes), 'node')}. "
        "The largest came last.",
        nodes,
        sets,
        claim,
        counted=True,
    )


def counted_cores(cores: float) -> str:
    """Cores in words, halves too."""
    return f"{cores:g} core{'' if cores == 1 else 's'}"


def mixed_sizes() -> Scene:
    """Enough cores for all pods, if the small ones leave room for the large one."""

    def claim(thalweg: SceneResult, one_by_one: SceneResult) -> str:
        spread = len(one_by_one.nodes("small") | one_by_one.nodes("medium"))
        return checked(
            f"all {thalweg.placed()} pods run, not {one_by_one.placed()}; one by one, the smaller ones use {spread} "
            "nodes.",
            thalweg.waiting() == 0,
            spread == 2,
            one_by_one.waiting() == one_by_one.waiting("big") == 1,
        )

    return Scene(
        "Mixed sizes, to the last core",
        "The pods ask for eight cores in all, and the nodes have eight.",
        (node("node-1", 4, 16), node("node-2", 4, 16)),
        (
            PodSet("small", 2, "1 core", PodClass(asks(1, 1))),
            PodSet("medium", 1, "2 cores", PodClass(asks(2, 2))),
            PodSet("big", 1, "4 cores", PodClass(asks(4, 4))),
        ),
        claim,
    )


def preferences() -> Scene:
    """Two pods prefer the same node."""
    weights = {"cache": 20, "db": 80}

    def claim(thalweg: SceneResult, one_by_one: SceneResult) -> str:
        met = []
        for outcome in (thalweg, one_by_one):
            (name,) = [name for name in weights if "fast" in outcome.nodes(name)]
            met.append((name, weights[name]))
        (preferred, much), (less_preferred, little) = met
        return checked(
            f"a preference of weight {much} is met, not one of {little}: {preferred} gets the fast node.",
            much > little,
            next(iter(one_by_one.cells)) == less_preferred,
        )

    return Scene(
        "The stronger preference",
        "Both pods prefer the fast node, which has room for one. A policy says that weights count as they are written.",
        (node("fast", 2, 8, {"disk": "nvme"}), node("slow", 2, 8)),
        tuple(
            PodSet(name, 1, f"prefers nvme, weight {weight}",
                   PodClass(asks(2, 4), preferred_affinity=prefers(weight, "disk", "nvme")))
            for name, weight in weights.items()
        ),
        claim,
        Policy("demo", cost=CostPolicy(preferences=Preferences.POINTS)),
    )  # fmt: skip


def oversubscribed() -> Scene:
    """More pods than room: which of them wait, and why."""
    dedicated = (Taint("dedicated", "batch", "NoSchedule"),)
    tolerated = (Toleration("dedicated", "Equal", "batch", "NoSchedule"),)

    def claim(thalweg: SceneResult, one_by_one: SceneResult) -> str:
        planned, sequential = (outcome.placed("checkout", "batch") for outcome in (thalweg, one_by_one))
        waits = one_by_one.waiting("batch")
        return checked(
            f"{planned} pods with a priority run, not {sequential}; one by one, {waits} of batch wait.",
            thalweg.waiting("checkout", "batch") == 0,
            planned > sequential,
            one_by_one.in_domain("checkout", "batch") >= waits > 0,
        )

    return Scene(
        "More pods than room",
        "Each pod asks for 2 cores. Batch pods may use batch-1 only, checkout pods any node. Each pod that waits is "
        "told why.",
        (
            node("node-1", 4, 16),
            node("batch-1", 14, 56, {"for": "batch"}, taints=dedicated),
            Node("cordoned", unschedulable=True, allocatable=(("cpu", 8000), ("memory", 32 * GI), ("pods", 110))),
        ),
        (
            PodSet("report", 2, "priority 0", PodClass(asks(2, 2))),
            PodSet("checkout", 2, "priority 1000", PodClass(asks(2, 2), priority=1000, tolerations=tolerated)),
            PodSet("batch", 7, "priority 100", PodClass(asks(2, 2), priority=100, tolerations=tolerated,
                                                        node_selector=(("for", "batch"),))),
            PodSet("lost", 1, "zone mars", PodClass(asks(2, 2), node_selector=(("zone", "mars"),))),
        ),
        claim,
    )  # fmt: skip


def pinned() -> Scene:
    """Pods that are bound to one node or to nodes of one kind come after pods that are not."""
    ssd = {"disk": "ssd"}

    def claim(thalweg: SceneResult, one_by_one: SceneResult) -> str:
        waits = [row for row in one_by_one.cells if one_by_one.waiting(row)]
        return checked(
            f"all {thalweg.placed()} pods run, not {one_by_one.placed()}; one by one, {' and '.join(waits)} waits.",
            thalweg.waiting() == 0,
            waits == ["licence"],
            "licensed" in one_by_one.nodes("worker"),
        )

    def host(name: str, cores: int, **labels: str) -> Node:
        return node(name, cores, 32, {"kubernetes.io/hostname": name, **labels})

    return Scene(
        "One host, or one kind of disk",
        "Workers can run anywhere and came first. A licence is bound to one host, the database needs an SSD.",
        (host("plain", 4), host("licensed", 6), host("ssd", 5, **ssd)),
        (
            PodSet("worker", 4, "2 cores", PodClass(asks(2, 2))),
            PodSet("licence", 1, "4 cores, host",
                   PodClass(asks(4, 4), node_selector=(("kubernetes.io/hostname", "licensed"),))),
            PodSet("db", 1, "3 cores, SSD", PodClass(asks(3, 3), node_selector=(("disk", "ssd"),))),
        ),
        claim,
    )  # fmt: skip
