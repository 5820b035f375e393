"""Reads the facts that the checks judge."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from importlib.metadata import version
from typing import TypeVar

from thalweg_operator.api.client import ApiClient
from thalweg_operator.api.json_reading import UnreadableJson
from thalweg_operator.constants import POLICIES_PATH
from thalweg_operator.errors import OperatorError

from thalweg.crds import custom_resource_definitions
from thalweg.doctor.access import Right, release_of
from thalweg.doctor.cluster_reader import COMPONENT, KUBE_SCHEDULER, ClusterReader, Examination
from thalweg.doctor.confinement import expected_confinement
from thalweg.doctor.facts import Facts, NotRead, PolicyObject
from thalweg.doctor.liveness import looks_wrong
from thalweg.doctor.scheduler_reading import NotReadError
from thalweg.option_types import NamespacedName
from thalweg.sources.source import SourceError
from thalweg.wire_objects import Pod

T = TypeVar("T")


async def gather(api_client: ApiClient, request: Examination) -> Facts:
    """All facts.

    Raises:
        ConnectionLost: the API server does not answer.
        Refused: the API server does not accept the credentials.
    """
    reader = ClusterReader(api_client, request)
    server_version, server_time, local_time = await reader.clock()
    first_leases, thalweg_pods = await asyncio.gather(_fact(reader.leases()), _fact(reader.thalweg_pods()))
    account = reader.find_account(thalweg_pods)
    lease = reader.find_lease(first_leases)
    async with asyncio.TaskGroup() as group:
        crds = group.create_task(_fact(reader.crds()))
        reviewed = group.create_task(_fact(reader.reviewed(lease)))
        confinement = group.create_task(_fact(reader.confinement()))
        pods = group.create_task(_fact(reader.list("/api/v1/pods", Pod)))
        namespaces = group.create_task(_fact(reader.namespaces()))
        policies = group.create_task(_fact(reader.list(POLICIES_PATH, PolicyObject)))
        new_pod_rules = group.create_task(_fact(reader.new_pod_rules()))
        missing_gate_objects = group.create_task(_fact(reader.missing_gate_objects()))
        node_count = group.create_task(_fact(reader.node_count()))
        scheduler = group.create_task(_fact(reader.scheduler()))
        scheduler_features = group.create_task(_fact(reader.scheduler_features()))
        pod_group_versions = group.create_task(_fact(reader.pod_group_versions()))
        hyper_node_problems = group.create_task(_fact(reader.hyper_node_problems()))
        view = group.create_task(_fact(reader.view()))
    certificates = await _fact(reader.client_certificates(scheduler.result()))
    leases, still_renewed = first_leases, None
    if isinstance(leases, tuple) and any(looks_wrong(each, server_time) for each in leases):
        leases, still_renewed = await reader.watch_leases(leases)
        _, server_time, local_time = await reader.clock()
    return Facts(
        server_time=server_time,
        local_time=local_time,
        server_version=server_version,
        cli_version=version("thalweg"),
        service_account=account,
        lease=request.lease,
        confinement=confinement.result(),
        expected_confinement=expected_confinement(account, release_of(account, lease)),
        crds=crds.result(),
        expected_crds=tuple(custom_resource_definitions()),
        denied=_rights(reviewed.result(), allowed=False),
        leases=leases,
        still_renewed=still_renewed,
        operator_pods=_of(thalweg_pods, account, "operator"),
        second_scheduler_pods=_of(thalweg_pods, account, KUBE_SCHEDULER),
        pods=pods.result(),
        namespaces=namespaces.result(),
        policies=policies.result(),
        new_pod_rules=new_pod_rules.result(),
        missing_gate_objects=missing_gate_objects.result(),
        node_count=node_count.result(),
        scheduler=scheduler.result(),
        client_certificates=() if isinstance(certificates, NotRead) else certificates,
        scheduler_features=scheduler_features.result(),
        pod_group_versions=pod_group_versions.result(),
        hyper_node_problems=hyper_node_problems.result(),
        view=view.result(),
        granted=_rights(reviewed.result(), allowed=True),
    )


def _rights(reviewed: tuple[tuple[Right, bool], ...] | NotRead, *, allowed: bool) -> tuple[Right, ...] | NotRead:
    return reviewed if isinstance(reviewed, NotRead) else tuple(right for right, yes in reviewed if yes is allowed)


def _of(pods: tuple[Pod, ...] | NotRead, account: NamespacedName, component: str) -> tuple[Pod, ...] | NotRead:
    """The pods of a component, in the account's namespace. A pod without the label belongs to the operator."""
    if isinstance(pods, NotRead):
        return pods
    return tuple(
        pod
        for pod in pods
        if pod.metadata.namespace == account.namespace and pod.metadata.labels.get(COMPONENT, "operator") == component
    )


async def _fact(reading: Awaitable[T]) -> T | NotRead:
    """A fact, or why it could not be read."""
    try:
        return await reading
    except (OperatorError, UnreadableJson, NotReadError, SourceError) as error:
        return NotRead(f"Not read: {error}")
