"""The chart on the real API server: every object that it can render; `helm install`, `upgrade` and `uninstall`.

Nothing runs the pods here, so hooks are left out. cert-manager and Prometheus Operator are not there: their kinds are
stood for by CRDs that keep every field, so of those objects only the envelope is checked by the server.
"""

import asyncio
import contextlib
import itertools
import json
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from support.chart_matrix import FOREIGN, KINDS, foreign_crds, key, matrix
from support.cli import thalweg
from support.cluster_listing import everything
from support.helm import CHART, NAMESPACE, Helm, HelmError, Manifest, one, pod_templates
from support.operator import until
from thalweg_controlplane import Api, ApiError, ControlPlane
from thalweg_controlplane.client.api import APPLY_PATCH, MERGE_PATCH
from thalweg_controlplane.client.objects import collection_path, object_path, pod

from flowcore.model.policies import GATE, PLANNED

pytestmark = pytest.mark.asyncio(loop_scope="module")

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/flowschedulingpolicies.scheduling.thalweg"
POLICIES = "/apis/scheduling.thalweg/v1alpha1/flowschedulingpolicies"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/thalweg"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/thalweg-extender-tls"
VIEW = "/apis/rbac.authorization.k8s.io/v1/clusterroles/view"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def namespace(plane: tuple[ControlPlane, Api]) -> str:
    """The release's namespace, which allows restricted pods only, with the kinds of others served."""
    _, api = plane
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
    for each in foreign_crds():
        await api.create(each)
    for api_version, kinds in FOREIGN.items():
        for kind in kinds:
            await api.wait_for(f"/apis/{api_version}/{kind.lower()}s", lambda _: True)
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    await api.wait_for(path, lambda _: True)
    return NAMESPACE


async def test_the_matrix_has_all_pairs() -> None:
    """What the next test renders: each choice with each choice of another kind."""
    for first, second in itertools.combinations(range(len(KINDS)), 2):
        pairs = {(key(each[first]), key(each[second])) for each in matrix()}
        assert len(pairs) == len(KINDS[first]) * len(KINDS[second])


async def test_the_api_server_takes_every_object(helm: Helm, plane: tuple[ControlPlane, Api], namespace: str) -> None:
    """Over a matrix of values, each different object passes server-side apply with strict checks of its fields."""
    _, api = plane
    objects: dict[str, Manifest] = {}
    pods: dict[str, Manifest] = {}
    for parts in matrix():
        values = {name: value for part in parts for name, value in part.items()}
        rendered = await asyncio.to_thread(helm.template, values)
        names = [(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in rendered]
        assert len(set(names)) == len(names), values
        objects |= {key(each): each for each in rendered if each["kind"] != "Pod"}
        pods |= {key(each): each for each in pod_templates(rendered)}
    assert len(objects) > 60
    params = {"dryRun": "All", "fieldManager": "test", "force": "true", "fieldValidation": "Strict"}
    for each in objects.values():
        await api.request("PATCH", object_path(each), each, params=params, content_type=APPLY_PATCH)
    # Accounts and the PriorityClass must be there for pods to be admitted.
    (priority,) = [each for each in objects.values() if each["kind"] == "PriorityClass"]
    await api.apply(priority)
    for name in {each["spec"].get("serviceAccountName", "default") for each in pods.values()} - {"default"}:
        await api.apply(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
        )
    for number, each in enumerate(pods.values()):
        metadata = {**each["metadata"], "name": f"p{number}", "namespace": namespace}
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": each["spec"]}
        await api.request("POST", collection_path(made), made, params={"dryRun": "All", "fieldValidation": "Strict"})
    await api.delete(f"/api/v1/namespaces/{namespace}/serviceaccounts", labelSelector="!never")
    await api.delete(object_path(priority))


async def test_the_namespace_is_restricted(plane: tuple[ControlPlane, Api], namespace: str) -> None:
    """The check before means something: a pod without the restricted security context is refused there."""
    _, api = plane
    lax = pod("lax", namespace=namespace, serviceAccountName="default")
    with pytest.raises(ApiError, match=r'violates PodSecurity "restricted'):
        await api.request("POST", collection_path(lax), lax, params={"dryRun": "All"})


class Release:
    """The release `thalweg` on the test's cluster."""

    def __init__(self, helm: Helm, plane: ControlPlane) -> None:
        self._helm, self._plane = helm, plane

    async def __call__(self, *words: str | Path, **values: Any) -> str:
        """A helm command in the release's namespace, with these values. Uninstall leaves nothing unless they say so."""
        if words[0] in ("install", "upgrade"):
            values = {"crds.keep": False, **values}
        given = self._helm.values(values)
        where = ("--namespace", NAMESPACE, *words[1:], *given)
        return await asyncio.to_thread(self._helm.run, words[0], *where, kubeconfig=self._plane.kubeconfig)


@pytest_asyncio.fixture(loop_scope="module")
async def release(helm: Helm, plane: tuple[ControlPlane, Api], namespace: str) -> AsyncIterator[Release]:
    """No release yet; at the end it is uninstalled, and nothing of it is left of any kind."""
    control, api = plane
    before = await everything(api)
    release = Release(helm, control)
    yield release
    await release("uninstall", "thalweg", "--no-hooks", "--ignore-not-found")
    difference: set[Any] = set()

    async def as_before() -> bool:
        nonlocal difference
        difference = await everything(api) ^ before
        for path, _, name in difference:
            if path.endswith("/customresourcedefinitions"):
                await _end_again(api, f"{path}/{name}")
        return not difference

    await until(as_before, 240, lambda: f"{sorted(difference)} to go")


async def _end_again(api: Api, path: str) -> None:
    """Has the API server try anew to end a definition whose objects it could not list: its own pauses double each time.

    Source: crd_finalizer.go of apiextensions-apiserver, which looks at a definition when its metadata changes.
    """
    with contextlib.suppress(ApiError):  # it is gone
        definition = await api.get(path)
        if definition["metadata"].get("deletionTimestamp"):
            await api.patch(
                path, {"metadata": {"annotations": {"test/tried": definition["metadata"]["resourceVersion"]}}}
            )


def policy(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.thalweg/v1alpha1",
        "kind": "FlowSchedulingPolicy",
        "metadata": {"name": name},
        "spec": {"delivery": "Observe", **spec},
    }


STRICT = "kube-scheduler schedules NO pod"
IGNORABLE = "kube-scheduler schedules all pods as if there were no plan"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"mode": "Binder"}, set()),
        ({"mode": "Extender"}, {IGNORABLE}),
        ({"mode": "Extender", "extender.ignorable": False}, {STRICT}),
        ({"mode": "SecondScheduler", "image.repository": "registry.example/thalweg"}, {STRICT}),
        ({"mode": "Observe"}, set()),
    ],
    ids=["binder", "ignorable", "strict", "second", "observe"],
)
async def test_install_and_uninstall(
    release: Release, plane: tuple[ControlPlane, Api], values: dict[str, Any], said: set[str]
) -> None:
    """One command installs CRDs and all objects; its notes say what strict and ignorable mean, and name three steps.

    They warn where the image is the one of the sources, which nobody has. Viewers may read policies then. Uninstall
    leaves nothing: the fixture looks.
    """
    _, api = plane
    notes = (await release("install", "thalweg", CHART, **values)).partition("\nNOTES:\n")[2]
    assert re.findall(r"^  (\d)\. ", notes, re.MULTILINE) == ["1", "2", "3"]
    assert "<no value>" not in notes
    assert {each for each in (STRICT, IGNORABLE) if each in notes} == said
    assert ("No pod will start" in notes) == ("image.repository" not in values)
    assert ("PriorityClass thalweg" in notes) == (values["mode"] != "Observe")
    for words in ("kubectl thalweg why POD", "--audience thalweg-view", "uninstall --list"):
        assert words in notes
    await api.wait_for(POLICIES, lambda _: True)
    await api.create(policy("mine"))

    def reads_policies(role: Any) -> bool:
        return any("flowschedulingpolicies" in rule.get("resources", ()) for rule in role["rules"])

    await api.wait_for(VIEW, reads_policies)
    await api.wait_for(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/thalweg", lambda each: each["status"])
    await release("uninstall", "thalweg", "--no-hooks")
    await api.wait_for(VIEW, lambda role: not reads_policies(role))


async def test_upgrade(release: Release, plane: tuple[ControlPlane, Api], tmp_path: Path) -> None:
    """From a chart with an older CRD: the CRD is new, and policies, certificates, Lease and given values are kept.

    A value that left is taken, and the notes say what holds in its place.
    """
    _, api = plane
    older = tmp_path / "thalweg"
    shutil.copytree(CHART, older)  # follows the symbolic links
    (path,) = (older / "files" / "crds").glob("flowschedulingpolicies*")
    crd = yaml.safe_load(path.read_text())
    new = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].pop("precedence")
    path.write_text(yaml.safe_dump(crd))
    chart = yaml.safe_load((older / "Chart.yaml").read_text())
    (older / "Chart.yaml").write_text(yaml.safe_dump({**chart, "version": "0.0.9", "appVersion": "0.0.9"}))
    await release("install", "thalweg", older, mode="Extender", replicas=3, **{"rights.learnt": False})
    await api.wait_for(POLICIES, lambda _: True)
    made = await api.create(policy("kept"))
    with pytest.raises(ApiError, match="unknown field"):
        await api.request("POST", POLICIES, policy("new", precedence=1), params={"fieldValidation": "Strict"})
    # What the Job and the operator write.
    await api.patch(SECRET, {"data": {"tls.crt": "eA=="}})
    await api.patch(LEASE, {"spec": {"holderIdentity": "somebody"}})

    notes = await release("upgrade", "thalweg", CHART, "--reset-then-reuse-values", logLevel="debug")
    assert "rights.learnt is ignored since 0.1.0: what classes of pods use is kept with rights.usage." in notes
    await api.wait_for(CRD, lambda each: new["default"] == _precedence(each).get("default"))
    for again in (True, False):
        assert (await api.get(f"{POLICIES}/kept"))["metadata"]["uid"] == made["metadata"]["uid"]
        assert (await api.get(SECRET))["data"] == {"tls.crt": "eA=="}
        assert (await api.get(LEASE))["spec"]["holderIdentity"] == "somebody"
        deployment = await api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/thalweg")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert (deployment["spec"]["replicas"], "--log-level=debug" in container["args"]) == (3, True)
        if again:
            await release("upgrade", "thalweg", CHART, "--reuse-values")
    created = {"dryRun": "All", "fieldValidation": "Strict"}
    await api.request("POST", POLICIES, policy("new", precedence=1), params=created)
    jobs = await api.list(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs")
    assert len(jobs) == 1, "the older revision's Job is gone"


def _precedence(crd: Any) -> dict[str, Any]:
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    found: dict[str, Any] = schema["properties"]["spec"]["properties"].get("precedence", {})
    return found


async def test_kept_policies(release: Release, plane: tuple[ControlPlane, Api]) -> None:
    """With crds.keep the policies outlive the release, and the next release takes the CRD over."""
    _, api = plane
    await release("install", "thalweg", CHART, **{"crds.keep": True})
    await api.wait_for(POLICIES, lambda _: True)
    made = await api.create(policy("kept"))
    await release("uninstall", "thalweg", "--no-hooks")
    await release("install", "thalweg", CHART)
    assert (await api.get(f"{POLICIES}/kept"))["metadata"]["uid"] == made["metadata"]["uid"]


async def test_the_mode_can_change(release: Release, plane: tuple[ControlPlane, Api]) -> None:
    """From Binder to SecondScheduler and back: gates are opened first, and then every object of that mode is gone."""
    _, api = plane

    async def opens_gates() -> str:
        """The events at which the present revision opens gates."""
        for each in yaml.safe_load_all(await release("get", "hooks", "thalweg")):
            if each["kind"] == "Job":
                return str(each["metadata"]["annotations"]["helm.sh/hook"])
        raise AssertionError

    await release("install", "thalweg", CHART)
    binder = await release("get", "manifest", "thalweg")
    assert await opens_gates() == "pre-delete,pre-rollback"
    await release("upgrade", "thalweg", CHART, mode="SecondScheduler")
    assert await opens_gates() == "pre-delete"
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/thalweg-kube-scheduler"
    await api.wait_for(path, lambda each: each["spec"]["replicas"] == 2)
    await release("upgrade", "thalweg", CHART, "--no-hooks", mode="Binder")
    assert await opens_gates() == "pre-delete,pre-rollback,pre-upgrade"
    assert await release("get", "manifest", "thalweg") == binder
    with pytest.raises(ApiError, match="not found"):
        await api.get(path)
    services = await api.list(f"/api/v1/namespaces/{NAMESPACE}/services")
    assert [each["metadata"]["name"] for each in services] == ["thalweg", "thalweg-view"]
    await release("upgrade", "thalweg", CHART, mode="Binder")
    assert await opens_gates() == "pre-delete,pre-rollback", "there is nothing to open any more"


async def test_after_kubectl_apply(release: Release, plane: tuple[ControlPlane, Api]) -> None:
    """Who applied crds/ and rights/ by hand installs with --take-ownership; without it Helm names the first object."""
    _, api = plane
    for folder in ("crds", "rights"):
        for path in sorted((CHART / "files" / folder).glob("*.yaml")):
            for each in yaml.safe_load_all(path.read_text()):
                if each["kind"] != "Namespace":
                    await api.apply(each)
    with pytest.raises(HelmError, match="exists and cannot be imported into the current release: invalid ownership"):
        await release("install", "thalweg", CHART, mode="Extender")
    await release("install", "thalweg", CHART, "--take-ownership", mode="Extender")
    # What lies in another namespace than the release, or belongs to another mode, is not the release's.
    for name in ("lease", "usage", "observe"):
        for each in yaml.safe_load_all((CHART / "files" / "rights" / f"{name}.yaml").read_text()):
            await api.delete(object_path(each))


async def account_kubeconfig(control: ControlPlane, api: Api, name: str, folder: Path) -> Path:
    """The plane's, with the token of an account of the release."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}/token"
    config = yaml.safe_load(control.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": (await api.request("POST", path, request))["status"]["token"]}
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(config))
    return kubeconfig


@asynccontextmanager
async def hooks(helm: Helm, api: Api, values: dict[str, Any], name: str) -> AsyncIterator[None]:
    """What Helm makes for a hook while it runs, but for the pod: nothing runs it here."""
    objects = [each for each in helm.template(values) if each["metadata"]["name"] == name]
    made = [each for each in objects if each["kind"] not in ("Job", "Pod")]
    assert len(made) == 5
    for each in made:
        await api.apply(each)
    try:
        yield
    finally:
        for each in made:
            await api.delete(object_path(each))


async def test_the_doctor_has_the_rights_that_it_needs(
    release: Release, plane: tuple[ControlPlane, Api], tmp_path: Path, helm: Helm
) -> None:
    """The command of `helm test`, with its account's token and no other right, finds that no operator leads.

    It may read all that it asks for, and finds all rights and the confinement of the operator's account, whatever
    their names.
    """
    control, api = plane
    values = {"mode": "Extender", "fullnameOverride": "prod", "serviceAccount.name": "robot"}
    await release("install", "thalweg", CHART, **values)
    (container,) = one(helm.template(values), "Pod", "prod-test")["spec"]["containers"]
    words = [word for word in container["args"] if not word.startswith("--scheduler-config=")]
    async with hooks(helm, api, values, "prod-test"):
        kubeconfig = await account_kubeconfig(control, api, "prod-test", tmp_path)
        done = await asyncio.to_thread(thalweg, *words, "--kubeconfig", kubeconfig, "-o", "json")
    assert done.returncode == 1, done.stderr
    found = {each["check"]: each["verdict"] for each in json.loads(done.stdout)}
    wanted = dict.fromkeys(
        ("api-server", "crd", "rights", "confinement", "policies", "gates", "served", "waiting"), "OK"
    )
    wanted |= {"lease": "FAIL", "view": "WARN"}
    assert {check: found[check] for check in wanted} == wanted, done.stdout


async def test_the_uninstaller_has_the_rights_that_it_needs(
    release: Release, plane: tuple[ControlPlane, Api], tmp_path: Path, helm: Helm
) -> None:
    """The command of the pre-delete Job, with its account's token and no other right, opens a thousand gates.

    It says first what names the scheduler. That token changes nothing else of a pod.
    """
    control, api = plane
    await release("install", "thalweg", CHART, mode="Extender")
    await api.create_many([pod(f"p{number}", schedulingGates=[{"name": GATE}]) for number in range(1000)])
    await api.patch(LEASE, {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}})  # as an operator releases it
    async with hooks(helm, api, {"mode": "Extender"}, "thalweg-uninstall"):
        kubeconfig = await account_kubeconfig(control, api, "thalweg-uninstall", tmp_path)
        async with Api(kubeconfig) as thief:
            stolen = {"metadata": {"annotations": {PLANNED: "n"}}}

            async def confined() -> bool:
                with pytest.raises(ApiError) as refused:
                    await thief.request("PATCH", "/api/v1/namespaces/default/pods/p0", stolen, content_type=MERGE_PATCH)
                return "Thalweg's uninstall account may open Thalweg's scheduling gate" in str(refused.value)

            await until(confined, 30, lambda: "the account to be confined")
        job = one(helm.template({"mode": "Extender"}), "Job", "thalweg-uninstall")
        (container,) = job["spec"]["template"]["spec"]["containers"]
        done = await asyncio.to_thread(thalweg, *container["args"], "--kubeconfig", kubeconfig, "-o", "json")
    assert done.returncode == 0, done.stderr
    assert "1,000 objects name the scheduler thalweg, with 0 running pods and 1,000 waiting pods." in done.stderr
    assert "not read" not in done.stderr
    answer = json.loads(done.stdout)
    assert (answer["gatesOpened"], answer["admissionObjectsRemoved"], answer["problems"]) == (1000, 2, [])
    assert not any(each["spec"].get("schedulingGates") for each in await api.list("/api/v1/pods"))
    await release("uninstall", "thalweg", "--no-hooks")  # what the Job removed is no problem for Helm
    await api.delete("/api/v1/namespaces/default/pods")


async def test_one_release_a_cluster(release: Release, plane: tuple[ControlPlane, Api]) -> None:
    """A second release is refused before it makes anything: two operators would overcommit nodes."""
    _, api = plane
    await release("install", "thalweg", CHART)
    before = await everything(api)
    with pytest.raises(
        HelmError, match=r"invalid ownership metadata.*must equal \"other\": current value is \"thalweg\""
    ):
        await release("install", "other", CHART)
    assert {each for each in await everything(api) - before if "release.v1.other" not in each[2]} == set()
    await release("uninstall", "other", "--no-hooks", "--ignore-not-found")
