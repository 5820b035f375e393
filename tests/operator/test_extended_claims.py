"""Writes for claims that the binder makes, against an API server that keeps them: lost answers, refusals, leftovers."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support.draw_devices import read_claims, read_classes
from support.fake_api import hang_up, refusal, serving
from support.fake_cluster.driven_ledger import DrivenLedger
from support.operator import until
from thalweg_operator.api.backoff import Backoff
from thalweg_operator.delivery.claims.device_claims import DeviceClaimWriter
from thalweg_operator.metrics import Metrics
from thalweg_operator.reservations.effects import Allocate, ReleaseClaims, ReleasedClaim
from thalweg_operator.reservations.events import Answer

from flowcore.cluster.arrays.device_objects import DeviceObjects
from flowcore.model.pods import Pod, PodClass
from flowcore.model.resource_claims import (
    AllocatedDevice,
    ClaimAllocation,
    ClaimRequest,
    DeviceRequest,
    ExtendedRequest,
    PlannedClaim,
    extended_claim_name,
)
from flowcore.model.resource_slices import DeviceId

SOON = Backoff(first=0.001, longest=0.001)
GPU, FPGA = "example.com/gpu", "example.com/fpga"
ASKED = (
    ExtendedRequest(FPGA, (("container-0-request-0", 1),), (("main", "container-0-request-0"),)),
    ExtendedRequest(GPU, (("container-0-request-1", 2),), (("main", "container-0-request-1"),)),
)
POD = Pod("default", "p", "u", PodClass(), extended=ASKED)
NAME = extended_claim_name("p", "u")
REQUEST = ClaimRequest(
    "container-0-request-1", DeviceRequest("container-0-request-1", "gpu", count=2), resource=GPU
)  # the node offers the other resource
DEVICES = tuple(AllocatedDevice(REQUEST.name, DeviceId("gpu.example.com", "a", f"gpu-{number}")) for number in range(2))
PLANNED = PlannedClaim("default", NAME, "", ClaimAllocation(DEVICES), (REQUEST,))
ALLOCATE = Allocate(POD, "a", 1, (PLANNED,))
RELEASE = ReleaseClaims((ReleasedClaim("default", NAME, "", is_extended=True),), POD)
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


class Server:
    """Claims and one pod, as the API server keeps them.

    Attributes:
        claims: by name.
        told: what the pod's status says of its claim.
        requests: method and what it was about, of all that were carried out.
        watched: what the operator knows of claims.
        fails: what is answered instead to such a request: "lost" after it was carried out, or a status.
    """

    def __init__(self) -> None:
        self.claims: dict[str, dict[str, Any]] = {}
        self.told: dict[str, Any] | None = None
        self.requests: list[str] = []
        self.fails: dict[str, list[int | str]] = {}
        self.keeps_told, self.watched = True, DeviceObjects()
        self._made = self._version = 0
        self.app = web.Application()
        self.app.router.add_post(CLAIMS, self._create)
        self.app.router.add_route("*", CLAIMS + "/{name}{tail:.*}", self._change)
        self.app.router.add_patch("/api/v1/namespaces/default/pods/p/status", self._tell)

    async def _answered(self, request: web.Request, what: str, claim: Any) -> web.StreamResponse:
        self.requests.append(what)
        if self._fails(what, "lost"):
            return await hang_up(request)
        return web.json_response(claim)

    def _fails(self, what: str, how: int | str) -> bool:
        if self.fails.get(what, [])[:1] != [how]:
            return False
        self.fails[what].pop(0)
        return True

    def _refuses(self, what: str) -> web.Response | None:
        for status in (403, 404, 409, 503):
            if self._fails(what, status):
                return refusal(status, "no")
        return None

    async def _create(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        refused = self._refuses("create")
        if refused is not None:
            return refused
        name = body["metadata"]["name"]
        if name in self.claims:
            return refusal(409, f'resourceclaims "{name}" already exists')
        self._made += 1
        written = [{"manager": request.query["fieldManager"], "fieldsV1": {"f:spec": {}}}]
        body["metadata"] |= {"uid": f"made-{self._made}", "resourceVersion": "1", "managedFields": written}
        self.claims[name] = body | {"status": {}}
        return await self._answered(request, "create", self.claims[name])

    async def _change(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        claim = self.claims.get(request.match_info["name"])
        what = "delete" if request.method == "DELETE" else f"patch{request.match_info['tail']}"
        refused = self._refuses(what)
        if refused is not None:
            return refused
        if claim is None:
            return refusal(404, "not found")
        metadata = claim["metadata"]
        asked = body["preconditions"] if what == "delete" else body.get("metadata", {})
        if any(asked[key] != metadata[key] for key in ("uid", "resourceVersion") if key in asked):
            return refusal(409, "the object has been modified")
        if what == "delete":
            if metadata.get("finalizers"):
                metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            else:
                del self.claims[metadata["name"]]
            return await self._answered(request, what, claim)
        before = copy.deepcopy(claim)
        if "finalizers" in asked:
            metadata["finalizers"] = asked["finalizers"]
        for field, value in body.get("status", {}).items():
            gone = field == "reservedFor" and "$patch" in value[0]
            claim["status"][field] = [] if gone else value
            if value is None:
                del claim["status"][field]
        if claim != before:
            self._version += 1
            metadata["resourceVersion"] = f"v{self._version}"
        return await self._answered(request, what, claim)

    async def _tell(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        said = body["status"]["extendedResourceClaimStatus"]
        refused = self._refuses("tell")
        if refused is not None:
            return refused
        assert body["metadata"]["uid"] == "u"
        self.told = said if self.keeps_told else None
        status = {} if self.told is None else {"extendedResourceClaimStatus": self.told}
        return await self._answered(request, "tell" if said else "untell", {"metadata": {"uid": "u"}, "status": status})

    def other(self, **metadata: Any) -> None:
        """Somebody else makes a claim of the same name."""
        owners = [{"kind": "Pod", "name": "p", "uid": "u", "controller": True}]
        written = [{"manager": "thalweg", "fieldsV1": {"f:spec": {}}}]
        annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
        meta = {"ownerReferences": owners, "managedFields": written, "annotations": annotations} | metadata
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}
        spec = {"devices": {"requests": [{"name": REQUEST.name, "exactly": exactly}]}}
        meta |= {"name": NAME, "namespace": "default", "uid": "other", "resourceVersion": "1"}
        self.claims[NAME] = {"metadata": meta, "spec": spec, "status": {}}


@asynccontextmanager
async def writing(server: Server, folder: Path) -> AsyncIterator[Any]:
    """Puts a write in line; the last answer to it."""
    state, answers = DrivenLedger(), list[tuple[Answer, str]]()
    for name, device_class in read_classes([{"metadata": {"name": "gpu"}, "spec": {}}]).items():
        state.set_device_class(name, device_class)

    state.upsert_pod(POD)
    server.watched = state.cluster.devices

    class WantingShell:
        """As much of a shell as the writer asks."""

        cluster = state.cluster

        def is_wanted(self, _write: object) -> bool:
            return True

        def answered(self, _write: object, answer: Answer, reason: str = "") -> None:
            answers.append((answer, reason))

    async with serving(server.app, folder) as connection:
        writer = DeviceClaimWriter(connection, WantingShell(), Metrics(), 4, backoff=SOON, refused=SOON)  # type: ignore[arg-type]
        task = asyncio.create_task(writer.run())

        async def answer(write: Allocate | ReleaseClaims) -> tuple[Answer, str]:
            answers.clear()
            writer.put(write)
            await until(lambda: answers and not len(writer._queue), 10, lambda: "an answer")
            return answers[-1]

        try:
            yield answer
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def check_written(server: Server) -> None:
    """One claim is there, as kube-scheduler makes it, with its devices, and the pod's status names it."""
    (written,) = server.claims.values()
    assert written["metadata"]["name"] == NAME
    assert written["metadata"]["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}
    assert written["spec"] == {"devices": {"requests": [{"name": REQUEST.name, "exactly": exactly}]}}
    (claim,) = read_claims([written])
    assert (claim.controller, claim.is_extended, claim.is_ours, claim.reserved_for) == ("u", True, True, ("u",))
    assert claim.allocation is not None
    assert claim.allocation.is_like(PLANNED.allocation)
    mapping = {"containerName": "main", "resourceName": GPU, "requestName": REQUEST.name}
    assert server.told == {"resourceClaimName": NAME, "requestMappings": [mapping]}


async def test_a_claim_is_made_allocated_and_told(tmp_path: Path) -> None:
    """In this order. Only what the node does not offer is asked for."""
    server = Server()
    async with writing(server, tmp_path) as answer:
        assert await answer(ALLOCATE) == (Answer.DONE, "")
    assert server.requests == ["create", "patch", "patch/status", "tell"]
    check_written(server)


@pytest.mark.parametrize("lost", ["create", "patch", "patch/status", "tell"])
async def test_an_answer_is_lost(tmp_path: Path, lost: str) -> None:
    """The next try takes up what the first one wrote."""
    server = Server()
    server.fails = {lost: ["lost", 503]}
    async with writing(server, tmp_path) as answer:
        assert await answer(ALLOCATE) == (Answer.DONE, "")
    check_written(server)
    assert server.requests.count("create") == 1


async def test_what_an_earlier_leader_made_is_taken_up(tmp_path: Path) -> None:
    """It asks for the same."""
    server = Server()
    server.other()
    async with writing(server, tmp_path) as answer:
        assert await answer(ALLOCATE) == (Answer.DONE, "")
    check_written(server)
    assert server.claims[NAME]["metadata"]["uid"] == "other"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"ownerReferences": [{"kind": "Pod", "name": "q", "uid": "q", "controller": True}]},
            "another one has its name",
        ),
        ({"annotations": {}}, "another one has its name"),
        ({"managedFields": []}, "another one has its name"),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, "it is being deleted"),
    ],
)
async def test_a_claim_of_that_name_that_is_no_use(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    """It stays as it is."""
    server = Server()
    server.other(**changes)
    before = copy.deepcopy(server.claims)
    async with writing(server, tmp_path) as answer:
        assert await answer(ALLOCATE) == (Answer.REFUSED, f"ResourceClaim default/{NAME}: {words}")
    assert server.claims == before
    assert server.told is None


async def test_a_claim_that_was_made_for_another_node(tmp_path: Path) -> None:
    """It asks for something else. Given back, it is deleted, and made anew by the next try."""
    server = Server()
    server.other()
    server.claims[NAME]["spec"]["devices"]["requests"][0]["exactly"]["count"] = 1
    async with writing(server, tmp_path) as answer:
        refused = await answer(ALLOCATE)
        assert refused == (Answer.REFUSED, f"ResourceClaim default/{NAME}: it was made for another node")
        assert await answer(RELEASE) == (Answer.DONE, "")
        assert server.claims == {}
        assert await answer(ALLOCATE) == (Answer.DONE, "")
    check_written(server)


async def test_an_api_server_that_does_not_keep_the_status(tmp_path: Path) -> None:
    """The pod would run without its devices: it is not bound."""
    server = Server()
    server.keeps_told = False
    async with writing(server, tmp_path) as answer:
        what, reason = await answer(ALLOCATE)
    assert what is Answer.REFUSED
    assert "does not keep status.extendedResourceClaimStatus" in reason


@pytest.mark.parametrize("what", ["create", "tell"])
async def test_refusals(tmp_path: Path, what: str) -> None:
    """They are told."""
    server = Server()
    server.fails = {what: [403]}
    async with writing(server, tmp_path) as answer:
        assert await answer(ALLOCATE) == (Answer.REFUSED, f"ResourceClaim default/{NAME}: no")


async def test_its_pod_is_gone(tmp_path: Path) -> None:
    """What was made is deleted, though there is no status to write."""
    server = Server()
    server.fails = {"tell": [404, 404]}
    async with writing(server, tmp_path) as answer:
        assert await answer(ALLOCATE) == (Answer.REFUSED, f"ResourceClaim default/{NAME}: its pod is gone")
        assert await answer(RELEASE) == (Answer.DONE, "")
    assert server.claims[NAME]["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize("lost", ["", "untell", "patch/status", "delete"])
async def test_it_is_given_back(tmp_path: Path, lost: str) -> None:
    """The pod's status first, the claim last; Kubernetes' controller takes the finalizer off."""
    server = Server()
    async with writing(server, tmp_path) as answer:
        await answer(ALLOCATE)
        server.requests.clear()
        server.fails = {lost: ["lost"]} if lost else {}
        assert await answer(RELEASE) == (Answer.DONE, "")
    assert server.told is None
    assert server.claims[NAME]["status"] == {"reservedFor": []}
    assert server.claims[NAME]["metadata"]["deletionTimestamp"]
    if not lost:
        assert server.requests == ["untell", "patch/status", "patch/status", "delete"]


async def test_something_refuses_that_it_is_given_back(tmp_path: Path) -> None:
    """It is tried again, whatever the API server says, until it is."""
    server = Server()
    async with writing(server, tmp_path) as answer:
        await answer(ALLOCATE)
        (made,) = read_claims(list(server.claims.values()))
        server.watched.set_claim((made.namespace, made.name), made)
        server.fails = {"patch/status": [403], "delete": [403]}
        await answer(RELEASE)
        await until(lambda: "deletionTimestamp" in server.claims[NAME]["metadata"], 10, lambda: "the claim to go")


async def test_nothing_was_made(tmp_path: Path) -> None:
    """Then there is nothing to give back."""
    server = Server()
    async with writing(server, tmp_path) as answer:
        assert await answer(RELEASE) == (Answer.DONE, "")
    assert server.requests == ["untell"]


async def test_the_claim_of_another_pod_stays(tmp_path: Path) -> None:
    """One of its name, which the pod never had."""
    server = Server()
    server.other(ownerReferences=[{"kind": "Pod", "name": "q", "uid": "q", "controller": True}])
    async with writing(server, tmp_path) as answer:
        assert await answer(RELEASE) == (Answer.DONE, "")
    assert "deletionTimestamp" not in server.claims[NAME]["metadata"]


async def test_somebody_changes_it_before_it_is_deleted(tmp_path: Path) -> None:
    """It is looked at again: by the resource version."""
    server = Server()
    async with writing(server, tmp_path) as answer:
        await answer(ALLOCATE)
        server.fails = {"delete": [409]}
        server.requests.clear()
        assert await answer(RELEASE) == (Answer.DONE, "")
    assert server.requests == ["untell", "patch/status", "patch/status", "patch/status", "delete"]


def test_its_name_follows_from_the_pod() -> None:
    """The same at each attempt, another one for another pod of the name, never longer than Kubernetes' own."""
    assert extended_claim_name("p", "u") == extended_claim_name("p", "u") != extended_claim_name("p", "v")
    assert extended_claim_name("p", "u").startswith("p-extended-resources-")
    assert len(extended_claim_name("p" * 253, "u")) == 63
