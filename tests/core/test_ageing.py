"""Nobody starves: what waits long becomes dear to leave, and large pods no slower than small ones."""

from dataclasses import replace

from support.model import node, pod, snapshot

from flowcore.model.snapshot import Snapshot
from flowcore.rounds import run_round


def _rounds_until_placed(waiting: Snapshot, large: str, *, interval: float, most: int) -> int | None:
    """Rounds in which the node empties and ten new small pods come; the one that places the large pod."""
    for number in range(1, most + 1):
        now = 1000.0 + number * interval
        new = [pod(f"small-{number}-{at}", 400, created=now - 1) for at in range(10)]
        result = run_round(replace(waiting, now=now, pending=(*waiting.pending, *new)))
        if any(placement.pod.key == large for placement in result.placements):
            return number
    return None


def test_a_large_pod_is_not_passed_over_for_ever_by_new_small_ones() -> None:
    """Ten new pods are dearer to leave than one that just came, and cheaper than one that waited for hours."""
    cluster = snapshot([node("n", 4000)], [pod("large", 4000, created=1000.0)])
    placed = _rounds_until_placed(cluster, "default/large", interval=3600.0, most=12)
    assert placed is not None
    assert placed > 1


def test_a_pod_ages_by_its_size() -> None:
    """After as long a wait the price of one large pod rose as much as those of the ten that would fill its place."""
    sizes = {"large": 4000, "small": 400}
    rise = {}
    for name, cpu in sizes.items():
        cluster = snapshot(
            [node("n", 4000), node("full", 4000)], [pod(name, cpu, created=1000.0, node_selector=(("no", "such"),))]
        )
        young, old = (run_round(replace(cluster, now=now)).left[0].price for now in (1000.0, 2000.0))
        rise[name] = old - young
    assert rise == {"large": 5 * 1000 * 10, "small": 5 * 1000}
