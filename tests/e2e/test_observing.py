"""``thalweg run --observe`` with the rights of rights/observe.yaml, lease.yaml and view.yaml, and no others.

They are enough, each of them is used, and with them nothing can be written but the Lease. Nothing else is tried.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from support.audit import ACCOUNT, AuditedRequest, audited, refused
from support.cluster_scenario import POLICIES, ClusterScenario, policy
from support.operator import Operator, free_address, running_operator, until
from support.parents import install_parents
from support.rights import DISCOVERY, Right, granted, kubeconfig, manifests
from support.viewing import ALL, Viewer, account_that_lists, answered, view_session
from thalweg_controlplane import Api, ControlPlane

from flowcore.api.kinds import PARENTS, VOLCANO_JOB
from flowcore.model.policies import OBSERVED, SCHEDULER_NAME

pytestmark = pytest.mark.asyncio(loop_scope="module")

PLANE = {"scheduler": True, "kwok": True}
BREAKS_PLANE = True
FILES = ("observe", "lease", "view")
#: Kinds that few clusters have.
KINDS = [
    Path(__file__).parent.parent / "support" / name
    for name in ("pod_groups.yaml", "node_topology.yaml", "hyper_nodes.yaml")
]
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/thalweg"
#: What is answered, and not stored.
REVIEWS = {"tokenreviews", "subjectaccessreviews"}
READS = ("get", "list", "watch")
WRITES = ("create", "update", "patch", "delete", "deletecollection")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reader(plane: tuple[ControlPlane, Api], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The account's kubeconfig. The rights that every account has in a new cluster are taken away."""
    control, api = plane
    for each in (each for stem in ("account", *FILES) for each in manifests(stem)):
        await api.apply(each)
    await api.delete(LEASE)  # the operator makes it again
    for path in DISCOVERY:
        await api.delete(path)
    for each in (crd for file in KINDS for crd in yaml.safe_load_all(file.read_text())):
        await api.apply(each)
    await install_parents(api, *PARENTS, VOLCANO_JOB)
    return await kubeconfig(control, api, tmp_path_factory.mktemp("account"), seconds=3600)


@pytest.fixture(scope="module")
def view() -> str:
    return free_address()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(reader: Path, view: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    options = ("--observe", "--audit-interval", "1", "--view-listen", f":{view.rpartition(':')[2]}")
    # As in a pod: a leader that writes marks its own pod.
    pod = {"POD_NAMESPACE": "thalweg-system", "POD_NAME": "thalweg-0"}
    async with running_operator(
        reader, log, lease="kube-system/thalweg", extender=options, environment=pod
    ) as operator:
        yield operator


def is_used(right: Right, requests: list[AuditedRequest]) -> bool:
    """Whether a request needed the right. A server-side apply that creates needs create beside patch."""
    return any(
        (right.verb == each.verb or (right.verb, each.verb, each.status) == ("create", "patch", 201))
        and (each.group, each.resource) == (right.group, right.resource)
        and right.name in ("", each.name)
        for each in requests
    )


async def test_it_plans_and_writes_nothing(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], reader: Path, view: str, tmp_path: Path
) -> None:
    """Pods of kube-scheduler and of nobody are planned, and questions answered.

    A policy that would bind, evict and gate is planned by, and binds nobody. Neither pods nor policies are told.
    """
    control, api = plane
    scene.ignored_reasons |= {"named", "large"}
    await scene.nodes("a", cpu="4")
    spec: dict[str, Any] = {"delivery": "Binder", "cost": {"utilisation": "Measured"},
                            "gangs": {"controllers": ["Job", "RayCluster"]}}  # fmt: skip
    await api.create(policy("acts", selects={"podSelector": {"matchLabels": {"team": "a"}}}, **spec))
    await scene.create("runs", "1", scheduler="default-scheduler")
    await scene.node_of("runs")
    await scene.create("named", "1", scheduler=SCHEDULER_NAME, labels={"team": "a"})
    await scene.create("large", "16", scheduler="default-scheduler")
    named, large = f"{scene.namespace}/named", f"{scene.namespace}/large"
    token = await account_that_lists(api, "looks", cluster=ALL)
    async with view_session() as session:
        viewer = Viewer(session, int(view.rpartition(":")[2]), token)
        await answered(viewer, "overview", 200)
        planned: dict[str, Any] = {}

        async def is_planned() -> bool:
            nonlocal planned
            _, planned = await viewer.ask("plan", namespace=scene.namespace)
            return {each["pod"] for each in planned.get("placed", [])} == {named}

        await until(is_planned, 60, lambda: f"{named} to be planned: {planned}")
        (placed,) = planned["placed"]
        assert (placed["node"], placed["policy"], placed["acts"]) == ("a", "acts", False)
        status, why = await viewer.ask("why", {"target": large})
        assert status == 200
        assert "Insufficient cpu" in str(why)
        status, told = await viewer.ask("what-if", {"changes": [{"kind": "RemoveNode", "node": "a"}]})
        assert (status, sorted(told["waiting"])) == (200, [named, f"{scene.namespace}/runs"])
        status, room = await viewer.ask("headroom", {"requests": {"cpu": "1"}})
        assert (status, room["fits"]) == (200, 2)
        status, policies = await viewer.ask("policies")
        assert {row["name"]: row["delivery"] for row in policies["policies"]}.items() >= {
            "acts": "Observe",
            OBSERVED.name: "Observe",
        }.items()

    async def counted() -> bool:
        metrics = await scene.operator.metrics()
        return metrics["thalweg_leader"] == 1 and metrics["thalweg_plan_left_at_least"] == 1

    await until(counted, 60, lambda: "a round with one pod left")
    assert await scene.operator.stop() == 0
    assert (await api.get(LEASE))["spec"]["holderIdentity"] == ""
    await scene.operator.start()
    # Kubernetes 1.37 serves it first.
    newer = "devicetaintrules"
    rights = [right for stem in FILES for right in granted(stem) if right.resource != newer]
    idle: list[Right] = []

    async def all_used() -> bool:
        nonlocal idle
        requests = audited(control)
        idle = [right for right in rights if not is_used(right, requests)]
        return not idle

    # Another replica, which stands by.
    async with running_operator(
        reader,
        tmp_path / "standby.log",
        lease="kube-system/thalweg",
        extender=("--observe",),
        replicated=True,
        wait=False,
    ):
        await until(all_used, 60, lambda: f"these rights to be used: {idle}")
    requests = audited(control)
    assert refused(requests) == []
    written = {(each.resource, each.name) for each in requests if each.verb not in READS}
    assert {resource for resource, _ in written} - REVIEWS == {"leases"}
    assert {name for resource, name in written if resource == "leases"} == {"thalweg"}
    assert "nodeName" not in (await scene.get("named"))["spec"]
    events = await api.list(f"/api/v1/namespaces/{scene.namespace}/events")
    assert {each["source"].get("component") or each["reportingComponent"] for each in events} <= {"default-scheduler"}
    assert "status" not in await api.get(f"{POLICIES}/acts")
    assert "Forbidden" not in scene.operator.log


async def test_it_audits(scene: ClusterScenario, plane: tuple[ControlPlane, Api], view: str) -> None:
    """A pod took the half of the one node that could be whole: metrics, the page and the log say so."""
    _, api = plane
    scene.ignored_reasons |= {"large"}
    await scene.nodes("left", "right", cpu="4")
    await scene.create("stays", "2", scheduler="default-scheduler", nodeName="left")
    moves = scene.pod("moves", "2", scheduler="default-scheduler", nodeName="right")
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
    await api.create({**moves, "metadata": {**moves["metadata"], "ownerReferences": [owner]}})
    await scene.create("large", "4", scheduler="default-scheduler")
    # Its next audit is far off: it rests after each.
    assert await scene.operator.stop() == 0
    await scene.operator.start()

    async def counted() -> bool:
        metrics = await scene.operator.metrics()
        return metrics.get("thalweg_regret_pods least") == metrics.get("thalweg_regret_pods most") == 1

    await until(counted, 120, lambda: f"an audit: {scene.operator.log[-2000:]}")
    token = await account_that_lists(api, "looks", cluster=ALL)
    async with view_session() as session:
        viewer = Viewer(session, int(view.rpartition(":")[2]), token)
        status, told = await viewer.ask("regret")
    assert status == 200
    (room,) = told["closed"]
    keys = "pod", "scheduler", "node", "to", "reason", "waiting"
    moved, waits = f"{scene.namespace}/moves", f"{scene.namespace}/large"
    assert [room[key] for key in keys] == [moved, "default-scheduler", "right", "left", "Fragmentation", waits]
    assert room["placed"] > 0


async def resources(api: Api) -> list[tuple[str, str]]:
    """Group and name of all that the API server serves, subresources too."""
    paths = ["/api/v1"]
    paths += [
        f"/apis/{version['groupVersion']}"
        for group in (await api.get("/apis"))["groups"]
        for version in group["versions"]
    ]
    found = set[tuple[str, str]]()
    for path in paths:
        page = await api.get(path)
        group = path.split("/")[2] if path != "/api/v1" else ""
        found |= {(group, each["name"]) for each in page["resources"]}
    return sorted(found)


async def test_it_may_write_nothing_else(plane: tuple[ControlPlane, Api], reader: Path) -> None:
    """Asked about every verb that writes, on every resource and subresource, the API server allows the Lease's alone.

    And the reviews of the view's callers, which are stored nowhere.
    """
    _, api = plane
    groups = ["system:serviceaccounts", "system:serviceaccounts:thalweg-system", "system:authenticated"]
    limit = asyncio.Semaphore(16)

    async def may(verb: str, group: str, resource: str, namespace: str, name: str = "") -> bool:
        whole, _, sub = resource.partition("/")
        attributes = {"verb": verb, "group": group, "resource": whole, "subresource": sub, "namespace": namespace,
                      "name": name}  # fmt: skip
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                  "spec": {"user": ACCOUNT, "groups": groups, "resourceAttributes": attributes}}  # fmt: skip
        async with limit:
            made = await api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(made["status"]["allowed"])

    served = await resources(api)
    assert len(served) > 100
    asked = [
        (verb, group, resource, namespace)
        for group, resource in served
        for verb in WRITES
        for namespace in ("kube-system", "thalweg-system")
    ]
    answers = await asyncio.gather(*(may(*each) for each in asked))
    allowed = {each for each, yes in zip(asked, answers, strict=True) if yes}
    assert {(verb, resource) for verb, _, resource, _ in allowed} == {("create", review) for review in REVIEWS}
    of_lease = "coordination.k8s.io", "leases"
    for verb in WRITES:
        assert await may(verb, *of_lease, "kube-system", "thalweg") == (verb in ("create", "update", "patch"))
        assert not await may(verb, *of_lease, "kube-system", "kube-scheduler")
        assert not await may(verb, *of_lease, "thalweg-system", "thalweg")
    assert not await may("get", "", "secrets", "kube-system")
    assert not await may("get", "", "configmaps", "kube-system")
