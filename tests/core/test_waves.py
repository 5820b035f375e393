"""Waves: within one any order is legal, and no more waves than that takes."""

from support.draw import Case
from support.verdicts import snapshot_of
from thalweg_controlplane.client.objects import Manifest, node, pod

from flowcore.planning.round import RoundResult, run_round

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


def test_anti_affinity_waits_for_nobody() -> None:
    """Where all may be together, so may any part of them."""
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": HOST, **selector()}]}}  # fmt: skip
    assert waves(plan(pods(6, affinity=apart))) == [0] * 6


def test_a_spread_goes_round_by_round() -> None:
    """With skew 1 over three zones a wave is one pod in each; with skew 2 it is two."""

    def spread(skew: int) -> list[dict[str, object]]:
        return [{"maxSkew": skew, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", **selector()}]

    assert waves(plan(pods(9, topologySpreadConstraints=spread(1)))) == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert max(waves(plan(pods(12, topologySpreadConstraints=spread(4))))) <= 3


def near(*keys: str) -> dict[str, object]:
    """Required affinity to their own app."""
    terms = [{"topologyKey": key, **selector()} for key in keys]
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def test_a_group_in_one_place_is_one_wave() -> None:
    """Any of its pods may be the first; where one runs already there is no first."""
    assert waves(plan(pods(4, affinity=near(HOST)))) == [1] * 4
    running = [pod("there", "100m", labels={"app": "web"}, nodeName="n3")]
    assert waves(plan(pods(4, affinity=near(HOST)), running)) == [1] * 4


def test_the_first_of_a_group_goes_ahead() -> None:
    """Where several topologies are asked, the others follow the first of those that want to be near each other."""
    assert waves(plan(pods(4, affinity=near(HOST, ZONE)))) == [1, 2, 2, 2]


def test_chains_count_their_own_waves() -> None:
    """Sets that no rule links do not wait for each other; nor does a pod that only reads what runs."""

    def spread(app: str) -> dict[str, object]:
        constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
        return {"topologySpreadConstraints": [{**constraint, "labelSelector": {"matchLabels": {"app": app}}}]}

    pending = [
        pod(f"{app}{i}", "100m", labels={"app": own}, **spread(app))
        for app, own in (("web", "web"), ("db", "db"), ("gone", "none"))
        for i in range(6)
    ]
    found = plan(pending).placements
    turns = {app: [p.wave for p in found if app in p.pod.key] for app in ("web", "db", "gone")}
    assert turns == {"web": [1, 1, 1, 2, 2, 2], "db": [1, 1, 1, 2, 2, 2], "gone": [0] * 6}
    assert len({(p.pod.key.strip("0123456789"), p.chain) for p in found}) == len({p.chain for p in found}) == 3
