"""What a hostile or broken tenant does to a scheduler: manifests, and a flood of bad requests."""

from __future__ import annotations

import asyncio
import http.client
import json
import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import Any, Final, Self

from thalweg_controlplane.client.objects import Manifest, pod

#: Namespace of the attacker's pods; the measured pods of everybody else are in `default`.
HOSTILE: Final = "hostile"
_LABEL: Final = {"bench": "hostile"}
_SPAWN = multiprocessing.get_context("spawn")
#: Bad requests that one flooding connection sends before it reads the answers.
_PIPELINED: Final = 64
#: Seconds between two requests of the client that behaves.
_GOOD_EVERY: Final = 0.02


def namespace() -> Manifest:
    """The attacker's namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOSTILE, "labels": dict(_LABEL)}}


def gangs_naming_each_other(count: int) -> list[Manifest]:
    """Gangs of one pod; each names all of them as its gang group."""
    names = ",".join(f"g{number}" for number in range(count))
    return [
        pod(
            f"gang-{number:04}",
            "100m",
            "100Mi",
            HOSTILE,
            annotations={
                "scheduling.thalweg/gang": f"g{number}",
                "scheduling.thalweg/gang-min-member": "1",
                "scheduling.thalweg/gang-group": names,
            },
        )
        for number in range(count)
    ]


def poison(number: int, constraints: int) -> Manifest:
    """A pod with thousands of spread constraints over different topology keys."""
    spread = [
        {
            "topologyKey": f"example.com/key-{number}-{at}",
            "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": f"app-{at}"}},
        }
        for at in range(constraints)
    ]
    return pod(f"poison-{number}", "100m", "100Mi", HOSTILE, topologySpreadConstraints=spread)


def _hopeless(name: str, cpu: str = "2000", **fields: Any) -> Manifest:
    """A pod that asks for more than any node has."""
    return pod(name, cpu, "10Mi", HOSTILE, **fields)


def _own_terms(number: int, count: int, key: str = "kubernetes.io/hostname") -> list[Manifest]:
    """Terms about pods of its own namespace that are not there."""
    return [
        {"topologyKey": key, "labelSelector": {"matchLabels": {f"key-{at}": f"value-{number}"}}} for at in range(count)
    ]


def many_terms(number: int, count: int, node: str) -> Manifest:
    """A running pod whose required anti-affinity has many terms, none of which an index of labels finds."""
    terms = [
        {
            "topologyKey": "x",
            "labelSelector": {"matchExpressions": [{"key": f"k{at}", "operator": "NotIn", "values": [f"v{number}"]}]},
        }
        for at in range(count)
    ]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return pod(f"resident-{number}", "1m", "1Mi", HOSTILE, "default-scheduler", nodeName=node, affinity=affinity)


def many_rules(count: int) -> list[Manifest]:
    """Pods with as many required anti-affinity terms as are planned, less some."""
    return [
        _hopeless(
            f"apart-{number:04}",
            affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _own_terms(number, 192)}},
        )
        for number in range(count)
    ]


def many_wishes(count: int) -> list[Manifest]:
    """Pods with 200 preferred affinity terms of different weights."""
    return [
        _hopeless(
            f"wish-{number:04}",
            affinity={
                "podAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1 + at % 100, "podAffinityTerm": term}
                        for at, term in enumerate(_own_terms(number, 200, "zone"))
                    ]
                }
            },
        )
        for number in range(count)
    ]


def distinct_requests(count: int) -> list[Manifest]:
    """Pods that are a class each."""
    return [_hopeless(f"class-{number:04}", f"{2_000_000 + number}m") for number in range(count)]


def data_policy() -> Manifest:
    """A policy that prices where data are, for pods with a label that anybody may write."""
    selects = {"podSelector": {"matchLabels": {"app": "genomics"}}}
    metadata = {"name": "data"}
    kind = {"apiVersion": "scheduling.thalweg/v1alpha1", "kind": "FlowSchedulingPolicy"}
    return {**kind, "metadata": metadata, "spec": {"selects": selects, "cost": {"dataLocality": {}}}}


def far_data(count: int, nodes: list[str]) -> list[Manifest]:
    """Pods whose annotation names 64 sources of data, each in 16 places."""

    def sources(number: int) -> str:
        return json.dumps(
            [
                {
                    "anyOf": [{"node": nodes[(number + at + place) % len(nodes)]} for place in range(16)],
                    "bytes": str(2**30 + number * 7 + at),
                }
                for at in range(64)
            ]
        )

    return [
        _hopeless(
            f"data-{number:04}",
            labels={"app": "genomics"},
            annotations={"scheduling.thalweg/data": sources(number)},
        )
        for number in range(count)
    ]


def bystanders(count: int, nodes: list[str]) -> list[Manifest]:
    """A namespace with running pods of somebody else."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bystander"}}
    pods = [
        pod(f"runs-{at:05}", "10m", "10Mi", "bystander", labels={"app": f"a{at % 50}"}, nodeName=nodes[at % len(nodes)])
        for at in range(count)
    ]
    return [space, *pods]


def urgent_class() -> Manifest:
    """A PriorityClass for ``urgent``."""
    metadata = {"name": "urgent"}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": 1000}


def urgent() -> Manifest:
    """A pod that outranks others and fits nowhere: from then on the operator looks at pods that may leave."""
    return _hopeless("urgent", priorityClassName="urgent")


def budgets(count: int) -> list[Manifest]:
    """PodDisruptionBudgets that select all pods of the attacker's namespace."""
    kind = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    return [
        {
            **kind,
            "metadata": {"name": f"budget-{at}", "namespace": HOSTILE},
            "spec": {"maxUnavailable": 0, "selector": {}},
        }
        for at in range(count)
    ]


#: One of them.
BUDGET: Final = f"/apis/policy/v1/namespaces/{HOSTILE}/poddisruptionbudgets/budget-0"


def teams(count: int, nodes: list[str]) -> list[Manifest]:
    """Namespaces, each with a running pod of a size of its own."""
    spaces: list[Manifest] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"team-{at}", "labels": {"team": f"t{at}"}}}
        for at in range(count)
    ]
    pods = [
        pod("runs", f"{100 + at % 300}m", "10Mi", f"team-{at}", nodeName=nodes[at % len(nodes)]) for at in range(count)
    ]
    return [*spaces, *pods]


def queues(count: int) -> list[Manifest]:
    """A FlowQueue for each of these namespaces, and one for the namespace of the measured pods."""
    kind = {"apiVersion": "scheduling.thalweg/v1alpha1", "kind": "FlowQueue"}
    labels = {f"team-{at}": {"team": f"t{at}"} for at in range(count)}
    labels["measured"] = {"kubernetes.io/metadata.name": "default"}
    return [
        {
            **kind,
            "metadata": {"name": name},
            "spec": {"selects": {"namespaceSelector": {"matchLabels": selected}}},
        }
        for name, selected in labels.items()
    ]


def failing_webhook() -> Manifest:
    """An admission webhook that nobody serves: bindings in the attacker's namespace are answered with 500."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "nobody-answers"},
        "webhooks": [
            {
                "name": "nobody.example.invalid",
                "clientConfig": {"url": "https://127.0.0.1:1/"},
                "rules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}
                ],
                "namespaceSelector": {"matchLabels": dict(_LABEL)},
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "timeoutSeconds": 1,
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


class Flood:
    """`with Flood(host, port, path, rate) as flood:` sends bad requests from a process of its own.

    Every other request cannot be read; the others are about a pod that does not exist and 100 nodes that do.

    Args:
        rate: requests a second that it tries to send; the server may take fewer.

    Attributes:
        sent, answered: requests a second, once it has ended.
    """

    def __init__(self, host: str, port: int, path: str, rate: int) -> None:
        self._near, far = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_flood, args=(host, port, path, rate, far), daemon=True)
        self.sent, self.answered = 0.0, 0.0

    def __enter__(self) -> Self:
        self._process.start()
        self._near.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._near.send("stop")
        self.sent, self.answered = self._near.recv()
        self._process.join()


def good_requests(host: str, port: int, path: str, body: bytes, seconds: float) -> list[float]:
    """Asks as kube-scheduler does, 50 times a second on one connection that is kept; seconds that each answer took."""
    connection = http.client.HTTPConnection(host, port, timeout=60)
    times, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        started = time.perf_counter()
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise OSError(f"a good request was answered with {answer.status}")
        times.append(time.perf_counter() - started)
        time.sleep(_GOOD_EVERY)
    connection.close()
    return times


def filter_request(asked: Any, nodes: list[str]) -> bytes:
    """The body of kube-scheduler's filter call for a pod."""
    return json.dumps({"Pod": asked, "Nodes": None, "NodeNames": nodes}).encode()


def _flood(host: str, port: int, path: str, rate: int, pipe: Connection) -> None:
    asyncio.run(_flooding(host, port, path, rate, pipe))


async def _flooding(host: str, port: int, path: str, rate: int, pipe: Connection) -> None:
    garbage = b'{"Pod": 5, "NodeNames": ["a"]}'
    forged = filter_request(pod("ghost", "8", "8Gi"), [f"node-{at:05}" for at in range(100)])
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: ".encode()
    batch = b"".join(head + b"%d\r\n\r\n" % len(body) + body for body in (garbage, forged)) * (_PIPELINED // 2)
    counts, stop, begun = {"sent": 0, "answered": 0}, asyncio.Event(), time.monotonic()
    asyncio.get_running_loop().add_reader(pipe.fileno(), stop.set)
    pipe.send("flooding")

    async def one_connection() -> None:
        while not stop.is_set():
            try:
                reader, writer = await asyncio.open_connection(host, port)
                reading = asyncio.create_task(_count_answers(reader, counts))
                while not stop.is_set() and not reading.done():
                    if counts["sent"] > rate * (time.monotonic() - begun):
                        await asyncio.sleep(0.001)
                        continue
                    writer.write(batch)
                    await writer.drain()
                    counts["sent"] += _PIPELINED
                reading.cancel()
                writer.close()
            except OSError:
                await asyncio.sleep(0.01)

    connections = [asyncio.create_task(one_connection()) for _ in range(16)]
    await stop.wait()
    for each in connections:
        each.cancel()
    seconds = time.monotonic() - begun
    pipe.send((counts["sent"] / seconds, counts["answered"] / seconds))


async def _count_answers(reader: asyncio.StreamReader, counts: dict[str, int]) -> None:
    while answers := await reader.read(1 << 16):
        counts["answered"] += answers.count(b"HTTP/1.1 ")
