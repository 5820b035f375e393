"""One end-to-end test's share of a control plane: its namespace, its nodes, its pods, and the checks at the end."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from harness.plane import gate_admission
from support.cluster_checks import (
    PodHistory,
    check_history,
    check_legal,
    check_not_overcommitted,
    unexplained_pods,
    unschedulable_message,
)
from support.kubernetes_rules import serves_gates
from support.operator import Operator, until
from support.retries import PASSING, insist
from thalweg.crds import custom_resource_definitions
from thalweg_controlplane import Api, ApiError, Oracle
from thalweg_controlplane.client.objects import collection_path, node, pod

from flowcore.model.policies import SCHEDULER_NAME

POLICIES = "/apis/scheduling.thalweg/v1alpha1/flowschedulingpolicies"
QUEUES = "/apis/scheduling.thalweg/v1alpha1/flowqueues"
_WITHIN = 90.0
#: Until thousands of pods are gone.
_GONE_WITHIN = 600.0
_WORKLOADS = ("apps/deployments", "apps/statefulsets", "apps/replicasets", "batch/jobs")


class ClusterScenario:
    """See the module. Nodes are the cluster's only ones while the test runs."""

    def __init__(self, api: Api, operator: Operator, namespace: str, history: PodHistory, scheduler: str) -> None:
        self.api, self.operator, self.namespace, self.history = api, operator, namespace, history
        #: What its pods name unless they say otherwise.
        self.scheduler = scheduler
        #: Schedulers whose pods must neither be lost nor be on a node against the rules.
        self.watches_history = {SCHEDULER_NAME, scheduler}
        #: Pods that are illegal on their node now, since the test changed the node after they were bound.
        self.ignored_pods: set[str] = set()
        #: Pods that may be left without a reason: a policy only observes them.
        self.ignored_reasons: set[str] = set()

    async def nodes(self, *names: str, **options: Any) -> None:
        """Creates nodes that are alike."""
        await self.api.create_many([node(name, **options) for name in names])

    async def ready(self, *names: str) -> None:
        """Returns once nodes are Ready. KWOK may never start a pod that was bound to a node before.

        It lists the pods of a node when it has written the node's lease, and passes them over while its watch does not
        show that lease (kwok pkg/kwok/controllers, Held).
        """

        def is_ready(each: Mapping[str, Any]) -> bool:
            conditions = each["status"].get("conditions", [])
            return any((known["type"], known["status"]) == ("Ready", "True") for known in conditions)

        for name in names:
            await self.api.wait_for(f"/api/v1/nodes/{name}", is_ready)

    def pod(self, name: str, cpu: str | None = "100m", **options: Any) -> dict[str, Any]:
        """A pod of this test's namespace, not created yet."""
        return pod(name, cpu=cpu, namespace=self.namespace, **{"scheduler": self.scheduler, **options})

    async def create(self, name: str, cpu: str | None = "100m", **options: Any) -> dict[str, Any]:
        """A pod, created."""
        created: dict[str, Any] = await self.api.create(self.pod(name, cpu, **options))
        return created

    async def priority_class(self, name: str, value: int, **fields: Any) -> None:
        """Creates a PriorityClass; returns once pods can name it: admission reads a cache that comes later."""
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        await self.api.apply({**kind, "value": value, **fields})
        probe = self.pod("probe", priorityClassName=name)

        async def known() -> bool:
            try:
                made = await self.api.request("POST", collection_path(probe), probe, params={"dryRun": "All"})
            except ApiError as error:
                if error.status != 403:
                    raise
                return False
            return bool(made["spec"]["priority"] == value)

        await until(known, 30, lambda: f"pods of priority {name} to be admitted")

    async def replica(self, name: str = "web", cpu: str = "2", **options: Any) -> dict[str, Any]:
        """The one pod of a new ReplicaSet, which asks for so much, once it runs."""
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": self.pod("template", cpu, **options)["spec"]}
        await self.api.create(
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {"name": name, "namespace": self.namespace},
                "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
            }
        )
        found: list[dict[str, Any]] = []

        async def runs() -> bool:
            found[:] = [
                each
                for each in await self.pods()
                if each["status"].get("phase") == "Running" and each["metadata"].get("labels") == labels
            ]
            return bool(found)

        await until(runs, 60, lambda: "the replica to run")
        return found[0]

    def path(self, name: str) -> str:
        """Of a pod."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{name}"

    async def get(self, name: str) -> dict[str, Any]:
        """A pod as it is now."""
        found: dict[str, Any] = await self.api.get(self.path(name))
        return found

    async def pods(self) -> list[dict[str, Any]]:
        """All pods of the namespace."""
        return await self.api.list(f"/api/v1/namespaces/{self.namespace}/pods")

    async def node_of(self, name: str, within: float = _WITHIN) -> str:
        """Waits until a pod is bound; its node."""
        found = await self.api.wait_for(self.path(name), lambda each: each["spec"].get("nodeName"), within=within)
        return str(found["spec"]["nodeName"])

    async def nodes_of(self, *names: str, within: float = _WITHIN) -> dict[str, str]:
        """Waits until all of these (without names: all pods) are bound; where."""
        last: list[str] = []
        where: dict[str, str] = {}

        async def bound() -> bool:
            nonlocal last, where
            where = {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in await self._try_pods()}
            last = [name for name in names or where if not where.get(name)]
            return bool(where) and not last

        await until(bound, within, lambda: f"{len(last)} pods to be bound, such as {last[:3]}")
        return {name: where[name] for name in names} if names else where

    async def reason_of(self, name: str, *containing: str, within: float = _WITHIN) -> str:
        """Waits until a pod was told why it waits, in these words; the message."""

        def heard(each: Mapping[str, Any]) -> bool:
            return bool(unschedulable_message(each)) and all(
                words in unschedulable_message(each) for words in containing
            )

        found = await self.api.wait_for(self.path(name), heard, within=within)
        assert "nodeName" not in found["spec"]
        return unschedulable_message(found)

    async def events_of(self, name: str) -> list[dict[str, Any]]:
        """Events about a pod by us, oldest first."""
        found = await self.api.list(
            f"/api/v1/namespaces/{self.namespace}/events", fieldSelector=f"involvedObject.name={name}"
        )
        ours = [event for event in found if event["source"].get("component") == "thalweg"]
        return sorted(ours, key=lambda event: int(event["metadata"]["resourceVersion"]))

    async def wait_for_round(self, name: str) -> None:
        """Returns after a later pod was placed: rounds have seen everything that was there before."""
        await self.create(name, cpu=None, tolerations=[{"operator": "Exists"}])
        await self.node_of(name)

    async def delete(self, *names: str) -> None:
        """Deletes pods and waits until they are gone."""
        for name in names:
            await self.api.delete(self.path(name), gracePeriodSeconds="0")
        await until(lambda: self._gone(names), _WITHIN, lambda: f"{names} to be gone")

    async def policy(self, name: str, **spec: Any) -> dict[str, Any]:
        """Creates or changes a policy; returns it once the operator has looked at this version."""
        made = await self.api.apply(policy(name, **spec))
        return await self.policy_seen(name, made["metadata"]["generation"])

    async def policy_seen(
        self, name: str, generation: int = 1, condition: Callable[[Any], bool] = lambda _: True, within: float = _WITHIN
    ) -> dict[str, Any]:
        """Waits until a policy's status speaks of this generation and a condition holds; the policy."""

        def seen(each: Mapping[str, Any]) -> bool:
            return each.get("status", {}).get("observedGeneration", 0) >= generation and condition(each)

        found: dict[str, Any] = await self.api.wait_for(f"{POLICIES}/{name}", seen, within=within)
        return found

    async def _try_pods(self) -> list[dict[str, Any]]:
        try:
            return await self.pods()
        except ApiError as error:
            if error.status not in PASSING:
                raise
            return []

    async def _gone(self, names: tuple[str, ...]) -> bool:
        return not {each["metadata"]["name"] for each in await self.pods()} & set(names)

    async def wait_settled(self) -> None:
        """Waits until no pod is lost: each is bound or was told why not."""
        left: list[str] = []

        async def none_lost() -> bool:
            nonlocal left
            pods = [each for each in await self.pods() if each["metadata"]["name"] not in self.ignored_reasons]
            left = [name for scheduler in self.watches_history for name in unexplained_pods(pods, scheduler)]
            return not left

        await until(none_lost, _WITHIN, lambda: f"{len(left)} pods to be bound or told why not, such as {left[:3]}")

    async def check_invariants(self, oracle: Oracle) -> None:
        """Liveness: no pod is lost. Safety: see `cluster_checks`."""
        self.operator.check()
        await self.wait_settled()
        page = await self.api.get("/api/v1/pods")
        nodes, pods = await self.api.list("/api/v1/nodes"), page["items"]
        # A mark in the watch: when it comes by, all before it was seen.
        mark = await self.create("the-end", scheduler="nobody")
        await self.history.wait_caught_up(int(mark["metadata"]["resourceVersion"]))
        check_not_overcommitted(nodes, pods)
        check_history(self.history, nodes)
        judged = [each for each in pods if each["metadata"]["name"] not in self.ignored_pods]
        for scheduler in self.watches_history:
            check_legal(oracle, nodes, judged, await self.api.list("/api/v1/namespaces"), scheduler)

    async def clean_up(self) -> None:
        """Deletes nodes, policies, queues, workloads and pods, and waits until they are gone.

        A test that fails may leave pods with finalizers. These are taken away: no later test waits for them.
        """
        for kind in _WORKLOADS:
            path = f"/apis/{kind.replace('/', f'/v1/namespaces/{self.namespace}/')}"
            await insist(lambda path=path: self.api.delete(path, propagationPolicy="Background"))
        for path in (POLICIES, QUEUES, "/api/v1/nodes"):
            await insist(lambda path=path: self.api.delete(path))  # 404: the CRD may not be there

        async def no_pods() -> bool:
            # Their controllers may make some more before they notice. To delete 20,000 at once may take the API server
            # longer than it gives a request: it goes on with the next one.
            try:
                pods = await self.api.list("/api/v1/pods")
                for known in [each["metadata"] for each in pods if each["metadata"].get("finalizers")]:
                    path = f"/api/v1/namespaces/{known['namespace']}/pods/{known['name']}"
                    await insist(lambda path=path: self.api.patch(path, {"metadata": {"finalizers": None}}))
                left = {each["metadata"]["namespace"] for each in pods}
                for each in left:
                    await self.api.delete(f"/api/v1/namespaces/{each}/pods", gracePeriodSeconds="0")
            except ApiError as error:
                if error.status not in PASSING:
                    raise
                return False
            return not left

        await until(no_pods, _GONE_WITHIN, lambda: "all pods to be gone")
        await self.api.wait_for("/api/v1/nodes", lambda page: not page["items"])


@asynccontextmanager
async def running_scenario(
    api: Api,
    operator: Operator,
    namespace: str,
    oracle: Oracle,
    *,
    accounts: bool = False,
    scheduler: str = SCHEDULER_NAME,
) -> AsyncIterator[ClusterScenario]:
    """A scene, checked at its end and cleaned up in any case.

    `accounts`: a controller manager makes service accounts, without which no pod can be created.
    """
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    if accounts:
        await api.wait_for(f"/api/v1/namespaces/{namespace}/serviceaccounts/default", lambda _: True)
    async with PodHistory(api) as history:
        scene = ClusterScenario(api, operator, namespace, history, scheduler)
        try:
            yield scene
            await scene.check_invariants(oracle)
        finally:
            await scene.clean_up()


def policy(name: str, **spec: Any) -> dict[str, Any]:
    """A FlowSchedulingPolicy."""
    return {
        "apiVersion": "scheduling.thalweg/v1alpha1",
        "kind": "FlowSchedulingPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }


def queue(name: str, **spec: Any) -> dict[str, Any]:
    """A FlowQueue; it selects pods with its name as their label ``team``."""
    selects = {"podSelector": {"matchLabels": {"team": name}}}
    return {
        "apiVersion": "scheduling.thalweg/v1alpha1",
        "kind": "FlowQueue",
        "metadata": {"name": name},
        "spec": {"selects": selects} | spec,
    }


async def install_crds(api: Api) -> None:
    """CRDs, and the admission policy that reads them where it is served; returns once the API server serves them."""
    for crd in custom_resource_definitions():
        await api.apply(crd)
        version = crd["spec"]["versions"][0]["name"]
        plural = crd["spec"]["names"]["plural"]
        path = f"/apis/{crd['spec']['group']}/{version}/{plural}"
        await until(partial(_served, api, path), 30, lambda path=path: f"{path} to be served")
    for each in gate_admission() if await serves_gates(api) else ():
        await api.apply(each)


async def _served(api: Api, path: str) -> bool:
    try:
        await api.get(path)
    except ApiError as error:
        if error.status not in (404, 429, 503):  # 429: the API server is making room for the new kind
            raise
        return False
    return True
