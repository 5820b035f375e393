"""The scenes: small clusters in which committing one pod at a time goes wrong."""

from __future__ import annotations

from flowcore.model.nodes import Node, Taint
from flowcore.model.pods import PodClass, Toleration
from thalweg.demo.scene import GI, Scene, Wish, asks, node, prefers


def scenes() -> tuple[Scene, ...]:
    """Scenes of pods that know nothing of each other."""
    gpu = {"hardware": "gpu"}
    dedicated = (Taint("dedicated", "batch", "NoSchedule"),)
    return (
        Scene(
            "The only node that will do",
            "Web pods can run anywhere and came first; the training pods can only run on the GPU node, which is "
            "also the emptiest. Placed one by one, the web pods take it.",
            (node("plain-1", 4, 16), node("plain-2", 4, 16), node("gpu-1", 8, 32, gpu, gpus=2)),
            (
                Wish("web", 4, "2 cores, anywhere", PodClass(asks(2, 4))),
                Wish("train", 2, "4 cores, 1 GPU", PodClass(asks(4, 16, 1), node_selector=(("hardware", "gpu"),))),
            ),
        ),
        Scene(
            "Who wants it more",
            "Both pods would like the one fast node, which has room for one. The second in line wants it "
            "four times as much.",
            (node("fast", 2, 8, {"disk": "nvme"}), node("slow", 2, 8)),
            (
                Wish(
                    "cache",
                    1,
                    "likes nvme, weight 20",
                    PodClass(asks(2, 4), preferred_affinity=prefers(20, "disk", "nvme")),
                ),
                Wish(
                    "db",
                    1,
                    "likes nvme, weight 80",
                    PodClass(asks(2, 4), preferred_affinity=prefers(80, "disk", "nvme")),
                ),
            ),
        ),
        Scene(
            "Mixed sizes, to the last core",
            "Eight cores wanted, eight cores there. Spread one by one, the small pods leave no room for the big one; "
            "counting pods instead of cores, as older flow schedulers did, overcommits.",
            (node("node-1", 4, 16), node("node-2", 4, 16)),
            (
                Wish("small", 2, "1 core", PodClass(asks(1, 1))),
                Wish("medium", 1, "2 cores", PodClass(asks(2, 2))),
                Wish("big", 1, "4 cores", PodClass(asks(4, 4))),
            ),
        ),
        Scene(
            "More pods than room",
            "What stays pending is what costs least to leave, and each pod has a reason.",
            (
                node("node-1", 4, 16),
                node("batch-1", 4, 16, taints=dedicated),
                Node("cordoned", unschedulable=True, allocatable=(("cpu", 8000), ("memory", 32 * GI), ("pods", 110))),
            ),
            (
                Wish("report", 3, "2 cores, priority 0", PodClass(asks(2, 2))),
                Wish("checkout", 1, "2 cores, priority 1000", PodClass(asks(2, 2), priority=1000)),
                Wish(
                    "batch",
                    2,
                    "2 cores, tolerates batch",
                    PodClass(asks(2, 2), tolerations=(Toleration("dedicated", "Equal", "batch", "NoSchedule"),)),
                ),
                Wish("lost", 1, "node label zone=mars", PodClass(asks(1, 1), node_selector=(("zone", "mars"),))),
            ),
        ),
    )


def crowd() -> Scene:
    """A larger scene, shown as counts: 300 nodes, 3,000 pods of eleven classes."""
    zones = ("a", "b", "c")
    nodes = tuple(
        node(
            f"node-{i:03}",
            16 if i % 3 else 32,
            64,
            {"zone": zones[i % 3], "hardware": "gpu" if i % 10 == 0 else "cpu"},
            gpus=8 if i % 10 == 0 else 0,
        )
        for i in range(300)
    )
    plain = tuple(
        Wish(f"app{i}", 250, f"{0.5 * (i + 1):g} cores", PodClass(asks(0.5 * (i + 1), 1 + i))) for i in range(6)
    )
    pinned = tuple(
        Wish(f"zone-{zone}", 400, f"1.5 cores, zone {zone}", PodClass(asks(1.5, 4), node_selector=(("zone", zone),)))
        for zone in zones
    )
    training = (Wish("train", 240, "2 cores, 1 GPU", PodClass(asks(2, 6, 1))),)
    huge = (Wish("solver", 60, "14 cores", PodClass(asks(14, 32))),)
    return Scene("A crowd", "3,000 pods at once on 300 nodes.", nodes, plain + pinned + training + huge)
