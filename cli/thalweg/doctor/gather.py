"""Reads the facts that the checks judge."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families
from thalweg_operator.api.client import ApiClient, api_path
from thalweg_operator.api.json_reading import JsonReader, UnreadableJson
from thalweg_operator.api.leader_election import LeaseName
from thalweg_operator.constants import POLICIES_PATH
from thalweg_operator.errors import ConnectionLost, OperatorError, Refused
from thalweg_operator.policies.gate_admission import BINDINGS_PATH, RULES_PATH
from thalweg_operator.policies.gate_manifests import GATE_NAME

from thalweg.crds import custom_resource_definitions
from thalweg.doctor.access import Right, user_of, wanted_rights
from thalweg.doctor.extender_probe import ask
from thalweg.doctor.facts import Facts, Lease, Meta, Named, NotRead, Pod, PolicyObject, SchedulerFacts
from thalweg.doctor.liveness import looks_wrong
from thalweg.doctor.scheduler_file import SchedulerFileError, parse
from thalweg.option_types import NamespacedName

T = TypeVar("T")

#: Objects of one answer.
_PAGE: Final = 500
#: A doubtful lease is looked at so often, a second apart; its holder renews it every 2 s.
_LOOKS: Final = 5
#: Ends the name of leases of a kube-scheduler that the chart starts, which are not Thalweg's own.
_NOT_OURS: Final = "-kube-scheduler"
_CONFIG_KEY: Final = "scheduler.yaml"


class _Page(msgspec.Struct):
    """One page of a list."""

    items: list[msgspec.Raw]
    metadata: dict[str, Any] = {}


class _Object(msgspec.Struct):
    """An object of which only the metadata is read."""

    metadata: Meta


class _Review(msgspec.Struct):
    """The answer to a SubjectAccessReview."""

    status: dict[str, Any]


class _GroupVersion(msgspec.Struct):
    """A version of an API group."""

    version: str


class _Group(msgspec.Struct):
    """An API group in discovery."""

    versions: list[_GroupVersion] = []


class _Resources(msgspec.Struct):
    """The kinds of a version of an API group."""

    resources: list[Named] = []


class _Version(msgspec.Struct, rename="camel"):
    """The answer of /version."""

    git_version: str


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be examined.

    Attributes:
        service_account: the operator's.
        lease: the operator's; None to look for it.
        scheduler_config: file of kube-scheduler's configuration; None: the one that the chart stored, if any.
        scheduler_metrics: URL of kube-scheduler's metrics; "" if unknown.
        timeout: seconds that one answer may take.
    """

    service_account: NamespacedName
    lease: NamespacedName | None
    scheduler_config: Path | None
    scheduler_metrics: str
    timeout: float


async def gather(api_client: ApiClient, request: Request) -> Facts:
    """All facts.

    Raises:
        ConnectionLost: the API server does not answer.
        Refused: the API server does not accept the credentials.
    """
    reader = _ClusterReader(api_client, request)
    server_version, server_time, local_time = await reader.clock()
    async with asyncio.TaskGroup() as group:
        crd = group.create_task(_fact(reader.crd()))
        first_leases = group.create_task(_fact(reader.leases()))
        operator_pods = group.create_task(_fact(reader.operator_pods()))
        pods = group.create_task(_fact(reader.list("/api/v1/pods", Pod)))
        namespaces = group.create_task(_fact(reader.namespaces()))
        policies = group.create_task(_fact(reader.list(POLICIES_PATH, PolicyObject)))
        missing_gate_objects = group.create_task(_fact(reader.missing_gate_objects()))
        node_count = group.create_task(_fact(reader.node_count()))
        scheduler = group.create_task(_fact(reader.scheduler()))
        scheduler_features = group.create_task(_fact(reader.scheduler_features()))
        pod_group_versions = group.create_task(_fact(reader.pod_group_versions()))
    leases = first_leases.result()
    still_renewed = None
    if isinstance(leases, tuple) and any(looks_wrong(each, server_time) for each in leases):
        leases, still_renewed = await reader.watch_leases(leases)
        _, server_time, local_time = await reader.clock()
    lease = request.lease
    if lease is None:  # the operator's, or that of rights/lease.yaml
        held = [each for each in leases if each.spec.holder_identity] if isinstance(leases, tuple) else []
        first = held[0].metadata if held else LeaseName()
        lease = NamespacedName(first.namespace, first.name)
    return Facts(
        server_time=server_time,
        local_time=local_time,
        server_version=server_version,
        cli_version=version("thalweg"),
        service_account=request.service_account,
        lease=request.lease,
        crd=crd.result(),
        expected_crd=custom_resource_definitions()[0],
        denied=await _fact(reader.denied(lease)),
        leases=leases,
        still_renewed=still_renewed,
        operator_pods=operator_pods.result(),
        pods=pods.result(),
        namespaces=namespaces.result(),
        policies=policies.result(),
        missing_gate_objects=missing_gate_objects.result(),
        node_count=node_count.result(),
        scheduler=scheduler.result(),
        scheduler_features=scheduler_features.result(),
        pod_group_versions=pod_group_versions.result(),
    )


async def _fact(reading: Awaitable[T]) -> T | NotRead:
    """A fact, or why it could not be read."""
    try:
        return await reading
    except (OperatorError, UnreadableJson, _NotReadError) as error:
        return NotRead(f"Not read: {error}")


class _NotReadError(Exception):
    """A fact that does not come from the API server could not be read."""


class _ClusterReader:
    """Reads single facts. Every method raises OperatorError or UnreadableJson if the API server gives none."""

    def __init__(self, api_client: ApiClient, request: Request) -> None:
        self._api_client, self._request = api_client, request

    async def clock(self) -> tuple[str, datetime, datetime]:
        """Version and time of the API server, and the time of this machine."""
        credentials = self._api_client.credentials
        async with await self._api_client.new_session([]) as session:
            try:
                async with session.get(
                    f"{self._api_client.server}/version",
                    timeout=aiohttp.ClientTimeout(total=self._request.timeout),
                    ssl=credentials.tls,
                    server_hostname=credentials.configuration.tls_server_name,
                ) as response:
                    raw, here = await response.read(), datetime.now(UTC)
                    if response.status >= 400:
                        raise Refused(response.status, raw[:200].decode(errors="replace"))
                    there = parsedate_to_datetime(response.headers.get("Date", ""))
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                problem = str(error) or f"no answer within {self._request.timeout:g} s"
                raise ConnectionLost(f"GET /version: {problem}") from error
        return JsonReader(_Version).read(raw).git_version, there, here

    async def list(self, path: str, shape: type[T], **params: str) -> tuple[T, ...]:
        """All objects of a kind."""
        found: list[T] = []
        token = ""
        while True:
            raw = await self._get(path, {**params, "limit": str(_PAGE), **({"continue": token} if token else {})})
            page = JsonReader(_Page).read(raw)
            reader = JsonReader(shape)
            found += [reader.read(item) for item in page.items]
            token = page.metadata.get("continue") or ""
            if not token:
                return tuple(found)

    async def crd(self) -> Mapping[str, Any] | None:
        name = custom_resource_definitions()[0]["metadata"]["name"]
        raw = await self._optional(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
        return None if raw is None else JsonReader(dict[str, Any]).read(raw)

    async def leases(self) -> tuple[Lease, ...]:
        """The lease of the request, or all that have Thalweg's name."""
        path = "/apis/coordination.k8s.io/v1"
        if self._request.lease:
            namespace, name = self._request.lease
            raw = await self._optional(api_path(f"{path}/namespaces", namespace, "leases", name))
            return () if raw is None else (JsonReader(Lease).read(raw),)
        every = await self.list(f"{path}/leases", Lease)
        return tuple(
            each for each in every if "thalweg" in each.metadata.name and not each.metadata.name.endswith(_NOT_OURS)
        )

    async def watch_leases(self, before: tuple[Lease, ...]) -> tuple[tuple[Lease, ...], frozenset[str]]:
        """Reads the leases again until all held ones were renewed, or a renewal is overdue.

        Returns:
            The leases as last read, and the names of those that were renewed meanwhile.
        """
        later, held = before, {each.name for each in before if each.spec.holder_identity}
        renewed: frozenset[str] = frozenset()
        for _ in range(_LOOKS):
            await asyncio.sleep(1.0)
            later = await self.leases()
            renewed = frozenset(each.name for each in later if each not in before)
            if renewed >= held:
                break
        return later, renewed

    async def operator_pods(self) -> tuple[Pod, ...]:
        return await self.list("/api/v1/pods", Pod, labelSelector="app.kubernetes.io/name=thalweg")

    async def namespaces(self) -> Mapping[str, dict[str, str]]:
        """Labels of each namespace."""
        found = await self.list("/api/v1/namespaces", _Object)
        return {each.metadata.name: each.metadata.labels for each in found}

    async def missing_gate_objects(self) -> tuple[str, ...]:
        kinds = (("MutatingAdmissionPolicy", RULES_PATH), ("MutatingAdmissionPolicyBinding", BINDINGS_PATH))
        return tuple([kind for kind, path in kinds if await self._optional(f"{path}/{GATE_NAME}") is None])

    async def node_count(self) -> int:
        return len(await self.list("/api/v1/nodes", _Object))

    async def pod_group_versions(self) -> tuple[str, ...]:
        """Versions of scheduling.k8s.io that serve PodGroups, the preferred one first."""
        raw = await self._optional("/apis/scheduling.k8s.io")
        group = _Group() if raw is None else JsonReader(_Group).read(raw)
        serving = []
        for each in group.versions:
            found = await self._optional(f"/apis/scheduling.k8s.io/{each.version}")
            served = _Resources() if found is None else JsonReader(_Resources).read(found)
            if any(resource.name == "podgroups" for resource in served.resources):
                serving.append(each.version)
        return tuple(serving)

    async def denied(self, lease: NamespacedName) -> tuple[Right, ...]:
        """Rights of the roles in rights/ that the service account lacks."""
        user, limit = user_of(self._request.service_account), asyncio.Semaphore(8)

        async def allowed(right: Right) -> bool:
            async with limit:
                body = msgspec.json.encode(right.review(user))
                path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
                raw = await self._in_time(self._api_client.request("POST", path, body=body))
            return bool(JsonReader(_Review).read(raw).status.get("allowed"))

        wanted = wanted_rights(self._request.service_account, lease)
        try:
            answers = await asyncio.gather(*(allowed(right) for right in wanted))
        except Refused as error:
            if error.status != 403:
                raise
            raise _NotReadError("you may not create subjectaccessreviews.authorization.k8s.io") from error
        return tuple(right for right, yes in zip(wanted, answers, strict=True) if not yes)

    async def scheduler(self) -> SchedulerFacts | None:
        """kube-scheduler's configuration, and what its extenders answer."""
        found = self._chosen_config() if self._request.scheduler_config else await self._stored_config()
        if found is None:
            return None
        answers = await asyncio.gather(
            *(ask(each, self._request.timeout) for each in found.config.thalweg_extenders if each.node_cache_capable)
        )
        return replace(found, answers=tuple(answers))

    def _chosen_config(self) -> SchedulerFacts:
        path = self._request.scheduler_config
        assert path is not None  # noqa: S101
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise _NotReadError(f"{path}: {error}") from error
        return _scheduler_facts(str(path), text, chosen=True)

    async def _stored_config(self) -> SchedulerFacts | None:
        """The configuration that the chart stored in a Secret of the operator's namespace."""
        namespace, name = self._request.service_account
        secret = f"{name}-scheduler-config"
        try:
            raw = await self._optional(api_path("/api/v1/namespaces", namespace, "secrets", secret))
        except Refused as error:
            if error.status == 403:
                return None
            raise
        data = {} if raw is None else JsonReader(dict[str, Any]).read(raw).get("data") or {}
        if _CONFIG_KEY not in data:
            return None
        try:
            text = base64.b64decode(data[_CONFIG_KEY]).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise _NotReadError(f"Secret {namespace}/{secret}: data.{_CONFIG_KEY}: {error}") from error
        return _scheduler_facts(f"Secret {namespace}/{secret}", text, chosen=False)

    async def scheduler_features(self) -> Mapping[str, bool] | None:
        """kube-scheduler's feature gates, from its metric kubernetes_feature_enabled."""
        url = self._request.scheduler_metrics
        if not url:
            return None
        timeout = aiohttp.ClientTimeout(total=self._request.timeout)
        try:
            # Nothing secret is sent, and kube-scheduler's certificate is usually self-signed.
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url, ssl=False) as response:
                text = await response.text()
                if response.status != 200:
                    raise _NotReadError(f"{url} answers {response.status}")
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise _NotReadError(f"{url}: {error or f'no answer within {self._request.timeout:g} s'}") from error
        samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
        return {each.labels["name"]: each.value > 0 for each in samples if each.name == "kubernetes_feature_enabled"}

    async def _optional(self, path: str) -> bytes | None:
        """The object at a path; None if there is none."""
        try:
            return await self._get(path)
        except Refused as error:
            if error.status == 404:
                return None
            raise

    async def _get(self, path: str, params: Mapping[str, str] | None = None) -> bytes:
        return await self._in_time(self._api_client.request("GET", path, params=params))

    async def _in_time(self, answer: Awaitable[bytes]) -> bytes:
        try:
            return await asyncio.wait_for(answer, self._request.timeout)
        except TimeoutError as error:
            raise ConnectionLost(f"the API server did not answer within {self._request.timeout:g} s") from error


def _scheduler_facts(source: str, text: str, *, chosen: bool) -> SchedulerFacts:
    try:
        return SchedulerFacts(source, chosen, parse(text))
    except SchedulerFileError as error:
        raise _NotReadError(f"{source}: {error}") from error
