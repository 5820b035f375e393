"""What an object that cannot be read means for the state: never more room, never a policy that may be another's."""

import asyncio
import json
from typing import Any, cast

import pytest
from support import virtual_time
from support.fake_api import ScriptedApi
from support.fake_cluster.driven_ledger import DrivenLedger
from thalweg_operator.api.bad_input import BadInput
from thalweg_operator.api.watches import sinks
from thalweg_operator.api.watches.reflector import Reflector
from thalweg_operator.metrics import Metrics

from flowcore.api import Interner, storage_decoder
from flowcore.api.kinds import POD_GROUPS, STORAGE
from flowcore.cluster.kinds import GROUPS_OF_PODS, STORAGE_OBJECTS
from flowcore.model.gang_spec import GangKey, GangSource

(CSI_NODE,) = (kind for kind in STORAGE if kind.kind == "CSINode")


def _after(state: DrivenLedger, sink: Any, decode: Any, *lists: list[bytes]) -> DrivenLedger:
    """The state after these lists, one after the other."""

    async def main() -> None:
        api = ScriptedApi()
        metrics = Metrics()
        connection = cast("Any", api)
        pages = [b'{"metadata":{"resourceVersion":"1"},"items":[' + b",".join(items) + b"]}" for items in lists]
        api.listing = lambda _number: pages.pop(0) if len(pages) > 1 else pages[0]
        api.watching = lambda _number: b'{"type":"ERROR","object":{"code":410}}\n'
        reflector = Reflector("kind", "/", connection, decode, sink, metrics, BadInput(metrics), api.outages)
        task = asyncio.create_task(reflector.run())
        await asyncio.sleep(30)
        assert not task.done(), task
        task.cancel()

    virtual_time.run(main())
    return state


def _raw(name: str, namespace: str = "", **rest: Any) -> bytes:
    meta = {"name": name, "uid": f"u-{name}", **({"namespace": namespace} if namespace else {})}
    return json.dumps({"metadata": meta, **rest}).encode()


def test_nothing_is_planned_onto_a_node_that_cannot_be_read() -> None:
    """Known before or not. Its labels stay as they were: what runs in its zone still counts there."""
    state = DrivenLedger()
    good = [
        _raw(name, status={"allocatable": {"cpu": "4", "pods": "10"}}).replace(b'"uid"', b'"labels":{"z":"1"},"uid"')
        for name in ("known", "sound")
    ]
    bad = [_raw(name, status={"allocatable": 5}) for name in ("known", "new")]
    _after(state, sinks.NodeSink(state.shell), sinks.node_decoder(Interner()), good, [*bad, good[1]])
    assert {name: bool(each.problem) for name, each in state.nodes.items()} == {
        "known": True,
        "new": True,
        "sound": False,
    }
    assert state.nodes["known"].labels == state.nodes["sound"].labels != ()


@pytest.mark.parametrize(
    "spec", [b'{"nodeName":"n","tolerations":7}', b'{"nodeName":"n","schedulerName":"\\ud800"}', b'{"nodeName":"n"}']
)
@pytest.mark.parametrize("meta", [b"", b',"labels":{"a":"\xff"}', b',"labels":' + b"[" * 9999 + b"]" * 9999])
def test_a_bound_pod_counts_on_its_node_however_little_can_be_read(spec: bytes, meta: bytes) -> None:
    """It holds all of it, unless it can be read."""
    state = DrivenLedger()
    raw = b'{"metadata":{"name":"p","namespace":"ns","uid":"u"' + meta + b'},"spec":' + spec + b"}"
    bad_input = BadInput(Metrics())
    _after(state, sinks.PodSink(state.shell, bad_input), sinks.pod_decoder(Interner(), bad_input), [raw])
    if b"ud800" in spec:
        # Not even where it is bound is sure. It is counted, and nothing else suffers.
        assert state.pods == {}
        return
    pod = state.pods["ns/p"]
    assert pod.node_name == "n"
    if meta or b"tolerations" in spec:
        assert "it cannot be read" in pod.blocked_reason
        assert dict(pod.usage)["cpu"] >= 10**12


def test_a_namespace_that_cannot_be_read_governs_nothing() -> None:
    """Its labels may select another policy now."""
    state = DrivenLedger()
    good = [_raw("a"), _raw("b")]
    bad = b'{"metadata":{"name":"a","labels":{"a":5}}}'
    _after(state, sinks.NamespaceSink(state.shell), sinks.namespace_decoder(), good, [bad, good[1]])
    assert list(state.namespaces) == ["b"]


def test_a_storage_object_that_cannot_be_read_stays_as_it_was() -> None:
    """A limit that was known is not forgotten; one that is gone from the list is."""
    state = DrivenLedger()
    good = [_raw(name, spec={"drivers": []}) for name in ("a", "b")]
    sink = sinks.ObjectSink(state.shell, CSI_NODE, STORAGE_OBJECTS)
    _after(state, sink, storage_decoder("CSINode", Interner()), good, [_raw("a", spec={"drivers": 5})])
    assert list(state.storage.objects) == [("CSINode", "", "a")]


def test_a_pod_group_that_cannot_be_read_holds_its_pods() -> None:
    """They are not placed as if they had no gang."""
    state = DrivenLedger()
    raw = b'{"metadata":{"name":"g","namespace":"ns"},"spec":{"minMember":"\xff"}}'
    _after(
        state,
        sinks.ObjectSink(state.shell, POD_GROUPS[GangSource.VOLCANO], GROUPS_OF_PODS),
        sinks.pod_group_decoder(GangSource.VOLCANO, Interner()),
        [raw],
    )
    assert "cannot be read" in state.gangs.groups[GangKey(GangSource.VOLCANO, "ns", "g")].problem
