"""Sums of what pods ask for can be sent, however much each asks for: a number beyond 64 bits would end the operator."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from support.draw_devices import read_claims, read_slices
from support.model import node, snapshot
from thalweg_operator.errors import WorkerLost
from thalweg_operator.planning.worker.client import WorkerClient
from thalweg_operator.planning.worker.messages import RoundRequest, request_decoder, request_encoder

from flowcore.api.base import Interner
from flowcore.api.pod_objects import WirePod
from flowcore.api.pods import to_pod
from flowcore.cluster.changes import ClusterChanges
from flowcore.cluster.cluster import Cluster
from flowcore.costs.shares.shares import Shares
from flowcore.model.numa import NumaNode, claims_of
from flowcore.model.pods import Pod
from flowcore.model.policies import BUILT_IN
from flowcore.model.quantities import MAX_AMOUNT
from flowcore.model.queues import Queue, QueueState, QueueUsage
from flowcore.model.selectors import LabelSelector
from flowcore.planning.round_input import RoundInput


def huge(name: str, containers: int = 1, **requests: str) -> Pod:
    """A pod with a node, as the API server has it."""
    resources = {"requests": requests, "limits": requests}
    spec = {"nodeName": "n1", "containers": [{"name": f"c{i}", "resources": resources} for i in range(containers)]}
    metadata = {"name": name, "namespace": "default", "uid": name}
    manifest = {"metadata": metadata, "spec": spec, "status": {"phase": "Running", "qosClass": "Guaranteed"}}
    return to_pod(msgspec.convert(manifest, WirePod), Interner())


def request(number: int, queue_usage: dict[str, QueueUsage] | None = None) -> RoundRequest:
    """One without pods."""
    asked = RoundRequest(number, 1, 0.0, True, ClusterChanges(), [BUILT_IN], [], [], [], 1.0)
    return msgspec.structs.replace(asked, queue_usage=queue_usage or {})


def test_what_a_queue_uses() -> None:
    """Three pods that ask for more together than a number can say."""
    cluster = Cluster()
    cluster.set_namespace("default", ())
    cluster.put_node(node("n1"))
    cluster.queues.put("q", Queue("q", namespaces=LabelSelector(())))
    for name in "abc":
        cluster.put_pod(huge(name, **{"example.com/nothing": "9E"}))
    usage = RoundInput(cluster, [], None, lambda _pod: BUILT_IN).complete().queues.usage
    assert dict(usage["q"].used)["example.com/nothing"] == MAX_AMOUNT
    assert request_encoder.encode(request(1, dict(usage)))


@pytest.mark.parametrize("containers", [1, 3])
def test_what_pods_take_from_numa_zones(containers: int) -> None:
    """Of one pod, and of several together."""
    needs = huge("a", containers, cpu="1", memory="9E").pod_class.numa
    claims = claims_of([needs] * 3, NumaNode("n1", ((("cpu", 4000), ("memory", 10)),), single=True))
    assert msgspec.msgpack.encode(claims)


def test_what_a_parent_uses() -> None:
    """The sum over its queues, in the reply."""
    queues = (Queue("top"), *(Queue(name, parent="top") for name in "abc"))
    used = QueueUsage((("memory", MAX_AMOUNT), ("pods", 1)))
    cluster = replace(snapshot([node("n1")], []), queues=QueueState(queues, dict.fromkeys("abc", used)))
    shares = Shares(cluster).report()
    assert [dict(share.used)["memory"] for share in shares] == [MAX_AMOUNT] * 4
    assert msgspec.msgpack.encode(shares)


@pytest.mark.parametrize("amount", ["80Gi", "9E", "-9E", "1500m"])
def test_what_devices_have_and_claims_ask_for(amount: str) -> None:
    """Of the memory of a GPU, or of any counter, billionths are beyond 64 bits."""
    counters = [{"name": "card", "counters": {"memory": {"value": amount}}}]
    policy = {"default": amount, "validRange": {"min": amount, "max": amount, "step": amount}, "validValues": [amount]}
    device = {
        "name": "gpu-0",
        "capacity": {"memory": {"value": amount, "requestPolicy": policy}},
        "consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": amount}}}],
    }
    slices = [{"metadata": {"name": "s"}, "spec": {"driver": "d", "devices": [device], "sharedCounters": counters}}]
    exactly = {"deviceClassName": "gpu", "capacity": {"requests": {"memory": amount}}}
    result = {"request": "r", "driver": "d", "pool": "p", "device": "gpu-0", "consumedCapacity": {"memory": amount}}
    claim = {
        "metadata": {"name": "c", "namespace": "default", "uid": "c"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }
    changes = ClusterChanges(slices=read_slices(slices), claims=read_claims([claim]))
    sent = request_encoder.encode(msgspec.structs.replace(request(1), changes=changes))
    assert request_decoder.decode(sent).changes == changes


async def test_a_number_that_nobody_can_send() -> None:
    """It is the round's failure, and the operator goes on."""
    worker = WorkerClient(30)
    await worker.start()
    with pytest.raises(WorkerLost, match="cannot be sent"):
        await worker.ask(request(2**70))
    await worker.start()
    assert (await worker.ask(request(2))).number == 2
    await worker.stop()
