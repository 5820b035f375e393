"""Reads from a cluster who names a scheduler of Thalweg."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
from thalweg_operator.api.client import ApiClient
from thalweg_operator.api.json_reading import JsonReader
from thalweg_operator.constants import POLICIES_PATH
from thalweg_operator.errors import Refused

from flowcore.model.policies import Policy
from thalweg.doctor.facts import PolicyObject
from thalweg.doctor.governed import parsed
from thalweg.scheduler_users.users import SchedulerUser, scheduler_users, schedulers_of
from thalweg.wire_objects import Pod, Workload

_T = TypeVar("_T", bound=msgspec.Struct)

#: Where the kinds whose templates are read are listed.
TEMPLATES: Final[Mapping[str, str]] = {
    "Deployment": "/apis/apps/v1/deployments",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "DaemonSet": "/apis/apps/v1/daemonsets",
    "CronJob": "/apis/batch/v1/cronjobs",
    "Job": "/apis/batch/v1/jobs",
}
_PAGE: Final = 500


class _Page(msgspec.Struct):
    """One page of a list."""

    items: list[msgspec.Raw]
    metadata: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class SchedulerUsers:
    """Who names a scheduler of Thalweg.

    Attributes:
        served: the names of Thalweg's schedulers; True: kube-scheduler serves the name with Thalweg.
        gaps: a sentence for each kind that may not be listed.
    """

    users: tuple[SchedulerUser, ...]
    served: Mapping[str, bool]
    gaps: tuple[str, ...]


async def read_scheduler_users(api_client: ApiClient) -> SchedulerUsers:
    """Lists policies, templates of pods, and the pods that name a scheduler of Thalweg.

    Raises:
        Refused: pods may not be listed.
        ConnectionLost: the API server does not answer.
        UnreadableJson: an answer is no list.
    """
    gaps: list[str] = []
    served = schedulers_of(await _policies(api_client, gaps))
    workloads: dict[str, list[Workload]] = {}
    for kind, path in TEMPLATES.items():
        try:
            workloads[kind] = await _list(api_client, path, Workload)
        except Refused as error:
            gaps.append(f"{kind}s are not read, those without pods are missing here: {error}")
    pods = [
        pod
        for name in served
        for pod in await _list(api_client, "/api/v1/pods", Pod, fieldSelector=f"spec.schedulerName={name}")
    ]
    return SchedulerUsers(scheduler_users(served, workloads, pods), served, tuple(gaps))


async def _policies(api_client: ApiClient, gaps: list[str]) -> tuple[Policy, ...]:
    try:
        return parsed(await _list(api_client, POLICIES_PATH, PolicyObject))
    except Refused as error:
        if error.status != 404:  # 404: the kind is not served
            gaps.append(f"FlowSchedulingPolicies are not read, other names of schedulers are not known: {error}")
        return ()


async def _list(api_client: ApiClient, path: str, shape: type[_T], **params: str) -> list[_T]:
    """All objects of a kind."""
    objects: list[_T] = []
    reader, token = JsonReader(shape), ""
    while True:
        asked = {**params, "limit": str(_PAGE), **({"continue": token} if token else {})}
        page = JsonReader(_Page).read(await api_client.request("GET", path, params=asked))
        objects += [reader.read(item) for item in page.items]
        token = page.metadata.get("continue") or ""
        if not token:
            return objects
