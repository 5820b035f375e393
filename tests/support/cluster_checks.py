"""What must hold of a cluster whatever happened to it, judged by the API server's own objects.

Nothing here goes through the code under test: quantities are read anew, and legality is kube-scheduler's own verdict.
"""

import asyncio
import ssl
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Self

import aiohttp
import msgspec
from thalweg_controlplane import Api, ApiError, Oracle

_SUFFIXES = {"m": Decimal("0.001"), "": Decimal(1), "k": Decimal(1000), "M": Decimal(10**6), "G": Decimal(10**9),
             "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40)}  # fmt: skip
#: Filters whose verdict on a bound pod does not depend on the other pods.
_STATIC = ("NodeName", "NodeUnschedulable", "TaintToleration", "NodeAffinity")
#: Filters that are asked pod by pod, where there are few.
_MUTUAL = ("NodePorts", "InterPodAffinity")
_FEW = 40


def quantity(text: str | int) -> Decimal:
    """A Kubernetes quantity in whole units."""
    text = str(text)
    number = text.rstrip("kKMGTim")
    return Decimal(number) * _SUFFIXES[text[len(number) :]]


def requests(pod: Mapping[str, Any]) -> Counter[str]:
    """What a pod takes on its node, itself as one of `pods`, without extended resources that it has by devices."""
    spec, total = pod["spec"], Counter({"pods": Decimal(1)})
    for container in spec["containers"]:
        for name, amount in _container_requests(container).items():
            total[name] += quantity(amount)
    for container in spec.get("initContainers", ()):
        for name, amount in _container_requests(container).items():
            total[name] = max(total[name], quantity(amount))
    by_devices = pod.get("status", {}).get("extendedResourceClaimStatus", {}).get("requestMappings", ())
    for mapping in by_devices:
        total.pop(mapping["resourceName"], None)
    return total  # type: ignore[return-value]


def _container_requests(container: Mapping[str, Any]) -> Mapping[str, Any]:
    return container.get("resources", {}).get("requests", {})  # type: ignore[no-any-return]


def is_running(pod: Mapping[str, Any]) -> bool:
    """Bound and not yet at its end."""
    return bool(pod["spec"].get("nodeName")) and pod["status"].get("phase") not in ("Succeeded", "Failed")


def unschedulable_message(pod: Mapping[str, Any]) -> str:
    """The message of its PodScheduled=False condition."""
    for condition in pod["status"].get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message", "")) or str(condition.get("reason", ""))
    return ""


class PodHistory:
    """Follows all pods from its start: where each went, and how full each node ever was.

    Events come in the order in which the API server carried them out, so a node that was overcommitted for a
    moment only is found as well. Where the API server forgot what happened (it was killed), the list is taken up again.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._pods: dict[str, dict[str, Any]] = {}
        self._use: dict[str, Counter[str]] = defaultdict(Counter)
        self._task: asyncio.Task[None] | None = None
        self._listed = asyncio.Event()
        self.version = 0
        self.peaks: dict[str, Counter[str]] = defaultdict(Counter)
        self.nodes_of: dict[str, list[str]] = defaultdict(list)
        #: When each pod was first seen with a node, seconds of the monotonic clock.
        self.bound_at: dict[str, float] = {}
        self.seen: dict[str, str] = {}
        self.deleted: set[str] = set()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._follow())
        await self._listed.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def wait_caught_up(self, version: int) -> None:
        """Returns when everything up to this resource version was seen, by the next bookmark at the latest."""
        while self.version < version:
            assert self._task is not None
            if self._task.done():
                self._task.result()
            await asyncio.sleep(0.02)

    async def _follow(self) -> None:
        connector = aiohttp.TCPConnector(ssl=_tls(self._api))
        async with aiohttp.ClientSession(
            headers=self._api._headers, connector=connector, read_bufsize=2**22
        ) as session:
            while True:
                try:
                    page = await self._api.get("/api/v1/pods")
                    self._restart(page)
                    self._listed.set()
                    await self._watch(session)
                except (aiohttp.ClientError, ApiError, TimeoutError, OSError):
                    await asyncio.sleep(0.1)

    def _restart(self, page: Mapping[str, Any]) -> None:
        now = {pod["metadata"]["uid"]: pod for pod in page["items"]}
        for uid in [uid for uid in self._pods if uid not in now]:
            self._take("DELETED", self._pods[uid])
        for pod in page["items"]:
            self._take("ADDED", pod)
        self.version = int(page["metadata"]["resourceVersion"])

    async def _watch(self, session: aiohttp.ClientSession) -> None:
        while True:
            params = {"watch": "1", "resourceVersion": str(self.version), "allowWatchBookmarks": "true"}
            async with session.get(self._api.url + "/api/v1/pods", params=params) as answer:
                if answer.status >= 400:
                    raise ApiError(answer.status, await answer.text())
                rest = b""
                async for chunk in answer.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        event = msgspec.json.decode(line)
                        if event["type"] == "ERROR":
                            raise ApiError(event["object"].get("code", 500), str(event["object"]))
                        if event["type"] != "BOOKMARK":
                            self._take(event["type"], event["object"])
                        self.version = int(event["object"]["metadata"]["resourceVersion"])

    def _take(self, kind: str, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        self.seen[uid] = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        node = pod["spec"].get("nodeName")
        if node and node not in self.nodes_of[uid]:
            self.nodes_of[uid].append(node)
            self.bound_at.setdefault(uid, time.monotonic())
        old = self._pods.pop(uid, None)
        if old is not None and is_running(old):
            self._use[old["spec"]["nodeName"]].subtract(requests(old))
        if kind == "DELETED":
            self.deleted.add(uid)
            return
        self._pods[uid] = pod
        if node and is_running(pod):
            use = self._use[node]
            use.update(requests(pod))
            for name, amount in use.items():
                self.peaks[node][name] = max(self.peaks[node][name], amount)


def check_history(history: PodHistory, nodes: Iterable[Mapping[str, Any]]) -> None:
    """No pod ever changed its node, and no node that is still there was ever overcommitted."""
    moved = {history.seen[uid]: places for uid, places in history.nodes_of.items() if len(places) > 1}
    assert not moved, f"bound twice: {moved}"
    for node in nodes:
        _check_capacity(node, history.peaks.get(node["metadata"]["name"], Counter()), "at its fullest")


def check_not_overcommitted(nodes: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]) -> None:
    """What the pods of a node ask for is no more than it has, in any resource."""
    use: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in pods:
        if is_running(pod):
            use[pod["spec"]["nodeName"]].update(requests(pod))
    for node in nodes:
        _check_capacity(node, use[node["metadata"]["name"]], "now")


def _check_capacity(node: Mapping[str, Any], use: Mapping[str, Any], when: str) -> None:
    allocatable = {name: quantity(amount) for name, amount in node["status"]["allocatable"].items()}
    over = {
        name: f"{taken} of {allocatable.get(name, 0)}"
        for name, taken in use.items()
        if taken > allocatable.get(name, 0)
    }
    assert not over, f"{node['metadata']['name']} is overcommitted {when}: {over}"


def free_of(nodes: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Decimal]]:
    """What the pods of each node leave free of each resource."""
    free = {
        node["metadata"]["name"]: {name: quantity(each) for name, each in node["status"]["allocatable"].items()}
        for node in nodes
    }
    for pod in pods:
        left = free.get(pod["spec"].get("nodeName", ""))
        if left is not None and is_running(pod):
            for name, amount in requests(pod).items():
                left[name] = left.get(name, Decimal(0)) - amount
    return free


def room_for(free: Mapping[str, Mapping[str, Decimal]], wanted: Mapping[str, Any]) -> int:
    """How many pods that ask for this have room, without any rule but resources."""
    return sum(
        max(0, min(int(left.get(name, Decimal(0)) // amount) for name, amount in wanted.items() if amount))
        for left in free.values()
    )


def check_legal(
    oracle: Oracle,
    nodes: list[Mapping[str, Any]],
    pods: list[Mapping[str, Any]],
    namespaces: list[Mapping[str, Any]],
    scheduler: str = "thalweg",
) -> None:
    """kube-scheduler's own filters allow every pod that we bound on its node."""
    names = {node["metadata"]["name"] for node in nodes}
    here = [pod for pod in pods if is_running(pod) and pod["spec"]["nodeName"] in names]
    ours = [pod for pod in here if pod["spec"]["schedulerName"] == scheduler]
    if not ours:
        return
    verdicts = oracle.judge(nodes, [], [_unbound(pod) for pod in ours], _STATIC)
    mutual = {}
    if len(ours) <= _FEW:
        for pod in ours:
            others = [other for other in here if other is not pod]
            mutual[_key(pod)] = oracle.judge(nodes, others, [_unbound(pod)], _MUTUAL, namespaces)
    for pod in ours:
        for answers in (verdicts, mutual.get(_key(pod), {})):
            for name, answer in answers.items():
                verdict = answer[_key(pod)][pod["spec"]["nodeName"]]
                assert verdict.fits, f"{_key(pod)} is on {pod['spec']['nodeName']} against {name}: {verdict.reason}"


def _unbound(pod: Mapping[str, Any]) -> dict[str, Any]:
    return {**pod, "spec": {key: value for key, value in pod["spec"].items() if key != "nodeName"}, "status": {}}


def unexplained_pods(pods: Iterable[Mapping[str, Any]], scheduler: str = "thalweg") -> list[str]:
    """Our pods that neither have a node nor know why not."""
    return [
        _key(pod)
        for pod in pods
        if pod["spec"]["schedulerName"] == scheduler
        and not pod["spec"].get("nodeName")
        and not unschedulable_message(pod)
        and not pod["metadata"].get("deletionTimestamp")
        and pod["status"].get("phase") == "Pending"
    ]


def _key(pod: Mapping[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _tls(api: Api) -> ssl.SSLContext:
    return api._tls
