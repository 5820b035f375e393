"""What one pod's author writes into it costs a bounded amount of work, and what is beyond that waits with a reason."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.draw import Manifest
from support.model import node, ports_clash, snapshot
from support.work import lines_run

from flowcore.api import Interner, PodReader, WirePod, pod_limits, to_pod
from flowcore.api.pod_objects import WirePodSpec
from flowcore.api.pod_requests import host_ports_of, requests_of
from flowcore.cluster.arrays.snapshot import PendingPod, Snapshot
from flowcore.model.inter_pod_constraints import AffinityTerm, InterPodConstraints, SpreadConstraint
from flowcore.model.nodes import Node
from flowcore.model.pod_index import PodIndex, PodSignature
from flowcore.model.pods import ANY_ADDRESS, HostPort, Pod, PodClass
from flowcore.model.policies import BUILT_IN
from flowcore.model.resources import to_amounts
from flowcore.model.selectors import LabelSelector, NodeSelectorTerm, Requirement
from flowcore.rules.filters import run_filters
from flowcore.rules.filters.node_ports import clash
from flowcore.rules.filters.registry import IN_ORDER, run_filter
from flowcore.rules.verdicts import VerdictCache

HOSTNAME = "kubernetes.io/hostname"


def read(node_name: str = "", containers: list[Manifest] | None = None, **spec: Any) -> Pod:
    """The pod of a spec."""
    plain: list[Manifest] = [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]
    metadata = {"name": "p", "namespace": "ns", "uid": "u", "labels": {"app": "web"}}
    manifest = {"metadata": metadata, "spec": {"containers": containers or plain, "nodeName": node_name, **spec}}
    return to_pod(msgspec.convert(manifest, WirePod), Interner())


def spreads(count: int) -> Manifest:
    each = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"a": "b"}}}
    return {"topologySpreadConstraints": [{"topologyKey": f"k{at}", **each} for at in range(count)]}


def pod_term(at: int) -> Manifest:
    return {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"x": f"a{at}"}}}


def required_anti_affinity(count: int) -> Manifest:
    terms = [pod_term(at) for at in range(count)]
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def terms_of_all_kinds(count: int) -> Manifest:
    """So many terms, of each of the six kinds."""
    required, preferred = (
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    )
    node_term = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    kinds: list[tuple[str, str, Any]] = [
        ("podAffinity", required, pod_term(0)),
        ("podAffinity", preferred, {"weight": 1, "podAffinityTerm": pod_term(0)}),
        ("podAntiAffinity", required, pod_term(0)),
        ("podAntiAffinity", preferred, {"weight": 1, "podAffinityTerm": pod_term(0)}),
        ("nodeAffinity", preferred, {"weight": 1, "preference": node_term}),
        ("nodeAffinity", required, node_term),
    ]
    affinity: dict[str, dict[str, Any]] = {}
    for at in range(count):
        side, which, term = kinds[at % len(kinds)]
        affinity.setdefault(side, {}).setdefault(which, []).append(term)
    node_required = affinity.get("nodeAffinity", {}).get(required)
    if node_required is not None:
        affinity["nodeAffinity"][required] = {"nodeSelectorTerms": node_required}
    return {"affinity": affinity}


def expressions(counts: list[int]) -> Manifest:
    """One node affinity term with an expression for each of the counts, of so many values."""
    each = [{"key": "a", "operator": "In", "values": [f"v{at}" for at in range(count)]} for count in counts]
    required = {"nodeSelectorTerms": [{"matchExpressions": each}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def selector_values(count: int) -> Manifest:
    expression = {"key": "a", "operator": "In", "values": [f"v{at}" for at in range(count)]}
    constraint = {
        "topologyKey": "k",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchExpressions": [expression]},
    }
    return {"topologySpreadConstraints": [constraint]}


def ports(count: int) -> Manifest:
    return {"containers": [{"name": "c", "ports": [{"hostPort": 1 + at} for at in range(count)]}]}


def resources(count: int) -> Manifest:
    """Distinct names in two containers; the names of the first are in the second too."""
    first = {f"x.io/r{at}": "1" for at in range(count // 2)}
    both = first | {f"x.io/r{at}": "1" for at in range(count // 2, count)}
    return {
        "containers": [{"name": f"c{at}", "resources": {"requests": each}} for at, each in enumerate((first, both))]
    }


LISTS: list[tuple[str, int, Callable[[int], Manifest]]] = [
    ("spec.topologySpreadConstraints", pod_limits.MAX_SPREAD_CONSTRAINTS, spreads),
    ("spec.topologySpreadConstraints.labelSelector.values", pod_limits.MAX_VALUES, selector_values),
    ("spec.affinity", pod_limits.MAX_AFFINITY_TERMS, terms_of_all_kinds),
    ("spec.affinity.matchExpressions", pod_limits.MAX_REQUIREMENTS, lambda count: expressions([1] * count)),
    (
        "spec.affinity.matchExpressions.values",
        pod_limits.MAX_VALUES,
        lambda count: expressions([count // 2, -(-count // 2)]),
    ),
    ("spec.containers.resources.requests", pod_limits.MAX_RESOURCES, resources),
    ("spec.containers.ports.hostPort", pod_limits.MAX_HOST_PORTS, ports),
    ("spec.containers", pod_limits.MAX_CONTAINERS, lambda n: {"containers": [{"name": f"c{at}"} for at in range(n)]}),
    ("spec.tolerations", pod_limits.MAX_TOLERATIONS, lambda n: {"tolerations": [{"key": f"k{at}"} for at in range(n)]}),
    (
        "spec.nodeSelector",
        pod_limits.MAX_NODE_SELECTOR_LABELS,
        lambda n: {"nodeSelector": {f"k{at}": "v" for at in range(n)}},
    ),
    (
        "spec.volumes",
        pod_limits.MAX_VOLUMES,
        lambda n: {"volumes": [{"name": f"v{at}", "emptyDir": {}} for at in range(n)]},
    ),
]


@pytest.mark.parametrize(("field", "most", "made"), LISTS, ids=[field for field, *_ in LISTS])
def test_a_list_that_is_too_long_is_named(field: str, most: int, made: Callable[[int], Manifest]) -> None:
    """A pod with as much as the limit is planned; with one more it waits, and the reason names field and limit."""
    assert read(**made(most)).unsupported_reason == ""
    beyond = read(**made(most + 1))
    assert beyond.over_limit == field
    assert beyond.unsupported_reason == f"it is not planned: {field}: {most + 1} entries, at most {most} are planned"
    assert not beyond.blocked_reason


@pytest.mark.parametrize("made", [made for *_, made in LISTS], ids=[field for field, *_ in LISTS])
def test_a_bound_pod_beyond_a_limit_takes_what_it_takes(made: Callable[[int], Manifest]) -> None:
    """Its requests, host ports and volumes count on its node as those of any other pod."""
    bound = read("n", **made(5000))
    spec = msgspec.convert(
        {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}], **made(5000)}, WirePodSpec
    )
    assert bound.over_limit
    assert bound.usage == bound.pod_class.requests == to_amounts(requests_of(spec))
    assert bound.pod_class.host_ports == host_ports_of(spec)


def labelled(nbytes: int, node_name: str = "") -> Pod:
    """A pod with so many bytes of labels in all."""
    labels = {"app": "web", "x": "", **{f"k{at:05}": "v" * 54 for at in range((nbytes - 7) // 60)}}
    labels["x"] = "v" * (nbytes - sum(len(key) + len(value) for key, value in labels.items()))
    manifest = {"metadata": {"name": "p", "namespace": "ns", "labels": labels}, "spec": {"nodeName": node_name}}
    return to_pod(msgspec.convert(manifest, WirePod), Interner())


def test_a_pod_with_too_many_labels_is_not_planned() -> None:
    """16 KiB of keys and values are planned; with one byte more the pod waits, and the reason names the field."""
    most = pod_limits.MAX_LABEL_BYTES
    assert labelled(most).unsupported_reason == ""
    beyond = labelled(most + 1)
    assert beyond.over_limit == "metadata.labels"
    assert (
        beyond.unsupported_reason == f"it is not planned: metadata.labels: {most + 1} bytes, at most {most} are planned"
    )
    assert not beyond.blocked_reason


def test_labels_of_a_bound_pod_beyond_the_limit_are_met_by_rules_of_others() -> None:
    """Required anti-affinity keeps other pods off its node, whichever of its labels the term selects."""
    bound = labelled(100_000, "n")
    assert bound.over_limit
    assert len(bound.labels) > 1600
    pod_index = PodIndex()
    pod_index.change(bound.signature, "n", 1)
    state = snapshot(
        [node("n", labels=((HOSTNAME, "n"),)), node("m", labels=((HOSTNAME, "m"),))], [], pod_index=pod_index
    )
    for key, value in (("app", "web"), ("k01600", "v" * 54)):
        term = AffinityTerm(HOSTNAME, LabelSelector((Requirement(key, "In", (value,)),)), ("ns",))
        verdict = run_filters(
            PodClass(), state, PodSignature("ns", (), constraints=InterPodConstraints(anti_affinity=(term,)))
        )
        assert verdict.fits.tolist() == [False, True]


def test_as_much_anti_affinity_of_a_bound_pod_holds_for_others_as_a_planned_pod_may_have() -> None:
    """Of 300 terms the first 256 keep the pods that they select off the node; the reason says so. The rest does not."""
    bound = read("n", **required_anti_affinity(300))
    assert bound.unsupported_reason == (
        "it is not planned: spec.affinity: 300 entries, at most 256 are planned; "
        "other pods heed 256 of its 300 required anti-affinity terms"
    )
    pod_index = PodIndex()
    pod_index.change(bound.signature, "n", 1)
    state = snapshot(
        [node("n", labels=((HOSTNAME, "n"),)), node("m", labels=((HOSTNAME, "m"),))], [], pod_index=pod_index
    )
    for at, fits in ((0, [False, True]), (150, [False, True]), (255, [False, True]), (256, [True, True])):
        verdict = run_filters(PodClass(), state, PodSignature("ns", (("x", f"a{at}"),)))
        assert verdict.fits.tolist() == fits


@pytest.mark.parametrize(("field", "most"), [("values", pod_limits.MAX_VALUES), ("namespaces", pod_limits.MAX_VALUES)])
def test_terms_of_a_bound_pod_hold_as_far_as_their_values_are_within_the_limit(field: str, most: int) -> None:
    """Two terms with all values that a planned pod may have: the third does not hold."""
    names = [f"v{at}" for at in range(most // 2)]
    expression = {"key": "x", "operator": "NotIn", "values": names if field == "values" else ["v"]}
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchExpressions": [expression]}}
    if field == "namespaces":
        term |= {"namespaces": names[1:]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [{**term, "topologyKey": key} for key in "abc"]}
    bound = read("n", affinity={"podAntiAffinity": required})
    assert bound.constraints is not None
    assert [each.topology_key for each in bound.constraints.anti_affinity] == ["a", "b"]
    assert bound.unsupported_reason.endswith("; other pods heed 2 of its 3 required anti-affinity terms")


def test_all_anti_affinity_of_a_bound_pod_holds_that_has_too_much_of_something_else() -> None:
    """Another list that is too long takes nothing from it."""
    tolerations = [{"key": f"k{at}"} for at in range(300)]
    bound = read("n", **required_anti_affinity(200), tolerations=tolerations)
    assert bound.constraints is not None
    assert len(bound.constraints.anti_affinity) == 200
    assert bound.unsupported_reason == "it is not planned: spec.tolerations: 300 entries, at most 256 are planned"


def test_terms_beyond_the_limit_are_not_read() -> None:
    """A pod of 6,000 terms costs no more lines than one of 600, and no text of it is kept."""
    texts = [_text(count) for count in (600, 6_000)]
    reader = PodReader(Interner())
    reader(texts[0])
    few, many = (lines_run(lambda text=text: reader(text)) for text in texts)
    assert many < 1.1 * few
    assert len(reader._readings) == 0


def _text(count: int) -> bytes:
    """A bound pod of so many terms, in more than 64 KiB."""
    spec = {"nodeName": "n", "schedulerName": "x" * 70_000, **required_anti_affinity(count)}
    return msgspec.json.encode({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec})


def _work_of_filters(pod_class: PodClass, kind: PodSignature, state: Snapshot) -> int:
    """Lines run to ask all filters twice: once what is not known yet is found, once it is remembered."""
    cache = VerdictCache.of(state)

    def everything() -> None:
        for which in (*IN_ORDER, *IN_ORDER):
            cache.run_filter(which, pod_class, kind, state)

    return lines_run(everything)


def _labelled(keys: Iterable[str]) -> Snapshot:
    labels = tuple(sorted((key, "v") for key in keys))
    return snapshot([node(f"n{at}", labels=labels) for at in range(5)], [])


def _of_spread(count: int) -> int:
    web = LabelSelector((Requirement("app", "In", ("web",)),))
    keys = [f"k{at}" for at in range(count)]
    kind = PodSignature(
        "ns",
        (("app", "web"),),
        constraints=InterPodConstraints(spread=tuple(SpreadConstraint(key, 1, web) for key in keys)),
    )
    return _work_of_filters(PodClass(), kind, _labelled(keys))


def _of_terms(count: int) -> int:
    terms = tuple(
        AffinityTerm(HOSTNAME, LabelSelector((Requirement("app", "In", (f"a{at}",)),)), ("ns",)) for at in range(count)
    )
    return _work_of_filters(
        PodClass(), PodSignature("ns", (), constraints=InterPodConstraints(anti_affinity=terms)), _labelled([HOSTNAME])
    )


def _of_node_terms(count: int) -> int:
    terms = tuple(NodeSelectorTerm((Requirement(f"q{at}", "NotIn", ("a",)),)) for at in range(count))
    return _work_of_filters(PodClass(required_affinity=terms), PodSignature(), _labelled(["q0"]))


def _of_ports(count: int) -> int:
    wanted = [HostPort(ANY_ADDRESS, "TCP", 1 + at) for at in range(count)]
    taken = [HostPort(ANY_ADDRESS, "TCP", 10_001 + at) for at in range(count)]
    return lines_run(lambda: clash(wanted, taken))


def _of_resources(count: int) -> int:
    names = tuple(f"x.io/r{at:04}" for at in range(count))
    offering = [
        Node(f"n{k}", allocatable=(("pods", 10), *((name, int(at % 5 == k)) for at, name in enumerate(names))))
        for k in range(5)
    ]
    return _work_of_filters(
        PodClass(requests=tuple((name, 1) for name in names)), PodSignature(), snapshot(offering, [])
    )


@pytest.mark.parametrize("work", [_of_spread, _of_terms, _of_node_terms, _of_ports, _of_resources])
def test_work_grows_with_the_length_of_a_list_and_no_faster(work: Callable[[int], int]) -> None:
    """Four times the entries are about four times the work."""
    work(1)  # what is done once and kept
    assert work(400) < 5 * work(100)


@pytest.mark.parametrize("count", [3, 40])
def test_verdicts_with_many_reasons_are_remembered_as_they_were(count: int) -> None:
    """As many reasons as resources, in another set on each node: remembered they are what the filter says."""
    names = [f"x.io/r{at}" for at in range(count)]
    offers = [tuple((name, 1) for at, name in enumerate(names) if at % (k + 2)) for k in range(9)]
    pod_class = PodClass(requests=tuple((name, 1) for name in names))
    asking = PendingPod("ns/p", "u", pod_class, BUILT_IN.name)
    state = snapshot([Node(f"n{k}", allocatable=(("pods", 10), *each)) for k, each in enumerate(offers)], [asking])
    cache = VerdictCache.of(state)
    for which in (*IN_ORDER, *IN_ORDER):
        plain, kept = (asked(which, pod_class, PodSignature(), state) for asked in (run_filter, cache.run_filter))
        assert [(each.reason, each.nodes.tolist()) for each in kept] == [
            (each.reason, each.nodes.tolist()) for each in plain
        ]


_ADDRESSES = st.sampled_from((ANY_ADDRESS, "192.0.2.1", "192.0.2.2"))
_PORTS = st.lists(st.builds(HostPort, _ADDRESSES, st.sampled_from(("TCP", "UDP")), st.integers(1, 3)), max_size=4)


@given(_PORTS, _PORTS)
def test_host_ports_clash_as_each_pair_does(wanted: list[HostPort], taken: list[HostPort]) -> None:
    """Compared in one pass as one by one."""
    assert clash(wanted, taken) == any(ports_clash(want, other) for want in wanted for other in taken)
