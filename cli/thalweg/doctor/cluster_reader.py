"""Reads single facts from a cluster."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp
import msgspec
from thalweg_operator.api.client import ApiClient, api_path
from thalweg_operator.api.json_reading import JsonReader
from thalweg_operator.api.leadership.leader_election import LeaseName
from thalweg_operator.errors import ConnectionLost, Refused
from thalweg_operator.policies.gate_admission import BINDINGS_PATH, NEW_POD_RULES_PATH, RULES_PATH
from thalweg_operator.policies.gate_manifests import ADMISSION, GATE_NAME

from flowcore.api.hyper_nodes import WireHyperNode
from flowcore.api.kinds import HYPER_NODE
from thalweg.crds import custom_resource_definitions
from thalweg.doctor.access import Right, release_of, user_of, wanted_rights
from thalweg.doctor.confinement import confinement_name
from thalweg.doctor.extender_probe import ask
from thalweg.doctor.facts import ClientCertificate, Lease, NewPodRules, NotRead, SchedulerFacts
from thalweg.doctor.hyper_nodes import problems_of
from thalweg.doctor.scheduler_reading import (
    NotReadError,
    certificate,
    config_certificates,
    read_config_file,
    read_config_secret,
    read_features,
)
from thalweg.doctor.view_probe import ViewAnswer, ask_service, ask_url
from thalweg.option_types import NamespacedName
from thalweg.wire_objects import Meta, Named, Pod

T = TypeVar("T")

#: Objects of one answer.
_PAGE: Final = 500
#: A doubtful lease is looked at so often, a second apart; its holder renews it every 2 s.
_LOOKS: Final = 5
_DEFAULT_ACCOUNT: Final = NamespacedName("thalweg-system", "thalweg")
_NAME: Final = "app.kubernetes.io/name"
COMPONENT: Final = "app.kubernetes.io/component"
#: Component of a kube-scheduler that the chart starts. Its Lease and its pods are not the operator's.
KUBE_SCHEDULER: Final = "kube-scheduler"
_CONFINEMENT: Final = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
_CONFIG_KEY: Final = "scheduler.yaml"


class _Page(msgspec.Struct):
    """One page of a list."""

    items: list[msgspec.Raw]
    metadata: dict[str, Any] = {}


class _Object(msgspec.Struct):
    """The metadata of an object."""

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
class Examination:
    """What is to be examined.

    Attributes:
        service_account: the operator's; None to look for it.
        lease: the operator's; None to look for it.
        scheduler_config: file of kube-scheduler's configuration; None: the one that the chart stored, if any.
        scheduler_metrics: URL of kube-scheduler's metrics; "" if unknown.
        timeout: seconds that one answer may take.
        view: URL of the operator's view; "" to ask by its Service.
    """

    service_account: NamespacedName | None
    lease: NamespacedName | None
    scheduler_config: Path | None
    scheduler_metrics: str
    timeout: float
    view: str = ""


def _is_ours(lease: Meta) -> bool:
    """Whether a Lease is an operator's."""
    named = lease.labels.get(_NAME) == "thalweg" or "thalweg" in lease.name
    return named and lease.labels.get(COMPONENT) != KUBE_SCHEDULER


class ClusterReader:
    """Reads single facts. Every method raises OperatorError or UnreadableJson if the API server gives none."""

    def __init__(self, api_client: ApiClient, request: Examination) -> None:
        self._api_client, self._request = api_client, request
        self._account = request.service_account or _DEFAULT_ACCOUNT
        self._release = _DEFAULT_ACCOUNT.name

    def find_account(self, pods: tuple[Pod, ...] | NotRead) -> NamespacedName:
        """The operator's account: that of the request, else that of the operator's pods."""
        if self._request.service_account is None and not isinstance(pods, NotRead):
            accounts = {
                NamespacedName(pod.metadata.namespace, pod.spec.service_account_name)
                for pod in pods
                if pod.metadata.labels.get(COMPONENT) == "operator"
            }
            if len(accounts) == 1:
                (self._account,) = accounts
        return self._account

    def find_lease(self, leases: tuple[Lease, ...] | NotRead) -> NamespacedName:
        """The operator's Lease: that of the request, else one that is held, else that of rights/lease.yaml."""
        lease = self._request.lease
        if lease is None:
            held = [each for each in leases if each.spec.holder_identity] if isinstance(leases, tuple) else []
            first = held[0].metadata if held else LeaseName()
            lease = NamespacedName(first.namespace, first.name)
        self._release = release_of(self._account, lease)
        return lease

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
                    server_time = parsedate_to_datetime(response.headers.get("Date", ""))
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                problem = str(error) or f"no answer within {self._request.timeout:g} s"
                raise ConnectionLost(f"GET /version: {problem}") from error
        return JsonReader(_Version).read(raw).git_version, server_time, here

    async def list(self, path: str, shape: type[T], **params: str) -> tuple[T, ...]:
        """All objects of a kind."""
        items: list[T] = []
        token = ""
        while True:
            raw = await self._get(path, {**params, "limit": str(_PAGE), **({"continue": token} if token else {})})
            page = JsonReader(_Page).read(raw)
            reader = JsonReader(shape)
            items += [reader.read(item) for item in page.items]
            token = page.metadata.get("continue") or ""
            if not token:
                return tuple(items)

    async def crds(self) -> tuple[Mapping[str, Any] | None, ...]:
        """The CRDs of this version as they are installed; None for what is not there."""
        definitions: list[Mapping[str, Any] | None] = []
        for crd in custom_resource_definitions():
            path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
            raw = await self._optional(path)
            definitions.append(None if raw is None else JsonReader(dict[str, Any]).read(raw))
        return tuple(definitions)

    async def leases(self) -> tuple[Lease, ...]:
        """The lease of the request, or all that have Thalweg's label or name."""
        path = "/apis/coordination.k8s.io/v1"
        if self._request.lease:
            namespace, name = self._request.lease
            raw = await self._optional(api_path(f"{path}/namespaces", namespace, "leases", name))
            return () if raw is None else (JsonReader(Lease).read(raw),)
        every = await self.list(f"{path}/leases", Lease)
        return tuple(each for each in every if _is_ours(each.metadata))

    async def watch_leases(self, before: tuple[Lease, ...]) -> tuple[tuple[Lease, ...], frozenset[str]]:
        """Reads the leases again until all held ones were renewed, or a renewal is overdue.

        Returns:
            The leases as last read, and the names of the ones that were renewed meanwhile.
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

    async def thalweg_pods(self) -> tuple[Pod, ...]:
        """Running pods of all components."""
        return await self.list(
            "/api/v1/pods", Pod, labelSelector=f"{_NAME}=thalweg", fieldSelector="status.phase=Running"
        )

    async def confinement(self) -> tuple[Mapping[str, Any] | None, ...]:
        """The policy and its binding."""
        name = confinement_name(self._release)
        manifests = [await self._optional(f"/apis/{ADMISSION}/{plural}/{name}") for plural in _CONFINEMENT]
        return tuple(None if raw is None else JsonReader(dict[str, Any]).read(raw) for raw in manifests)

    async def namespaces(self) -> Mapping[str, dict[str, str]]:
        """Labels of each namespace."""
        listed = await self.list("/api/v1/namespaces", _Object)
        return {each.metadata.name: each.metadata.labels for each in listed}

    async def new_pod_rules(self) -> NewPodRules | None:
        """What the operator tells the API server about new pods; None: nothing."""
        raw = await self._optional(NEW_POD_RULES_PATH)
        return None if raw is None else JsonReader(NewPodRules).read(raw)

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
        for entry in group.versions:
            resources = await self._optional(f"/apis/scheduling.k8s.io/{entry.version}")
            served = _Resources() if resources is None else JsonReader(_Resources).read(resources)
            if any(resource.name == "podgroups" for resource in served.resources):
                serving.append(entry.version)
        return tuple(serving)

    async def hyper_node_problems(self) -> tuple[str, ...] | None:
        """What of Volcano's HyperNodes does not count; None: there are none."""
        try:
            objects = await self.list(HYPER_NODE.paths[0], WireHyperNode)
        except Refused as error:
            if error.status == 404:
                return None
            raise
        if not objects:
            return None
        nodes = await self.list("/api/v1/nodes", _Object)
        return problems_of(objects, (node.metadata for node in nodes))

    async def reviewed(self, lease: NamespacedName) -> tuple[tuple[Right, bool], ...]:
        """The rights of the roles in rights/, and whether the service account has each."""
        user, limit = user_of(self._account), asyncio.Semaphore(8)

        async def allowed(right: Right) -> bool:
            async with limit:
                body = msgspec.json.encode(right.review(user))
                path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
                raw = await self._in_time(self._api_client.request("POST", path, body=body))
            return bool(JsonReader(_Review).read(raw).status.get("allowed"))

        wanted = wanted_rights(self._account, lease)
        # Whichever files grant a right: it is asked about once.
        different = dict.fromkeys(replace(right, file="") for right in wanted)
        try:
            answers = dict(zip(different, await asyncio.gather(*map(allowed, different)), strict=True))
        except Refused as error:
            if error.status != 403:
                raise
            raise NotReadError("you may not create subjectaccessreviews.authorization.k8s.io") from error
        return tuple((right, answers[replace(right, file="")]) for right in wanted)

    async def scheduler(self) -> SchedulerFacts | None:
        """kube-scheduler's configuration, and what its extenders answer."""
        path = self._request.scheduler_config
        facts = await self._stored_config() if path is None else read_config_file(path)
        if facts is None:
            return None
        answers = await asyncio.gather(
            *(ask(each, self._request.timeout) for each in facts.config.thalweg_extenders if each.node_cache_capable)
        )
        return replace(facts, answers=tuple(answers))

    async def client_certificates(self, scheduler: SchedulerFacts | NotRead | None) -> tuple[ClientCertificate, ...]:
        """Client certificates of kube-scheduler's configuration; without one, the certificate that the chart made."""
        if isinstance(scheduler, SchedulerFacts):
            return tuple(config_certificates(scheduler))
        secret = f"{self._release}-extender-client-tls"
        data = await self._secret(secret)
        try:
            pem = base64.b64decode(data.get("tls.crt", ""))
            return (certificate(f"Secret {self._account.namespace}/{secret}", pem),) if pem else ()
        except ValueError:
            return ()

    async def _stored_config(self) -> SchedulerFacts | None:
        """The configuration that the chart stored in a Secret of the operator's namespace."""
        secret = f"{self._release}-scheduler-config"
        data = await self._secret(secret)
        if _CONFIG_KEY not in data:
            return None
        return read_config_secret(f"{self._account.namespace}/{secret}", data, _CONFIG_KEY)

    async def _secret(self, name: str) -> Mapping[str, str]:
        """Data of a Secret of the operator's namespace; empty where there is none, or where it may not be read."""
        try:
            raw = await self._optional(api_path("/api/v1/namespaces", self._account.namespace, "secrets", name))
        except Refused as error:
            if error.status == 403:
                return {}
            raise
        return {} if raw is None else JsonReader(dict[str, Any]).read(raw).get("data") or {}

    async def scheduler_features(self) -> Mapping[str, bool] | None:
        """kube-scheduler's feature gates; None: the caller did not say where to read them."""
        url = self._request.scheduler_metrics
        return await read_features(url, self._request.timeout) if url else None

    async def view(self) -> ViewAnswer | None:
        """What the operator's view answers; None: there is no Service of the chart's name."""
        request = self._request
        if request.view:
            return await ask_url(request.view, request.timeout)
        service = NamespacedName(self._account.namespace, f"{self._release}-view")
        return await ask_service(self._api_client, service, request.timeout)

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
