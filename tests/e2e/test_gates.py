"""`waiting: Gate` on a real API server: pods that it is for are given our gate as they are created, and no others.

Pods are created as dry runs: admission is all that these tests look at.
"""

import base64
import contextlib
import itertools
import json
import re
import ssl
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from harness.plane import gate_admission
from support.certificates import authority, issued
from support.cluster_scenario import POLICIES, policy
from support.operator import Operator, until
from thalweg_controlplane import Api, ControlPlane
from thalweg_controlplane.client.api import STRATEGIC_PATCH
from thalweg_controlplane.client.objects import collection_path, pod
from thalweg_operator.policies.gate_admission import NEW_POD_RULES_PATH
from thalweg_operator.policies.gate_manifests import MOST_RULES, new_pod_rules
from thalweg_operator.policies.store import PolicyStore

from flowcore.api.policies import parse_policy
from flowcore.cluster.indexes.policy_index import PolicyIndex
from flowcore.costs import BUILT_IN_MODELS
from flowcore.model.policies import GATE, Delivery, WaitingMode

pytestmark = pytest.mark.asyncio(loop_scope="module")

RULES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
NAMESPACES: dict[str, dict[str, str]] = {
    "gates-bare": {},
    "gates-ml": {"team": "ml"},
    "gates-prod": {"team": "ml", "stage": "prod"},
}
STEERED: dict[str, Any] = {"delivery": "Extender", "selects": {"podSelector": {}}}
SHARED: dict[str, Any] = {"schedulerNames": ["thalweg-steered"], "podSelector": {"matchLabels": {"seen": "us"}}}
GATED: dict[str, Any] = {**STEERED, "waiting": "Gate"}


@pytest_asyncio.fixture(loop_scope="module")
async def api(plane: tuple[ControlPlane, Api], operator: Operator) -> AsyncIterator[Api]:
    """An API server with the namespaces above; policies and gates are gone at the end."""
    _, api = plane
    there = {each["metadata"]["name"] for each in await api.list("/api/v1/namespaces")}
    for name, labels in NAMESPACES.items():
        if name not in there:
            await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    try:
        yield api
    finally:
        await api.delete(POLICIES)
        # One that every test's gate is for.
        await in_effect(api, steered(namespace="gates-ml", labels={"tier": "batch"}), gated=False)


def steered(name: str = "p", namespace: str = "gates-bare", **options: Any) -> dict[str, Any]:
    return pod(name, namespace=namespace, **{"scheduler": "thalweg-steered", **options})


async def gates_of(api: Api, manifest: dict[str, Any]) -> list[str]:
    """Those that the API server lets a pod be created with."""
    made = await api.request("POST", collection_path(manifest), manifest, params={"dryRun": "All"})
    return [each["name"] for each in made["spec"].get("schedulingGates", [])]


async def in_effect(api: Api, manifest: dict[str, Any], *, gated: bool = True) -> None:
    """The API server takes a moment to notice its own admission policies."""

    async def seen() -> bool:
        return (GATE in await gates_of(api, manifest)) is gated

    await until(seen, 30, lambda: f"a pod like {manifest['metadata']} to be {'gated' if gated else 'left alone'}")


def labelled(*sets: dict[str, str]) -> Sequence[dict[str, str]]:
    return sets


async def test_gated_if_and_only_if_such_a_policy_governs_them(api: Api) -> None:
    """By scheduler, labels and namespace labels, every operator: as the policies' own rule says who governs."""
    expressions = [
        {"key": "tier", "operator": "In", "values": ["batch", "night"]},
        {"key": "done", "operator": "DoesNotExist"},
    ]
    specs: dict[str, dict[str, Any]] = {
        "batch": {
            **GATED,
            "selects": {
                "schedulerNames": ["thalweg-steered", "default-scheduler"],
                "podSelector": {"matchExpressions": expressions},
                "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]},
            },
        },
        "urgent": {
            **STEERED,
            "precedence": 10,
            "selects": {
                "podSelector": {"matchExpressions": [{"key": "urgent", "operator": "Exists"}]},
                "namespaceSelector": {"matchExpressions": [{"key": "stage", "operator": "NotIn", "values": ["prod"]}]},
            },
        },
        "watched": {
            "delivery": "Observe",
            "precedence": 20,
            "selects": {
                "schedulerNames": ["default-scheduler"],
                "podSelector": {"matchExpressions": [{"key": "seen", "operator": "In", "values": ["by/us", "us"]}]}
                | {"matchLabels": {"tier": "batch"}},
            },
        },
    }
    specs["watched"]["selects"]["podSelector"]["matchExpressions"][0]["values"] = ["us"]
    store = PolicyStore()
    for name, spec in specs.items():
        assert not store.offer(name, name, 1, spec).problem
        await api.create(policy(name, **spec))
    await in_effect(api, steered(namespace="gates-ml", labels={"tier": "batch"}))
    await in_effect(api, steered(namespace="gates-ml", labels={"tier": "batch", "urgent": ""}), gated=False)
    await in_effect(
        api,
        steered(namespace="gates-ml", labels={"tier": "batch", "seen": "us"}, scheduler="default-scheduler"),
        gated=False,
    )
    sets = labelled(
        {},
        {"tier": "batch"},
        {"tier": "night"},
        {"tier": "day"},
        {"tier": "batch", "done": ""},
        {"tier": "batch", "urgent": "very"},
        {"tier": "batch", "seen": "us"},
        {"tier": "night", "seen": "us"},
        {"urgent": "", "seen": "us"},
    )
    schedulers = ("thalweg-steered", "default-scheduler", "thalweg", "somebody-else")
    index = PolicyIndex(store.accepted)
    wrong, counted = [], {True: 0, False: 0}
    for namespace, labels, scheduler in itertools.product(NAMESPACES, sets, schedulers):
        found = GATE in await gates_of(api, steered(namespace=namespace, labels=labels, scheduler=scheduler))
        first = index.governing(scheduler, tuple(sorted(labels.items())), tuple(sorted(NAMESPACES[namespace].items())))
        wanted = bool(first) and (first[0].delivery, first[0].waiting) == (Delivery.EXTENDER, WaitingMode.GATE)
        counted[wanted] += 1
        if found is not wanted:
            wrong.append((namespace, labels, scheduler, found))
    assert wrong == []
    assert min(counted.values()) >= 10


async def test_other_gates_stay_and_ours_comes_once(api: Api) -> None:
    """Behind those of others, not again where it is there already, and in pods with odd but legal lists too."""
    await api.create(policy("all", **GATED))
    await in_effect(api, steered())
    others = [{"name": "kueue.x-k8s.io/admission"}, {"name": "example.com/other"}]
    assert await gates_of(api, steered(schedulingGates=others)) == [*(each["name"] for each in others), GATE]
    ours = [{"name": GATE}, *others]
    assert await gates_of(api, steered(schedulingGates=ours)) == [each["name"] for each in ours]
    twice = {"name": "TWICE", "value": "1"}
    container = {"name": "main", "image": "example.invalid/main", "env": [twice, {**twice, "value": "2"}]}
    odd = steered(containers=[container])
    assert await gates_of(api, odd) == [GATE]
    made = await api.request("POST", collection_path(odd), odd, params={"dryRun": "All"})
    assert made["spec"]["containers"][0]["env"] == container["env"]
    # Several policies that gate the same pod.
    await api.create(policy("all-again", **GATED, precedence=5))
    await api.wait_for(NEW_POD_RULES_PATH, lambda each: len(each["order"]) == 2)
    assert await gates_of(api, steered(schedulingGates=others)) == [*(each["name"] for each in others), GATE]


async def _names(api: Api, path: str, count: int) -> bool:
    return len(await api.list(path)) == count


async def test_pods_with_a_node_are_left_alone(api: Api) -> None:
    """A gate on one would be refused: the pod could not be created."""
    await api.create(policy("all", **GATED))
    await in_effect(api, steered())
    assert await gates_of(api, steered(nodeName="somewhere")) == []


@pytest.mark.parametrize("labels", [{"tier": "batch"}, {"tier": "batch", "k": "none"}])
async def test_as_many_rules_as_there_may_be(api: Api, labels: dict[str, str]) -> None:
    """The API server goes through all of them for a pod, within what it lets an expression cost: many, or long ones."""
    short = {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["day", "night"]}]}
    values = [f"{number:x}" for number in range(2_000)]
    none_of = [{"key": "k", "operator": "NotIn", "values": values}] * 15
    long = {"matchExpressions": [*none_of, {"key": "never", "operator": "Exists"}]}
    batch = {"podSelector": {"matchLabels": {"tier": "batch"}}}
    for selector, count in ((short, MOST_RULES - 1), (long, 1)):
        specs = [{"podSelector": selector}] * count + [batch]
        policies = [
            parse_policy(f"p{number}", {**GATED, "selects": selects}, BUILT_IN_MODELS)
            for number, selects in enumerate(specs)
        ]
        rules, beyond = new_pod_rules(policies)
        assert not beyond
        await api.patch(NEW_POD_RULES_PATH, {"heartbeat": "2100-01-01T00:00:00Z", "order": rules})
        try:
            await in_effect(api, steered(labels=labels))
            assert await gates_of(api, steered(labels={"tier": "morning", "k": "none"})) == []
        finally:
            await api.patch(NEW_POD_RULES_PATH, {"heartbeat": None, "order": []})
        await in_effect(api, steered(labels=labels), gated=False)


async def test_gone_when_it_is_not_wanted_any_more(api: Api) -> None:
    """Only observing, selecting nothing, deleted: new pods are not gated, and nothing is left behind."""
    for change in ({"delivery": "Observe", "waiting": "Hold"}, {"selects": None}, None):
        await api.create(policy("going", **GATED))
        await in_effect(api, steered())
        if change is None:
            await api.delete(f"{POLICIES}/going")
        else:
            await api.patch(f"{POLICIES}/going", {"spec": change})
        await in_effect(api, steered(), gated=False)
        await api.wait_for(NEW_POD_RULES_PATH, lambda each: each["order"] == [] and "heartbeat" not in each)
        await api.delete(POLICIES)
        await until(lambda: _names(api, POLICIES, 0), 60, lambda: "the policy to be gone")


async def test_pods_of_gangs_are_gated_where_others_are_held(api: Api) -> None:
    """By each of the sources of gangs; and not when another policy that comes first binds them.

    Those of PodGroups of Kubernetes itself only where the policy says Gate: kube-scheduler takes them as a whole.
    """
    await api.create(policy("holding", **GATED))
    await in_effect(api, steered())
    await api.patch(f"{POLICIES}/holding", {"spec": {"waiting": "Hold"}})
    await in_effect(api, steered(), gated=False)
    plain = {"labels": {"app": "pod-group"}, "annotations": {"example.com/gang": "train"}}
    assert await gates_of(api, steered(**plain)) == []
    group = {"kueue.x-k8s.io/pod-group-name": "train"}
    count = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    for mark in ("kueue.x-k8s.io/pod-group-serving", "kueue.x-k8s.io/pod-group-fast-admission"):
        assert await gates_of(api, steered(labels=group, annotations=count | {mark: "true"})) == []
    ours = {"annotations": {"scheduling.thalweg/gang": "train"}}
    for said in (
        {"labels": {"scheduling.x-k8s.io/pod-group": "train"}},
        {"labels": {"pod-group.scheduling.sigs.k8s.io": "train"}},
        {"annotations": {"scheduling.k8s.io/group-name": "train"}},
        {"annotations": {"scheduling.volcano.sh/group-name": "train"}},
        {"annotations": {"gang.scheduling.koordinator.sh/name": "train"}},
        {"labels": group, "annotations": count},
        ours,
    ):
        assert await gates_of(api, steered(**said)) == [GATE], said
    native = {"schedulingGroup": {"podGroupName": "train"}}
    assert await gates_of(api, steered(**native, **ours)) == [], "the first mark counts"
    await api.patch(f"{POLICIES}/holding", {"spec": {"gangs": {"waiting": "Gate"}}})
    await in_effect(api, steered(**native))
    assert await gates_of(api, steered(**ours)) == [GATE]
    await api.patch(f"{POLICIES}/holding", {"spec": {"gangs": {"waiting": "Hold"}}})
    await in_effect(api, steered(**ours), gated=False)
    assert await gates_of(api, steered(**native)) == []
    await api.patch(f"{POLICIES}/holding", {"spec": {"gangs": {"waiting": "Auto"}}})
    await in_effect(api, steered(**ours))
    await api.create(policy("watched", delivery="Observe", precedence=9, selects=SHARED))
    await in_effect(api, steered(**ours, labels=SHARED["podSelector"]["matchLabels"]), gated=False)
    assert await gates_of(api, steered(**ours)) == [GATE]


WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


@contextlib.asynccontextmanager
async def webhook(api: Api, folder: Path, changes: dict[str, Any]) -> AsyncIterator[None]:
    """One that changes the metadata of new pods with the label ``late``. Webhooks come after admission policies."""

    async def review(request: web.Request) -> web.Response:
        asked = (await request.json())["request"]
        patch = [{"op": "add", "path": f"/metadata/{name}", "value": value} for name, value in changes.items()]
        answer = {"uid": asked["uid"], "allowed": True, "patchType": "JSONPatch"}
        answer["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer})

    trusted = authority(folder, "webhooks")
    tls, own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), issued(folder, "webhook", trusted)
    tls.load_cert_chain(own.certificate, own.key)
    app = web.Application()
    app.router.add_post("/", review)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    bundle = base64.b64encode(trusted.certificate.read_bytes()).decode()
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    config = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "later"},
        "webhooks": [
            {
                "name": "later.example.com",
                "clientConfig": {"url": f"https://127.0.0.1:{runner.addresses[0][1]}/", "caBundle": bundle},
                "rules": [rule],
                "objectSelector": {"matchLabels": {"late": ""}},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }
    try:
        await api.create(config)

        async def changed() -> bool:
            made = steered(labels={"late": ""})
            found = await api.request("POST", collection_path(made), made, params={"dryRun": "All"})
            return all(found["metadata"].get(name) == value for name, value in changes.items())

        await until(changed, 30, lambda: "the webhook to be asked")
        yield
    finally:
        await api.delete(f"{WEBHOOKS}/later")
        await runner.cleanup()


async def test_what_webhooks_change(api: Api, tmp_path: Path) -> None:
    """Other labels count. The mark of a gang counts only where other pods are gated too: the docs say so."""
    batch = {"podSelector": {"matchLabels": {"tier": "batch"}}}
    late = steered(labels={"late": ""})
    await api.create(policy("batch", **{**GATED, "selects": batch}))
    await in_effect(api, steered(labels={"tier": "batch"}))
    assert await gates_of(api, late) == []
    async with webhook(api, tmp_path, {"labels": {"late": "", "tier": "batch"}}):
        assert await gates_of(api, late) == [GATE]
    await api.delete(f"{POLICIES}/batch")
    mark = {"scheduling.thalweg/gang": "train"}
    await api.create(policy("holding", **{**STEERED, "waiting": "Hold"}))
    await in_effect(api, steered(annotations=mark))
    async with webhook(api, tmp_path, {"annotations": mark}):
        assert await gates_of(api, late) == []
        await api.patch(f"{POLICIES}/holding", {"spec": {"waiting": "Gate"}})
        await in_effect(api, steered())
        assert await gates_of(api, late) == [GATE]


async def mutations(api: Api) -> float:
    """How often the API server has gone through the schema of pods for us."""
    lines = [each for each in (await api.get("/metrics")).splitlines() if 'policy="thalweg-gate"' in each]
    checks = [each for each in lines if each.startswith("apiserver_mutating_admission_policy_check_total{")]
    return sum(float(each.rpartition(" ")[2]) for each in checks)


async def test_what_reaches_the_mutation(api: Api) -> None:
    """It is dear: pods that may be gated, once each though the API server admits them twice, and no others."""
    mark = {"scheduling.thalweg/gang": "train"}
    await api.create(policy("holding", **{**STEERED, "waiting": "Hold"}))
    await in_effect(api, steered(annotations=mark))
    for manifest, times in (
        (steered(annotations=mark), 1),
        (steered(), 0),
        (steered(annotations=mark, scheduler="somebody-else"), 0),
        (steered(annotations=mark, namespace="kube-system"), 0),
        (steered(annotations=mark, nodeName="somewhere"), 0),
        (steered(annotations=mark, schedulingGates=[{"name": GATE}]), 0),
    ):
        before = await mutations(api)
        await gates_of(api, manifest)
        assert await mutations(api) - before == times, manifest


async def test_a_changed_selection_changes_the_gate(api: Api) -> None:
    """At once."""
    await api.create(policy("moving", **GATED))
    await in_effect(api, steered())
    selects = {"podSelector": {"matchLabels": {"tier": "batch"}}}
    await api.patch(f"{POLICIES}/moving", {"spec": {"selects": selects}})
    await in_effect(api, steered(), gated=False)
    await in_effect(api, steered(labels={"tier": "batch"}))


async def test_a_policy_that_went_while_nobody_ran(api: Api, operator: Operator) -> None:
    """Its pods are not gated any more, without an operator and with the next one; another policy's are."""
    await api.create(policy("staying", **{**GATED, "selects": {"podSelector": {"matchLabels": {"tier": "batch"}}}}))
    await api.create(policy("leaving", **GATED, precedence=-1))
    await in_effect(api, steered())
    await operator.stop()
    await api.delete(f"{POLICIES}/leaving")
    await operator.start()
    await in_effect(api, steered(labels={"tier": "batch"}))
    assert await gates_of(api, steered()) == []


async def test_without_the_admission_policy(api: Api) -> None:
    """The policy's Ready condition says that its pods are held, and what to apply; the operator makes none itself."""
    for path in (BINDINGS, RULES):
        await api.delete(f"{path}/thalweg-gate")
    await api.create(policy("held", **GATED))

    def told(each: Any) -> bool:
        return any(
            condition["reason"] == "HeldNotGated" and "kubectl apply -f rights/gates.yaml" in condition["message"]
            for condition in each.get("status", {}).get("conditions", [])
        )

    await api.wait_for(f"{POLICIES}/held", told)
    assert [*await api.list(RULES), *await api.list(BINDINGS)] == []
    for each in gate_admission():
        await api.apply(each)
    await in_effect(api, steered())
    await api.wait_for(f"{POLICIES}/held", lambda each: not told(each))


async def test_the_docs_open_our_gate_alone(api: Api) -> None:
    """What docs/how-to/remove-thalweg.md has people patch pods with takes our gate away and no other."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "remove-thalweg.md").read_text()
    (patch,) = re.findall(r"patch pod .* -p '(.*?)'", page)
    made = await api.create(steered("waits", schedulingGates=[{"name": GATE}, {"name": "example.com/other"}]))
    path = f"{collection_path(made)}/waits"
    opened = await api.patch(path, json.loads(patch), content_type=STRATEGIC_PATCH)
    assert opened["spec"]["schedulingGates"] == [{"name": "example.com/other"}]
    await api.delete(path, gracePeriodSeconds="0")


async def test_system_pods_are_never_gated(api: Api) -> None:
    """A policy that selects everything, of the default scheduler too, leaves kube-system alone."""
    everything = {**GATED, "selects": {"schedulerNames": ["default-scheduler", "thalweg-steered"], "podSelector": {}}}
    await api.create(policy("everything", **everything))
    await in_effect(api, steered())
    for scheduler in ("default-scheduler", "thalweg-steered"):
        assert await gates_of(api, steered(scheduler=scheduler)) == [GATE]
        assert await gates_of(api, steered(namespace="kube-system", scheduler=scheduler)) == []


async def test_no_gates_while_the_operator_is_stopped(api: Api, operator: Operator) -> None:
    """SIGTERM takes the heartbeat back: new pods are not gated."""
    await api.create(policy("stopped", **GATED))
    await in_effect(api, steered())
    assert await operator.stop() == 0
    try:
        await in_effect(api, steered(), gated=False)
    finally:
        await operator.start()
    await in_effect(api, steered())


async def test_no_gates_after_the_operator_was_killed(api: Api, operator: Operator) -> None:
    """SIGKILL: half a minute after the last heartbeat new pods are not gated, until an operator runs again."""
    await api.create(policy("killed", **GATED))
    await in_effect(api, steered())
    await operator.kill()
    try:
        assert await gates_of(api, steered()) == [GATE]
        await until(lambda: _ungated(api), 45, lambda: "the heartbeat to end")
    finally:
        await operator.start()
    await in_effect(api, steered())


async def _ungated(api: Api) -> bool:
    return await gates_of(api, steered()) == []


async def test_a_pod_that_says_when_it_was_written(api: Api) -> None:
    """Managed fields of a client's own, with times of its own or none, do not close a gate that nobody opens."""
    await api.create(policy("own", **GATED))
    await in_effect(api, steered())
    entry = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}
    for fields in ([], [{}], [entry | {"time": "2001-01-01T00:00:00Z"}], [entry | {"time": "2101-01-01T00:00:00Z"}]):
        made = steered()
        made["metadata"]["managedFields"] = fields
        assert await gates_of(api, made) in ([GATE], [])
