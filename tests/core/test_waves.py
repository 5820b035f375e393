"""Waves: within one any order is legal, and no more waves than that takes."""

from support.draw import Case
from support.verdicts import snapshot_of
from thalweg_controlplane.objects import Manifest, node, pod

from flowcore.rounds import RoundResult, run_round

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def cluster(count: int = 6) -> list[Manifest]:
    """Nodes in three zones."""
    return [node(f"n{i}", cpu="64", labels={ZONE: f"z{i % 3}", HOST: f"n{i}"}) for i in range(count)]


def pods(count: int, **spec: object) -> list[Manifest]:
    """Pods of one app with these fields."""
    return [pod(f"p{i}", "100m", labels={"app": "web"}, **spec) for i in range(count)]


def selector() -> dict[str, object]:
    """The app's pods."""
    return {"labelSelector": {"matchLabels": {"app": "web"}}}


def waves(plan: RoundResult) -> list[int]:
    """Of the placements, in commit order."""
    return [placement.wave for placement in plan.placements]


def plan(pending: list[Manifest], running: list[Manifest] | None = None) -> RoundResult:
    """The round's plan for these."""
    return run_round(snapshot_of(Case(cluster(), running or [], pending)))


def test_pods_without_rules_wait_for_nobody() -> None:
    """Wave 0, beside pods with rules that do not speak of them."""
    spread = [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", **selector()}]
    found = plan([*pods(3, topologySpreadConstraints=spread), *(pod(f"free{i}", "100m") for i in range(5))])
    assert {p.pod.key: p.wave for p in found.placements if "free" in p.pod.key} == {
        f"default/free{i}": 0 for i in range(5)
    }
    assert all(p.wave for p in found.placements if "free" not in p.pod.key)


def test_anti_affinity_is_one_wave() -> None:
    """Where all may be together, so may any part of them."""
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": HOST, **selector()}]}}  # fmt: skip
    assert waves(plan(pods(6, affinity=apart))) == [1] * 6


def test_a_spread_goes_round_by_round() -> None:
    """With skew 1 over three zones a wave is one pod in each; with skew 2 it is two."""

    def spread(skew: int) -> list[dict[str, object]]:
        return [{"maxSkew": skew, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", **selector()}]

    assert waves(plan(pods(9, topologySpreadConstraints=spread(1)))) == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert max(waves(plan(pods(12, topologySpreadConstraints=spread(4))))) <= 3


def test_the_first_of_a_group_goes_ahead() -> None:
    """Pods that want to be near each other follow the first; where one runs already, all go at once."""
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": HOST, **selector()}]}}  # fmt: skip
    assert waves(plan(pods(4, affinity=near))) == [1, 2, 2, 2]
    running = [pod("there", "100m", labels={"app": "web"}, nodeName="n3")]
    assert waves(plan(pods(4, affinity=near), running)) == [1] * 4
