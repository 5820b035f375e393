"""NodeMetrics and PodMetrics: what is read of them, and which samples are refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from flowcore.api.metrics import to_node_sample, to_pod_sample
from flowcore.model.errors import ModelError
from flowcore.model.usage import UsageSample, checked_use

_NOW = datetime(2026, 10, 14, 11, 46, 40, tzinfo=UTC).timestamp()
_TIME = "2026-10-14T11:46:30Z"


def _node(**changed: Any) -> dict[str, Any]:
    return {
        "kind": "NodeMetrics",
        "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {"name": "n1", "creationTimestamp": _TIME},
        "timestamp": _TIME,
        "window": "20.124s",
        "usage": {"cpu": "1500200001n", "memory": "2Gi"},
    } | changed


def _pod(*usages: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"name": "web-1", "namespace": "shop"},
        "timestamp": _TIME,
        "window": "15s",
        "containers": [{"name": f"c{at}", "usage": usage} for at, usage in enumerate(usages)],
    }


def test_a_node_sample_is_read_as_the_interval_that_it_describes() -> None:
    """The interval ends at the timestamp; cpu is rounded up to milli-cores; a dump and a list give the same."""
    expected = UsageSample(_NOW - 10, 20.0, 1501, 2 * 2**30)
    item = msgspec.Raw(msgspec.json.encode(_node()))
    assert to_node_sample(item, _NOW) == to_node_sample(_node(), _NOW) == ("n1", expected)
    assert expected.begin == _NOW - 30


def test_a_pod_sample_is_the_sum_of_its_containers() -> None:
    """Fractions of containers are added before they are rounded; a pod without containers uses nothing."""
    both = to_pod_sample(_pod({"cpu": "500001n", "memory": "1Mi"}, {"cpu": "499999n", "memory": "2Mi"}), _NOW)
    assert both == ("shop/web-1", UsageSample(_NOW - 10, 15.0, 1, 3 * 2**20))
    assert to_pod_sample(_pod(), _NOW)[1].cpu_milli == 0


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"usage": {"cpu": "-1n", "memory": "1Gi"}}, 'NodeMetrics n1: usage.cpu: "-1n" is negative'),
        ({"usage": {"cpu": "NaN", "memory": "1"}}, 'NodeMetrics n1: usage.cpu: "NaN" is not a quantity'),
        ({"usage": {"cpu": "1", "memory": "+Inf"}}, 'NodeMetrics n1: usage.memory: "[+]Inf" is not a quantity'),
        ({"usage": {"cpu": "1", "memory": "9E"}}, "NodeMetrics n1: usage.memory: .* is more than any node has"),
        ({"usage": {"cpu": "1"}}, "NodeMetrics n1: usage.memory: required value"),
        ({"timestamp": "2026-10-14T11:48:00Z"}, "NodeMetrics n1: timestamp: it lies 80 s in the future"),
        ({"timestamp": "yesterday"}, "NodeMetrics n1: .*timestamp"),
        ({"window": "soon"}, 'NodeMetrics n1: window: "soon" is not a duration'),
        ({"usage": 7}, "NodeMetrics n1: .*usage"),
        ({"metadata": 7}, "NodeMetrics: "),
    ],
)
def test_a_bad_sample_is_refused_with_its_object_and_field(changed: dict[str, Any], sentence: str) -> None:
    """The error is a sentence that says which object and field are wrong."""
    with pytest.raises(ModelError, match=sentence):
        to_node_sample(_node(**changed), _NOW)


@pytest.mark.parametrize("value", [b'"\xff"', b"[" * 100_000 + b"]" * 100_000])
@pytest.mark.parametrize("field", [b"window", b"metadata"])
def test_bytes_that_nobody_can_read_are_one_bad_sample(field: bytes, value: bytes) -> None:
    """Texts that are not UTF-8 and values nested without end are refused as any other bad sample."""
    rest = b', "metadata": {"name": "n1"}' if field == b"window" else b""
    with pytest.raises(ModelError, match=r"^NodeMetrics"):
        to_node_sample(b'{"' + field + b'": ' + value + rest + b"}", _NOW)


def test_a_sample_may_lie_a_little_in_the_future() -> None:
    """Clocks that differ by less than a minute spoil nothing."""
    assert to_node_sample(_node(timestamp="2026-10-14T11:47:30Z"), _NOW)[1].timestamp == _NOW + 50


def test_a_bad_container_is_named() -> None:
    """Of a pod with several containers the error names the one that is wrong."""
    with pytest.raises(ModelError, match=r'PodMetrics shop/web-1: containers\[1\].usage.cpu: "-2" is negative'):
        to_pod_sample(_pod({"cpu": "1", "memory": "1"}, {"cpu": "-2", "memory": "1"}), _NOW)


@pytest.mark.parametrize(
    ("usage", "problem"),
    [
        ({"cpu": "1", "memory": str(2**50)}, r"memory of all containers: .* is more than any node has"),
        ({"cpu": str(2**40), "memory": "1"}, r"cpu of all containers: .* is more than any node has"),
    ],
)
def test_the_sum_over_containers_is_checked(usage: dict[str, str], problem: str) -> None:
    """Each container may use as much as a node has; all of them together may not."""
    assert to_pod_sample(_pod(usage), _NOW)
    with pytest.raises(ModelError, match=rf"^PodMetrics shop/web-1: {problem}"):
        to_pod_sample(_pod(*[usage] * 9000), _NOW)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (float("nan"), "it is not a number"),
        (float("inf"), "it is infinite"),
        (-0.5, "-0.5 is negative"),
        (1e30, r"1e\+30 is more than any node has"),
    ],
)
def test_a_value_that_no_node_can_use_is_refused(value: float, problem: str) -> None:
    """The same check serves values of a Prometheus."""
    with pytest.raises(ModelError, match=f"cpu of n1: {problem}"):
        checked_use(value, "cpu of n1")
    assert checked_use(0.5, "cpu of n1") == 0.5
