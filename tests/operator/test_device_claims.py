"""Writes of claims against an API server that keeps resource versions: conflicts, lost answers, refusals."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from support.device_clusters import claim
from support.draw_devices import read_claims
from support.fake_api import hang_up, refusal, serving
from support.fake_cluster.driven_ledger import DrivenLedger
from support.operator import until
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.delivery.claims.device_claims import DeviceClaimWriter
from thalweg_operator.metrics import Metrics
from thalweg_operator.reservations.effects import Allocate, ReleaseClaims, ReleasedClaim, ReleasingGroup
from thalweg_operator.reservations.events import Answer

from flowcore.api.devices import WireDeviceClass, to_device_class
from flowcore.api.nesting import without_depth
from flowcore.model.devices import DeviceClass
from flowcore.model.gang_spec import GangKey, GangSource
from flowcore.model.pods import Pod, PodClass
from flowcore.model.resource_claims import AllocatedDevice, ClaimAllocation, GroupConsumer, PlannedClaim
from flowcore.model.resource_slices import DeviceId
from flowcore.model.selectors import NodeSelectorTerm, Requirement

SOON = Backoff(first=0.001, longest=0.001)
POD = Pod("default", "p", "u", PodClass())
FINALIZER = "resource.kubernetes.io/delete-protection"
ON_A = (NodeSelectorTerm(fields=(Requirement("metadata.name", "In", ("a",)),)),)
PLANNED = PlannedClaim(
    "default", "c", "c", ClaimAllocation((AllocatedDevice("r", DeviceId("gpu.example.com", "a", "gpu-0")),), ON_A)
)
OTHER = {"devices": {"results": [{"request": "r", "driver": "gpu.example.com", "pool": "b", "device": "gpu-7"}]}}
SAME = {"devices": {"results": [{"request": "r", "driver": "gpu.example.com", "pool": "a", "device": "gpu-0"}]}}
CONSUMER = {"resource": "pods", "name": "p", "uid": "u"}
ANOTHER = {"resource": "pods", "name": "q", "uid": "q"}
OURS = [{"manager": "thalweg", "subresource": "status", "fieldsV1": {"f:status": {"f:allocation": {}}}}]

Meanwhile = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


class ClaimServer:
    """One claim, patched as the API server does it.

    Attributes:
        patches: bodies of the patches that were carried out, with the subresource.
        meanwhile: what happens before each next patch; an answer is given in its place, an exception comes after it.
    """

    def __init__(self, **status: Any) -> None:
        self.claim: dict[str, Any] = copy.deepcopy(claim("c"))
        config = {"opaque": {"driver": "gpu.example.com", "parameters": {"of": "claim"}}}
        self.claim["spec"]["devices"]["config"] = [config]
        self.claim["metadata"] |= {"resourceVersion": "1", "managedFields": []}
        self.claim["status"] = status
        self.patches: list[tuple[str, dict[str, Any]]] = []
        self.meanwhile: list[Meanwhile] = []
        self.app = web.Application()
        path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c{tail:.*}"
        self.app.router.add_route("PATCH", path, self._patch)

    @property
    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.claim["status"]
        return status

    def change(self, **status: Any) -> None:
        """Somebody else writes the status."""
        self.claim["status"] = status
        self.claim["metadata"]["resourceVersion"] += "1"

    async def _patch(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if self.meanwhile:
            instead = await self.meanwhile.pop(0)(request)
            if instead is not None:
                return instead
        assert request.query["fieldManager"] == "thalweg"
        metadata = body["metadata"]
        if metadata["uid"] != self.claim["metadata"]["uid"]:
            return refusal(422, "metadata.uid: field is immutable")
        if metadata.get("resourceVersion", self._version) != self._version:
            return refusal(409, "the object has been modified")
        before = copy.deepcopy(self.claim)
        merges = request.content_type == "application/strategic-merge-patch+json"
        status = body.get("status", {})
        if merges and "reservedFor" in status:
            status = status | {"reservedFor": self._merged(status["reservedFor"])}
        for name, value in status.items():
            if value is None:
                self.status.pop(name, None)
            else:
                self.status[name] = value
        if "allocation" in body.get("status", {}):
            self.claim["metadata"]["managedFields"] = OURS if self.status.get("allocation") else []
        for finalizer in metadata.get("finalizers", []):
            finalizers = self.claim["metadata"].setdefault("finalizers", [])
            finalizers.extend([finalizer] * (finalizer not in finalizers))
        if before != self.claim:
            self.claim["metadata"]["resourceVersion"] += "1"
            self.patches.append((request.match_info["tail"], body))
        return web.json_response(self.claim)

    @property
    def _version(self) -> str:
        return str(self.claim["metadata"]["resourceVersion"])

    def _merged(self, changes: list[dict[str, str]]) -> list[dict[str, str]]:
        consumers = {each["uid"]: each for each in self.status.get("reservedFor", [])}
        for change in changes:
            if change.get("$patch") == "delete":
                consumers.pop(change["uid"], None)
            else:
                consumers[change["uid"]] = change
        return list(consumers.values())


class Scene:
    """A writer, and the answers that the ledger gets."""

    def __init__(
        self, writer: DeviceClaimWriter, answers: list[tuple[Answer, str]], metrics: Metrics, state: DrivenLedger
    ) -> None:
        self.writer, self.answers, self.metrics, self.state = writer, answers, metrics, state

    async def answer(self, write: Allocate | ReleaseClaims) -> tuple[Answer, str]:
        """The last answer to a write."""
        self.writer.put(write)
        await until(lambda: self.answers and not len(self.writer._queue), 10, lambda: "an answer")
        return self.answers[-1]


@asynccontextmanager
async def writing(
    server: ClaimServer, folder: Path, *, wanted: bool = True, device_class: DeviceClass | None = None
) -> AsyncIterator[Scene]:
    state = DrivenLedger()
    state.set_resource_claim(*read_claims([server.claim]))
    config = {"config": [{"opaque": {"driver": "gpu.example.com", "parameters": {"of": "class"}}}]}
    wire = {"metadata": {"name": "gpu"}, "spec": config}
    state.set_device_class("gpu", device_class or to_device_class(msgspec.convert(wire, WireDeviceClass)))
    answers: list[tuple[Answer, str]] = []

    class WantingShell:
        """As much of a shell as the writer asks."""

        cluster = state.cluster

        def is_wanted(self, _write: object) -> bool:
            return wanted

        def answered(self, _write: object, answer: Answer, reason: str = "") -> None:
            answers.append((answer, reason))

    metrics = Metrics()
    async with serving(server.app, folder) as connection:
        writer = DeviceClaimWriter(connection, WantingShell(), metrics, 4, backoff=SOON, refused=SOON)  # type: ignore[arg-type]
        task = asyncio.create_task(writer.run())
        try:
            yield Scene(writer, answers, metrics, state)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


ALLOCATE = Allocate(POD, "a", 1, (PLANNED,))
RELEASE = ReleaseClaims((ReleasedClaim("default", "c", "c"),), POD)


def answering_once(status: int, message: str = "no") -> Meanwhile:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return refusal(status, message)

    return answer


async def test_an_allocation_as_kube_scheduler_writes_it(tmp_path: Path) -> None:
    """The finalizer first; then devices, what drivers are told, and the pod, in one write."""
    server = ClaimServer()
    async with writing(server, tmp_path) as scene:
        assert await scene.answer(ALLOCATE) == (Answer.DONE, "")
    assert server.claim["metadata"]["finalizers"] == [FINALIZER]
    assert [tail for tail, _ in server.patches] == ["", "/status"]
    allocation = server.status["allocation"]
    assert allocation["devices"]["results"] == SAME["devices"]["results"]
    assert [each["opaque"]["parameters"] for each in allocation["devices"]["config"]] == [
        {"of": "class"},
        {"of": "claim"},
    ]
    assert allocation["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["a"]
    assert allocation["allocationTimestamp"].endswith("Z")
    assert server.status["reservedFor"] == [CONSUMER]
    (read,) = read_claims([server.claim])
    assert read.is_ours
    assert read.allocation is not None
    assert read.allocation.is_like(PLANNED.allocation)
    assert scene.metrics.claim_writes.labels("allocate", "done")._value.get() == 1


def nested(levels: int) -> dict[str, Any]:
    """Parameters with so many levels."""
    parameters: dict[str, Any] = {}
    for _ in range(levels - 1):
        parameters = {"a": parameters}
    return parameters


async def test_config_that_is_nested_too_deep(tmp_path: Path) -> None:
    """A driver would be told something else: nothing is written, and the pod is told why."""
    server = ClaimServer()
    parameters = server.claim["spec"]["devices"]["config"][0]["opaque"]
    parameters["parameters"] = nested(200)
    async with writing(server, tmp_path) as scene:
        answer, reason = await scene.answer(ALLOCATE)
        assert answer is Answer.REFUSED
        assert reason == "ResourceClaim default/c: its config is nested too deep to be copied"
        assert "allocation" not in server.status
        parameters["parameters"] = nested(40)
        assert await scene.answer(ALLOCATE) == (Answer.DONE, "")


@pytest.mark.parametrize("levels", [60, 3000])
async def test_config_of_a_class_that_is_nested_too_deep(tmp_path: Path, levels: int) -> None:
    """The same, as the reflector reads the class."""
    deep = b'{"a": ' * levels + b"1" + b"}" * levels
    config = b'{"config": [{"opaque": {"driver": "gpu.example.com", "parameters": ' + deep + b"}}]}"
    raw = without_depth(b'{"metadata": {"name": "gpu"}, "spec": ' + config + b"}")
    device_class = to_device_class(msgspec.json.decode(raw, type=WireDeviceClass))
    assert device_class.config == ("",)
    server = ClaimServer()
    async with writing(server, tmp_path, device_class=device_class) as scene:
        answer, reason = await scene.answer(ALLOCATE)
    assert answer is Answer.REFUSED
    assert reason == "ResourceClaim default/c: the config of the DeviceClass gpu is nested too deep to be copied"
    assert "allocation" not in server.status


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"allocation": SAME, "reservedFor": [ANOTHER]}, [ANOTHER, CONSUMER]),
        ({"allocation": SAME}, [CONSUMER]),
        ({"allocation": SAME, "reservedFor": [CONSUMER]}, [CONSUMER]),
    ],
)
async def test_a_claim_that_has_its_devices(
    tmp_path: Path, status: dict[str, Any], expected: list[dict[str, str]]
) -> None:
    """The pod is added, beside others; nothing else of the status changes."""
    server = ClaimServer(**status)
    async with writing(server, tmp_path) as scene:
        assert await scene.answer(ALLOCATE) == (Answer.DONE, "")
    assert server.status == status | {"reservedFor": expected}


async def test_others_write_meanwhile(tmp_path: Path) -> None:
    """A write by the resource version is refused, and the claim is looked at again: it may be had still, or not."""

    async def is_labelled(_request: web.Request) -> None:
        server.change()

    async def is_allocated(_request: web.Request) -> None:
        server.change(allocation=OTHER, reservedFor=[ANOTHER])

    async def nothing(_request: web.Request) -> None:
        pass

    server = ClaimServer()
    server.meanwhile = [nothing, is_labelled]
    async with writing(server, tmp_path) as scene:
        assert await scene.answer(ALLOCATE) == (Answer.DONE, "")
    assert server.status["reservedFor"] == [CONSUMER]
    server = ClaimServer()
    server.meanwhile = [nothing, is_allocated]
    async with writing(server, tmp_path) as scene:
        answer = await scene.answer(ALLOCATE)
    assert answer == (Answer.REFUSED, "ResourceClaim default/c: it was allocated otherwise in the meantime")
    assert server.status == {"allocation": OTHER, "reservedFor": [ANOTHER]}


async def test_a_lost_answer(tmp_path: Path) -> None:
    """The write was carried out: the next try sees it, and writes nothing."""

    async def nothing(_request: web.Request) -> None:
        pass

    server = ClaimServer()

    async def and_hangs_up(request: web.Request) -> web.StreamResponse:
        server.meanwhile = []
        await server._patch(request)
        return await hang_up(request)

    server.meanwhile = [nothing, and_hangs_up]
    async with writing(server, tmp_path) as scene:
        assert await scene.answer(ALLOCATE) == (Answer.DONE, "")
    assert len(server.patches) == 2
    assert server.status["reservedFor"] == [CONSUMER]


@pytest.mark.parametrize(
    ("status", "message", "reason"),
    [
        (404, "not found", "it is gone"),
        (409, "Precondition failed: UID", "Precondition failed: UID"),
        (403, "a webhook says no", "a webhook says no"),
        (422, "too many", "too many"),
    ],
)
async def test_refusals(tmp_path: Path, status: int, message: str, reason: str) -> None:
    """They are told as the API server says them. What passes is tried again."""
    server = ClaimServer()
    server.meanwhile = [answering_once(503), answering_once(429), answering_once(status, message)]
    async with writing(server, tmp_path) as scene:
        assert await scene.answer(ALLOCATE) == (Answer.REFUSED, f"ResourceClaim default/c: {reason}")
    assert server.patches == []


async def test_a_claim_that_is_being_deleted(tmp_path: Path) -> None:
    """It gets no devices."""
    server = ClaimServer()
    server.claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    async with writing(server, tmp_path) as scene:
        assert await scene.answer(ALLOCATE) == (Answer.REFUSED, "ResourceClaim default/c: it is being deleted")
    assert server.status == {}


async def test_what_is_not_wanted_any_more(tmp_path: Path) -> None:
    """Nothing is sent."""
    server = ClaimServer()
    async with writing(server, tmp_path, wanted=False) as scene:
        assert await scene.answer(ALLOCATE) == (Answer.UNWANTED, "")
        assert await scene.answer(RELEASE) == (Answer.UNWANTED, "")
    assert server.patches == []


@pytest.mark.parametrize(
    ("ours", "reserved", "pod", "left"),
    [
        (True, [CONSUMER], POD, {}),
        (True, [CONSUMER, ANOTHER], POD, {"allocation": SAME, "reservedFor": [ANOTHER]}),
        (False, [CONSUMER], POD, {"allocation": SAME, "reservedFor": []}),
        (True, [], None, {}),
        (True, [ANOTHER], None, {"allocation": SAME, "reservedFor": [ANOTHER]}),
        (False, [], None, {"allocation": SAME, "reservedFor": []}),
    ],
)
async def test_what_is_given_back(
    tmp_path: Path,
    ours: bool,  # noqa: FBT001
    reserved: list[dict[str, str]],
    pod: Pod | None,
    left: dict[str, Any],
) -> None:
    """The pod's reservation; the devices too if nobody else reserves them and we allocated them."""
    server = ClaimServer(allocation=SAME, reservedFor=reserved)
    server.claim["metadata"]["managedFields"] = OURS if ours else []
    async with writing(server, tmp_path) as scene:
        assert await scene.answer(ReleaseClaims(RELEASE.claims, pod)) == (Answer.DONE, "")
    assert {name: value for name, value in server.status.items() if value or left} == left


async def test_somebody_reserves_what_is_given_back(tmp_path: Path) -> None:
    """Between the two writes: then it keeps its devices."""

    async def nothing(_request: web.Request) -> None:
        pass

    async def is_reserved(_request: web.Request) -> None:
        server.change(allocation=SAME, reservedFor=[ANOTHER])

    server = ClaimServer(allocation=SAME, reservedFor=[CONSUMER])
    server.claim["metadata"]["managedFields"] = OURS
    server.meanwhile = [nothing, is_reserved]
    async with writing(server, tmp_path) as scene:
        assert await scene.answer(RELEASE) == (Answer.DONE, "")
    assert server.status == {"allocation": SAME, "reservedFor": [ANOTHER]}


async def test_what_must_be_given_back_is_tried_until_it_is(tmp_path: Path) -> None:
    """Whatever the API server says; a claim that is gone has nothing."""
    server = ClaimServer(allocation=SAME, reservedFor=[CONSUMER])
    server.claim["metadata"]["managedFields"] = OURS
    server.meanwhile = [answering_once(403, "no right"), answering_once(503)]
    async with writing(server, tmp_path) as scene:
        assert await scene.answer(RELEASE) == (Answer.DONE, "")
        assert scene.answers[0] == (Answer.RETRYING, "no right")
    assert server.status == {"reservedFor": []}
    server.meanwhile = [answering_once(404)]
    async with writing(server, tmp_path) as scene:
        assert await scene.answer(RELEASE) == (Answer.DONE, "")


async def test_a_claim_that_was_made_anew_has_nothing_to_give_back(tmp_path: Path) -> None:
    """It has the name, and another uid: the API server calls the patch invalid. It is tried until that is seen."""
    server = ClaimServer(allocation=SAME, reservedFor=[ANOTHER])
    server.claim["metadata"]["managedFields"] = OURS
    async with writing(server, tmp_path) as scene:
        server.claim["metadata"]["uid"] = "made anew"
        scene.writer.put(RELEASE)
        await until(lambda: scene.answers, 10, lambda: "an answer")
        assert scene.answers[0][0] is Answer.RETRYING
        scene.state.set_resource_claim(*read_claims([server.claim]))
        await until(lambda: not len(scene.writer._queue), 10, lambda: "the last answer")
    assert scene.answers[-1] == (Answer.DONE, "")
    assert server.status == {"allocation": SAME, "reservedFor": [ANOTHER]}


async def test_writes_for_one_pod_come_one_after_the_other(tmp_path: Path) -> None:
    """What is given back was written before: nothing stays allocated."""
    server, gate = ClaimServer(), asyncio.Event()

    async def slowly(_request: web.Request) -> None:
        await gate.wait()

    server.meanwhile = [slowly]
    async with writing(server, tmp_path) as scene:
        scene.writer.put(ALLOCATE)
        scene.writer.put(RELEASE)
        await asyncio.sleep(0.05)
        assert scene.answers == []
        assert server.patches == []
        gate.set()
        await until(lambda: len(scene.answers) == 2, 10, lambda: "both answers")
    assert server.status == {"reservedFor": []}


# --- of a PodGroup ---

#: Who reserves it in place of the pod.
GROUP = GroupConsumer("train", "group")
GROUP_CONSUMER = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "train", "uid": "group"}
FOR_GROUP = msgspec.structs.replace(
    ALLOCATE, claims=tuple(msgspec.structs.replace(each, group=GROUP) for each in ALLOCATE.claims)
)
RELEASE_OF_GROUP = ReleaseClaims(
    (ReleasedClaim("default", "c", "c"),), None, ReleasingGroup(GangKey(GangSource.NATIVE, "default", "train"), "group")
)


@pytest.mark.parametrize(
    ("status", "expected", "patches"),
    [
        ({}, [GROUP_CONSUMER], 2),
        ({"allocation": SAME}, [GROUP_CONSUMER], 2),
        ({"allocation": SAME, "reservedFor": [ANOTHER]}, [ANOTHER, GROUP_CONSUMER], 2),
        ({"allocation": SAME, "reservedFor": [GROUP_CONSUMER]}, [GROUP_CONSUMER], 1),
    ],
)
async def test_what_is_written_for_a_group(
    tmp_path: Path, status: dict[str, Any], expected: list[dict[str, str]], patches: int
) -> None:
    """As kube-scheduler does: the group is the consumer, and the pod is none."""
    server = ClaimServer(**status)
    async with writing(server, tmp_path) as scene:
        assert await scene.answer(FOR_GROUP) == (Answer.DONE, "")
        assert await scene.answer(msgspec.structs.replace(FOR_GROUP, reservation=2)) == (Answer.DONE, "")
    assert server.status["reservedFor"] == expected
    assert len(server.patches) == patches


@pytest.mark.parametrize(("consumers", "left"), [([GROUP_CONSUMER], []), ([GROUP_CONSUMER, CONSUMER], [CONSUMER])])
async def test_what_is_given_back_of_a_group(
    tmp_path: Path, consumers: list[dict[str, str]], left: list[dict[str, str]]
) -> None:
    """The group's reservation, and the devices if nobody else has one."""
    server = ClaimServer()
    async with writing(server, tmp_path) as scene:
        assert await scene.answer(FOR_GROUP) == (Answer.DONE, "")
        server.status["reservedFor"] = consumers
        assert await scene.answer(RELEASE_OF_GROUP) == (Answer.DONE, "")
    assert server.status["reservedFor"] == left
    assert ("allocation" in server.status) == bool(left)


async def test_what_is_given_back_for_a_group_comes_after_what_was_written_for_its_pod(tmp_path: Path) -> None:
    """The pod was given up while its claim was being written: nothing stays allocated."""
    server, gate = ClaimServer(), asyncio.Event()

    async def slowly(_request: web.Request) -> None:
        await gate.wait()

    server.meanwhile = [slowly]
    async with writing(server, tmp_path) as scene:
        scene.writer.put(FOR_GROUP)
        scene.writer.put(msgspec.structs.replace(RELEASE_OF_GROUP, pod=POD))
        await asyncio.sleep(0.05)
        assert (scene.answers, server.patches) == ([], [])
        gate.set()
        await until(lambda: len(scene.answers) == 2, 10, lambda: "both answers")
    assert server.status == {"reservedFor": []}
