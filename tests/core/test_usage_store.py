"""The samples that are kept, and what they say of nodes and of pods to come."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.profiles import examples

from flowcore.api import Interner, WirePod, to_pod
from flowcore.cluster.usage_samples import PodOnNode, UsageStore
from flowcore.cluster.usage_samples.sample_table import SampleTable
from flowcore.model.pods import Pod
from flowcore.model.usage import MeasuredLoad, UsageClass, UsageSample

_NOW = 10_000.0
_WEB, _JOB = UsageClass("shop", ("web",)), UsageClass("shop", ("job",))
_GIB = 2**30


def _store(samples: int = 3) -> UsageStore:
    return UsageStore(samples)


def _sample(cpu: int, memory: int = _GIB, *, at: float = _NOW - 10, window: float = 20) -> UsageSample:
    return UsageSample(at, window, cpu, memory)


def _classes(key: str) -> UsageClass | None:
    return {"web": _WEB, "job": _JOB}.get(key.partition("-")[0])


def _put(store: UsageStore, prefix: str, cpus: list[int], at: float = _NOW, memory: int = _GIB) -> None:
    store.put_pods({f"{prefix}-{place}": _sample(cpu, memory, at=at) for place, cpu in enumerate(cpus)}, _classes)
    store.refresh()


keys = st.sampled_from("abc")


@settings(max_examples=examples(100))
@given(
    st.integers(1, 4),
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.dictionaries(keys, st.integers(0, 9), max_size=3)),
            st.tuples(st.just("drop"), keys),
        ),
        max_size=30,
    ),
)
def test_the_last_samples_are_kept(samples: int, history: list[tuple[str, object]]) -> None:
    """After any history of samples and removals it is what a list of each thing would hold, at the given length."""
    table: SampleTable[str] = SampleTable(samples)
    truth: dict[str, list[UsageSample]] = {}
    for turn, (what, value) in enumerate(history):
        if isinstance(value, dict):
            came = {key: UsageSample(float(at), 15.0, turn, at) for key, at in value.items()}
            table.put(came)
            for key, sample in came.items():
                mine = truth.setdefault(key, [])
                if not mine or sample.timestamp > mine[-1].timestamp:
                    truth[key] = [*mine, sample][-samples:]
        elif what == "drop":
            table.drop(str(value))
            truth.pop(str(value), None)
        assert {key: table.all_of(key) for key in table} == truth
        assert all(table.newest(key) == mine[-1] for key, mine in truth.items())


def test_a_sample_takes_28_bytes() -> None:
    """And a row 8 more; up to an eighth is spare room for things to come."""
    things, samples = 15_000, 10
    table: SampleTable[int] = SampleTable(samples)
    table.put(dict.fromkeys(range(things), _sample(100)))
    assert 1 <= table.nbytes / (things * (28 * samples + 8)) <= 9 / 8


def test_a_class_is_foreseen_by_its_running_and_finished_pods() -> None:
    """The 95th percentile of all their samples, rounded up to two digits; other classes do not count."""
    store = _store()
    _put(store, "web", list(range(100, 120)))
    _put(store, "job", [4000] * 9)
    expected = np.percentile(range(100, 120), 95, method="inverted_cdf")
    assert expected == 118
    assert store.foreseen(_WEB) == (120, 1_100_000_000)
    for place in range(20):
        store.drop_pod(f"web-{place}")
    assert store.pod_sample("web-3") is None
    _put(store, "web", [937], at=_NOW + 30)
    assert store.foreseen(_WEB) == (120, 1_100_000_000)
    assert store.foreseen(_JOB) == (4000, 1_100_000_000)


def _pod(image: str, cpu: str = "1", node_name: str = "") -> Pod:
    containers = [{"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}, {"name": "d", "image": "log"}]
    written = {
        "metadata": {"name": "p", "namespace": "shop"},
        "spec": {"containers": containers, "nodeName": node_name},
    }
    return to_pod(msgspec.convert(written, WirePod), Interner())


def test_a_class_survives_a_rollout() -> None:
    """Tags and digests make no difference, nor does being bound; another image or another request does."""
    image = "registry.example:5000/shop/web"
    usage_class = _pod(image).usage_class
    assert usage_class == UsageClass("shop", ("log", image), (("cpu", 1000),))
    assert all(_pod(f"{image}{version}", node_name="n1").usage_class == usage_class for version in (":2", "@sha256:1"))
    assert _pod(f"{image}:2@sha256:1").usage_class == usage_class
    assert _pod("registry.example:5000/shop/api").usage_class != usage_class != _pod(image, "2").usage_class


def test_too_few_samples_foresee_nothing() -> None:
    """A class of which hardly anything was seen is unknown: then requests count."""
    store = _store()
    assert store.foreseen(_WEB) is None
    _put(store, "web", [100, 100, 100, 100])
    assert store.foreseen(_WEB) is None
    _put(store, "web", [100], at=_NOW + 30)
    assert store.foreseen(_WEB) == (100, 1_100_000_000)


def test_a_sample_that_is_polled_twice_counts_once() -> None:
    """A poll between two measurements brings the same sample again."""
    store = _store()
    for _ in range(9):
        _put(store, "web", [100])
    assert store.foreseen(_WEB) is None


def test_pods_without_any_use_are_not_foreseen_to_use_nothing() -> None:
    """Else any number of them would be free."""
    store = _store()
    _put(store, "web", [0] * 9, memory=0)
    assert store.foreseen(_WEB) == (1, 1)


def test_samples_of_unknown_pods_and_nodes_are_left_out() -> None:
    """A pod may have gone in the meantime: that is no mistake. A node that does not exist is one."""
    store = _store()
    store.put_pods({"other-1": _sample(100)}, _classes)
    assert store.pod_sample("other-1") is None
    refused = store.put_nodes({"n1": _sample(100), "n9": _sample(100)}, {"n1"})
    assert refused == ["NodeMetrics n9: there is no such node"]
    assert store.put_bandwidth({"n9": 5}, _NOW, {"n1"}) == refused
    assert store.node_sample("n1") is not None
    assert store.node_sample("n9") is None


def test_pods_that_no_sample_contains_count_by_their_estimate() -> None:
    """Node 1000 milli-cores at [t-30, t-10]: a pod that began before is in it; those that came later are added."""
    store = _store()
    store.put_nodes({"n1": _sample(1000)}, {"n1"})
    store.put_pods({"web-half": _sample(300, at=_NOW - 5), "web-busy": _sample(900, 2 * _GIB, at=_NOW - 5)}, _classes)
    long_there = PodOnNode("web-old", _NOW - 31, (500, _GIB))
    on_its_way = PodOnNode("web-new", 0, (500, 2 * _GIB))
    half_seen = PodOnNode("web-half", _NOW - 20, (500, _GIB))
    uses_more = PodOnNode("web-busy", _NOW - 20, (500, _GIB))
    assert store.measured_load("n1", [long_there], _NOW) == MeasuredLoad("n1", 1000, _GIB)
    assert store.measured_load("n1", [on_its_way], _NOW) == MeasuredLoad("n1", 1500, 3 * _GIB)
    assert store.measured_load("n1", [half_seen, uses_more], _NOW) == MeasuredLoad("n1", 1200, _GIB)


def test_a_pod_of_a_former_name_lends_no_sample() -> None:
    """A pod that has not started yet uses nothing, whatever one of the same name used before."""
    store = _store()
    store.put_nodes({"n1": _sample(0, 0)}, {"n1"})
    store.put_pods({"web-0": _sample(800)}, _classes)
    assert store.measured_load("n1", [PodOnNode("web-0", 0, (500, 7))], _NOW) == MeasuredLoad("n1", 500, 7)


@pytest.mark.parametrize(("age", "measured"), [(180.0, True), (181.0, False)])
def test_stale_samples_do_not_count(age: float, measured: bool) -> None:  # noqa: FBT001 - a parameter
    """A node whose newest sample is too old is as good as not measured."""
    store = _store()
    store.put_nodes({"n1": _sample(1000, at=_NOW - age)}, {"n1"})
    store.put_bandwidth({"n1": 77}, _NOW - age, {"n1"})
    assert store.is_measured("n1", _NOW) == measured
    assert store.measured_load("n1", (), _NOW).is_empty != measured
    assert store.measured_load("n2", (), _NOW).is_empty


def test_what_is_gone_is_forgotten() -> None:
    """Of a node that is dropped nothing is known; what a pod used that is dropped stays with its class."""
    store = _store()
    store.put_nodes({"n1": _sample(1), "n2": _sample(2)}, {"n1", "n2"})
    store.put_bandwidth({"n2": 5}, _NOW, {"n2"})
    _put(store, "web", [100] * 6)
    assert store.nodes == ["n1", "n2"]
    assert store.pods == [f"web-{place}" for place in range(6)]
    store.drop_node("n2")
    for key in store.pods[1:]:
        store.drop_pod(key)
    store.refresh()
    assert (store.nodes, store.pods) == (["n1"], ["web-0"])
    assert store.node_sample("n2") is None
    assert store.measured_load("n2", (), _NOW).is_empty
    assert store.node_sample("n1") is not None
    assert store.pod_sample("web-0") is not None
    assert store.pod_sample("web-1") is None
    assert store.foreseen(_WEB) == (100, 1_100_000_000)


def test_classes_without_pods_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """All classes with pods stay, however many they are, and of the others the youngest."""
    monkeypatch.setattr("flowcore.cluster.usage_samples.store._MOST_IDLE_CLASSES", 2)
    store = _store(5)
    found = [UsageClass("shop", (f"image{at}",)) for at in range(8)]
    for at, usage_class in enumerate(found):
        for sample in range(5):
            store.put_pods({f"{at}": _sample(100, at=_NOW + 10 * at + sample)}, lambda _key, mine=usage_class: mine)
        if at >= 4:
            store.drop_pod(f"{at}")
    store.refresh()
    assert [usage_class for usage_class in found if store.foreseen(usage_class) is not None] == found[:4] + found[6:]


def test_of_a_pod_that_is_gone_its_last_samples_stay() -> None:
    """Also where a pod has more samples than are kept of a class, and where others went before it."""
    store = _store(150)
    for key, cpu in (("web-0", 1), ("web-1", 9)):
        for turn in range(150):
            use = cpu if turn < 50 else 100 * cpu
            store.put_pods({key: _sample(use, at=_NOW + turn)}, _classes)
        store.drop_pod(key)
        store.refresh()
        assert store.foreseen(_WEB) == (100 * cpu, 1_100_000_000)
        row = np.array([store._classes.row(_WEB)])
        assert store._classes.amounts(row)[:, 0].tolist() == [100 * cpu] * 100


@settings(max_examples=examples(30))
@given(st.integers(0, 2**32), st.integers(1, 20), st.integers(200, 3000))
def test_a_large_class_is_foreseen_from_a_part_of_its_samples(seed: int, samples: int, pods: int) -> None:
    """It lies between nearby percentiles of all samples, however pods and times differ, and is the same each time."""
    random = np.random.default_rng(seed)
    store, truth = _store(samples), []
    usual = random.integers(100, 10_000, pods)
    for turn in range(samples):
        used = (usual * random.uniform(0.8, 1.2, pods) * (1 + turn / samples)).astype(int).tolist()
        truth += used
        _put(store, "web", used, at=_NOW + turn)
    found = store.foreseen(_WEB)
    assert found is not None
    low, high = np.percentile(truth, [92, 98])
    assert low <= found[0] <= 1.1 * high
    store.refresh()
    assert store.foreseen(_WEB) == found


def test_what_is_foreseen_changes_only_with_a_whole_poll() -> None:
    """Samples come in bursts: until the last one, pods of one class are foreseen to use the same."""
    store = _store()
    _put(store, "web", [100] * 5)
    before = store.foreseen(_WEB)
    store.put_pods({f"web-{place}": _sample(900, at=_NOW + 30) for place in range(5)}, _classes)
    assert store.foreseen(_WEB) == before
    store.refresh()
    assert store.foreseen(_WEB) == (900, 1_100_000_000)
