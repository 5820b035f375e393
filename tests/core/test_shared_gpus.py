"""Pods and nodes whose GPUs HAMi or KAI-Scheduler hands out in shares, as they are read."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.draw import Manifest
from support.verdicts import read_pods

from flowcore.api import Interner, PodReader, WireNode, to_node
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.running import to_running_pod
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod
from flowcore.model.shared_gpus import HAMI_GPUS

#: What HAMi's device plugin writes, and the text that the project's page about its protocol shows.
HAMI_JSON = json.dumps([{"id": "GPU-7c1f", "count": 10, "devmem": 32768, "devcore": 100, "type": "NVIDIA-Tesla V100",
                         "mode": "hami-core", "health": True, "devicevendor": "NVIDIA"}])  # fmt: skip
HAMI_TEXT = "GPU-7c1f,10,32768,100,NVIDIA-Tesla V100-PCIE-32GB,0,true:"


def gpu_node(**annotations: Any) -> Node:
    """A node of one GPU, which HAMi offers ten times over."""
    manifest = {
        "metadata": {"name": "n", "annotations": annotations},
        "status": {"allocatable": {"cpu": "8", "nvidia.com/gpu": "10", "nvidia.com/gpumem": "320"}},
    }
    return to_node(msgspec.convert(manifest, WireNode), Interner())


def pod(annotations: Manifest | None = None, namespace: str = "default", labels: Manifest | None = None,
        **requests: str) -> Pod:  # fmt: skip
    amounts = {name.replace("__", "/").replace("_", "."): amount for name, amount in requests.items()}
    metadata = {"name": "p", "namespace": namespace, "labels": labels or {}}
    manifest = {
        "metadata": metadata if annotations is None else {**metadata, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1", **amounts}}}]},
    }
    return read_pods([manifest])[0]


@pytest.mark.parametrize("text", [HAMI_JSON, HAMI_TEXT, "[", 7])
def test_a_node_of_hami_offers_no_gpu(text: Any) -> None:
    """Its device plugin refuses pods that HAMi's scheduler has not placed. All else of the node stays."""
    assert gpu_node(**{HAMI_GPUS: text}).allocatable == (("cpu", 8000),)
    assert gpu_node(**{HAMI_GPUS: text}).problem == ""


def test_other_nodes_offer_their_gpus() -> None:
    """Without the annotation, and where HAMi has left an empty one."""
    assert dict(gpu_node(other="x").allocatable)["nvidia.com/gpu"] == 10
    assert dict(gpu_node(**{HAMI_GPUS: ""}).allocatable)["nvidia.com/gpu"] == 10


@pytest.mark.parametrize("name", ["nvidia_com__gpumem", "nvidia_com__gpumem-percentage", "nvidia_com__gpucores"])
def test_a_pod_that_asks_hami_for_a_share_is_not_planned(name: str) -> None:
    """No node offers these resources; only HAMi's scheduler reads them."""
    reason = pod(nvidia_com__gpu="1", **{name: "30"}).unsupported_reason
    resource = name.replace("__", "/").replace("_", ".")
    assert reason == f"its resource {resource} asks for a share of a GPU, which only HAMi's scheduler gives"


def test_a_whole_gpu_is_planned() -> None:
    """Beside HAMi and KAI-Scheduler as ever."""
    assert pod(nvidia_com__gpu="1").unsupported_reason == ""


@pytest.mark.parametrize(
    ("annotation", "text", "rest"),
    [
        ("gpu-fraction", "0.5", "which only KAI-Scheduler gives"),
        ("gpu-fraction", "1", 'and "1" is no number between 0 and 1'),
        ("gpu-fraction", "-0.5", 'and "-0.5" is no number between 0 and 1'),
        ("gpu-fraction", "nan", 'and "nan" is no number between 0 and 1'),
        ("gpu-fraction", "0." + "5" * 100_000, f'and "0.{"5" * 30}" is no number between 0 and 1'),
        ("gpu-memory", "2000", "which only KAI-Scheduler gives"),
        ("gpu-memory", "2Gi", 'and "2Gi" is no whole number above zero'),
        ("gpu-memory", "0", 'and "0" is no whole number above zero'),
        ("gpu-memory", "²", 'and "²" is no whole number above zero'),
        ("gpu-memory", "9" * 100_000, f'and "{"9" * 32}" is no whole number above zero'),
    ],
)
def test_a_pod_that_asks_kai_for_a_share_is_not_planned(annotation: str, text: str, rest: str) -> None:
    """Nobody else would give it one. A value that KAI-Scheduler would refuse is told."""
    assert (
        pod({annotation: text}).unsupported_reason == f"its annotation {annotation} asks for a share of a GPU, {rest}"
    )


_ANY = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=4)
_PLACES = st.sampled_from(["", "n"])


@given(st.sampled_from(["gpu-fraction", "gpu-memory"]), _ANY, _PLACES)
def test_no_annotation_of_a_tenant_changes_what_its_pod_takes(annotation: str, value: Any, place: str) -> None:
    """Whatever it says, of whatever shape: the pod is read, and takes what it requests, no GPU more and none less."""
    manifest: Manifest = {
        "metadata": {"name": "p", "namespace": "a", "annotations": {annotation: value, "hami.io/vgpu-node": "n"}},
        "spec": {"nodeName": place, "containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "2"}}}]},
    }
    read = PodReader(Interner())(json.dumps(manifest).encode())
    assert read.usage == (("nvidia.com/gpu", 2),)
    assert read.blocked_reason == ""
    assert bool(read.unsupported_reason) is bool(value)
    assert not read.holds_shared_gpu


@pytest.mark.parametrize(
    ("namespace", "labels", "reason"),
    [
        ("kai-resource-reservation", {"runai-gpu-group": "g"}, "pods of KAI-Scheduler share the GPU that it holds"),
        ("kai-resource-reservation", {"app": "kai-resource-reservation"}, ""),
        ("tenant", {"runai-gpu-group": "g"}, ""),
    ],
)
def test_who_holds_a_shared_gpu_is_not_evicted(namespace: str, labels: Manifest, reason: str) -> None:
    """The GPU would count as free while pods still use it. No tenant protects its pods by the label."""
    held = pod(namespace=namespace, labels=labels, nvidia_com__gpu="1")
    assert to_running_pod(Cluster(), held, None, 0.0).unevictable_reason == reason
    assert held.usage == (("cpu", 1000), ("nvidia.com/gpu", 1))
