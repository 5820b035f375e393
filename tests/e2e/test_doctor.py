"""`thalweg doctor` on a real control plane: a healthy cluster is OK, and each fault, made for real, is named.

The operator has the rights of rights/ alone, and the command those of the table of its page.
"""

import asyncio
import copy
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from support.cli import thalweg
from support.cluster_scenario import POLICIES, install_crds
from support.cluster_scenario import policy as policy_object
from support.controlplane import running
from support.operator import Operator, free_address, running_operator, until
from support.proxy import proxied
from support.rights import doctor_kubeconfig, grant, kubeconfig, manifests, user_of
from support.view_service import leading_to, own_address
from thalweg.crds import custom_resource_definitions
from thalweg.doctor.cluster_reader import Examination
from thalweg.doctor.findings import CheckResult, Verdict
from thalweg.doctor.gather import gather
from thalweg.doctor.run import judge
from thalweg.option_types import NamespacedName
from thalweg.scheduler_config.scheduler_config import SchedulerConfig
from thalweg_controlplane import Api, ApiError, Binaries, ControlPlane
from thalweg_controlplane.building.build import KUBERNETES_VERSION
from thalweg_controlplane.certificates import Authority, Pair
from thalweg_controlplane.client.objects import node, object_path, pod
from thalweg_operator.api.client import connect
from thalweg_operator.api.fence import Fence
from thalweg_operator.api.leadership.leader_election import LeaderElector, LeaseName
from thalweg_operator.errors import Refused

from flowcore.api.kinds import POLICY
from flowcore.model.policies import SCHEDULER_NAME, STEERED_NAME

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEASE = NamespacedName("kube-system", "thalweg")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
STEERED = policy_object(
    "steered",
    selects={"podSelector": {}},
    delivery="Extender",
    waiting="Gate",
    gangs={"waiting": "Gate"},  # kube-scheduler does not schedule gangs here, and the API server serves PodGroups
    steering="Require",
    precedence=5,
)
BOUND = policy_object("bound", selects={"podSelector": {}}, precedence=5)


@dataclass(frozen=True)
class Cluster:
    """A control plane, the operator with the extender over TLS, and kube-scheduler's configuration for it.

    Attributes:
        kubeconfig, account: of the command, and of the operator.
    """

    plane: ControlPlane
    api: Api
    operator: Operator
    folder: Path
    authority: Authority
    config: SchedulerConfig
    kubeconfig: Path
    account: Path

    def file(self, name: str, **changes: Any) -> Path:
        """kube-scheduler's configuration with changes, in a file."""
        path = self.folder / name
        path.write_text(str(replace(self.config, **changes)))
        return path

    async def findings(
        self, kubeconfig: Path | None = None, config: Path | None = None, lease: NamespacedName | None = None
    ) -> list[CheckResult]:
        """What the checks find."""
        metrics = self.plane.metrics_url("kube-scheduler")
        request = Examination(None, lease, config or self.file("good.yaml"), metrics, 10.0)
        async with connect(kubeconfig or self.kubeconfig, 8) as api_client:
            return judge(await gather(api_client, request))

    async def problems(self, **options: Any) -> list[tuple[str, Verdict, str]]:
        """What is not OK."""
        found = await self.findings(**options)
        return [(each.check, each.verdict, each.sentence) for each in found if each.verdict is not Verdict.OK]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    folder = tmp_path_factory.mktemp("doctor")
    authority = Authority(folder, "ca")
    server, client = authority.server("server", "127.0.0.1"), authority.client("client")
    address = free_address()
    config = SchedulerConfig(
        url=f"https://{address}/extender",
        kubeconfig="{kubeconfig}",
        leader_elect=False,
        authority=authority.certificate.read_bytes(),
        client_certificate=str(client.certificate),
        client_key=str(client.key),
    )
    async with running(binaries, controller_manager=False, kwok=False, scheduler_config=str(config)) as (plane, api):
        await install_crds(api)
        await grant(api)
        await api.delete(f"{LEASES}/{LEASE.name}")  # an empty one is waited for
        await api.create(node("n", cpu="4"))
        for each in (STEERED, BOUND):
            await api.create(each)
        host, port = own_address(), int(free_address().rpartition(":")[2])
        options = [*extender_options(address, server, authority), "--view-listen", f"{host}:{port}"]
        account = await kubeconfig(plane, api, folder, 3600)
        doctor = await doctor_kubeconfig(plane, api, folder)
        async with (
            running_operator(account, folder / "log", lease=str(LEASE), extender=options) as operator,
            leading_to(api, host, port),
        ):
            cluster = Cluster(plane, api, operator, folder, authority, config, doctor, account)
            for name, scheduler in (("steered-1", STEERED_NAME), ("bound-1", SCHEDULER_NAME)):
                await api.create(pod(name, scheduler=scheduler))
                await api.wait_for(f"/api/v1/namespaces/default/pods/{name}", lambda each: each["spec"].get("nodeName"))
            await pod_of_thalweg(api, "operator", f"thalweg:{thalweg_version()}")
            await pod_of_thalweg(api, "kube-scheduler", f"registry.k8s.io/kube-scheduler:{KUBERNETES_VERSION}")
            # It ended, and so its version is nobody's.
            await pod_of_thalweg(api, "certificates", "thalweg:0.0.1", phase="Succeeded", version="0.0.1")
            await healthy(cluster)
            yield cluster


async def pod_of_thalweg(api: Api, component: str, image: str, phase: str = "Running", version: str = "") -> None:
    """A pod as the chart makes it. Nothing runs it here."""
    name = {"app.kubernetes.io/name": "thalweg", "app.kubernetes.io/component": component}
    labels = {**name, "app.kubernetes.io/version": version or thalweg_version()}
    made = pod(component, namespace="thalweg-system", labels=labels, scheduler="default-scheduler", nodeName="n")
    made["spec"] |= {"serviceAccountName": "thalweg", "containers": [{"name": "main", "image": image}]}
    await api.create(made)
    await api.patch(f"{object_path(made)}/status", {"status": {"phase": phase}})


def extender_options(address: str, server: Pair, authority: Authority) -> list[str]:
    return [
        *("--extender-listen", address, "--extender-cert", str(server.certificate), "--extender-key", str(server.key)),
        *("--extender-client-ca", str(authority.certificate)),
    ]


def thalweg_version() -> str:
    return thalweg("--version").stdout.split()[-1]


async def healthy(cluster: Cluster) -> None:
    """Waits until every check is OK."""
    problems: list[Any] = []

    async def none() -> bool:
        nonlocal problems
        problems = await cluster.problems()
        return not problems

    await until(none, 60, lambda: f"all checks to be OK: {problems}")


def named(problems: list[tuple[str, Verdict, str]], check: str, verdict: Verdict, *words: str) -> None:
    """Asserts that one finding of this check has this verdict and all these words."""
    fitting = [text for name, of, text in problems if (name, of) == (check, verdict) and all(w in text for w in words)]
    assert fitting, (check, verdict, words, problems)


async def test_a_healthy_cluster(cluster: Cluster) -> None:
    """Every check is OK; exit code 0, also with --strict."""
    options = (
        *("--kubeconfig", cluster.kubeconfig, "--scheduler-config", cluster.file("good.yaml"), "--strict"),
        *("--scheduler-metrics", cluster.plane.metrics_url("kube-scheduler")),
    )
    done = thalweg("doctor", *options, "-o", "json")
    found = json.loads(done.stdout)
    assert (done.returncode, {each["verdict"] for each in found}) == (0, {"OK"}), done.stdout


def policies_crd() -> dict[str, Any]:
    """The CRD of policies."""
    return next(each for each in custom_resource_definitions() if each["spec"]["names"]["kind"] == POLICY.kind)


async def test_the_crd(cluster: Cluster) -> None:
    """An older CRD fails, a newer one is a warning."""
    crd = policies_crd()
    path = object_path(crd)
    older, newer = copy.deepcopy(crd), copy.deepcopy(crd)
    properties = "properties"
    spec = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"][properties]["spec"]
    del spec[properties]["replaces"]
    newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"][properties]["spec"][properties]["later"] = {
        "type": "string"
    }
    try:
        for changed, verdict, words in (
            (older, Verdict.FAIL, "it lacks spec.replaces"),
            (newer, Verdict.WARN, "it has spec.later"),
        ):
            there = await cluster.api.get(path)
            await cluster.api.replace(
                path, {**there, "spec": {**there["spec"], "versions": changed["spec"]["versions"]}}
            )
            named(await cluster.problems(), "crd", verdict, words)
    finally:
        there = await cluster.api.get(path)
        await cluster.api.replace(path, {**there, "spec": {**there["spec"], "versions": crd["spec"]["versions"]}})
    assert not await cluster.problems()


async def test_rights(cluster: Cluster, tmp_path: Path) -> None:
    """A role that is withheld is named by its file; so is an account that may not ask about rights."""
    for file, verdict in (("binder", Verdict.WARN), ("base", Verdict.FAIL)):
        await cluster.api.delete(f"{BINDINGS}/thalweg-{file}")

        async def told(file: str = file, verdict: Verdict = verdict) -> bool:
            found = await cluster.problems()
            return any(each[:2] == ("rights", verdict) and f"rights/{file}.yaml" in each[2] for each in found)

        await until(told, 30, lambda file=file: f"the role {file} to be missed")
        await grant(cluster.api)
    weak = await kubeconfig(cluster.plane, cluster.api, tmp_path)
    await cluster.api.delete(f"{BINDINGS}/thalweg-view")  # the view asks about rights, so the operator may
    found: list[tuple[str, Verdict, str]] = []

    async def may_not_ask() -> bool:
        found[:] = await cluster.problems(kubeconfig=weak)
        return any(each[0] == "rights" for each in found)

    await until(may_not_ask, 30, lambda: "the account to be refused")
    named(found, "rights", Verdict.SKIP, "you may not create subjectaccessreviews")
    named(found, "lease", Verdict.SKIP, "403")
    assert not [each for each in found if each[1] is Verdict.FAIL]
    await grant(cluster.api)
    await healthy(cluster)


async def test_the_confinement(cluster: Cluster) -> None:
    """A binding that is gone, and a policy that somebody changed."""
    policy, binding = manifests("confinement")
    changed = copy.deepcopy(policy)
    changed["spec"]["failurePolicy"] = "Ignore"
    await cluster.api.apply(changed)
    await cluster.api.delete(object_path(binding))
    found = await cluster.problems()
    named(found, "confinement", Verdict.WARN, "the ValidatingAdmissionPolicy thalweg-confinement differs")
    named(found, "confinement", Verdict.WARN, "there is no ValidatingAdmissionPolicyBinding thalweg-confinement")
    await grant(cluster.api)
    assert not await cluster.problems()


async def test_the_extender(cluster: Cluster, tmp_path: Path) -> None:
    """A CA or a client certificate of somebody else, a stopped extender, and files that are not there."""
    other = Authority(tmp_path, "other")
    stranger = other.client("stranger")
    wrong = cluster.file("ca.yaml", authority=other.certificate.read_bytes())
    named(await cluster.problems(config=wrong), "extender", Verdict.FAIL, "does not trust the certificate")
    for name, certificate, key in (
        ("stranger.yaml", str(stranger.certificate), str(stranger.key)),
        ("nobody.yaml", "", ""),
    ):
        config = cluster.file(name, client_certificate=certificate, client_key=key)
        named(await cluster.problems(config=config), "extender", Verdict.FAIL, "does not accept", "client certificate")
    config = cluster.file("gone.yaml", client_certificate="/nowhere.crt", client_key="/nowhere.key")
    named(await cluster.problems(config=config), "extender", Verdict.SKIP, "cannot be used here")
    config = cluster.file("down.yaml", url=f"https://{free_address()}/extender")
    named(await cluster.problems(config=config), "extender", Verdict.FAIL, "does not answer this machine")
    config = cluster.file("pages.yaml", url=f"http://{cluster.operator.address}/extender")
    named(await cluster.problems(config=config), "extender", Verdict.FAIL, "answers 404")


async def test_a_standby(cluster: Cluster, tmp_path: Path) -> None:
    """A standby answers 503, and the sentence says why; one operator leads, so the lease is OK."""
    address = free_address()
    server = cluster.authority.server("standby", "127.0.0.1")
    options = [*extender_options(address, server, cluster.authority), "--replicated"]
    config = cluster.file("standby.yaml", url=f"https://{address}/extender")
    log = tmp_path / "standby.log"
    found: list[Any] = []

    async def answered() -> bool:
        nonlocal found
        found = await cluster.problems(config=config)
        return any("does not answer" not in each[2] for each in found if each[0] == "extender")

    async with running_operator(cluster.account, log, wait=False, lease=str(LEASE), extender=options):
        await until(answered, 60, lambda: f"the standby to answer: {found}")
    named(found, "extender", Verdict.FAIL, "answers 503: it is a standby")
    assert not [each for each in found if each[0] == "lease"]


async def test_an_old_configuration_of_kube_scheduler(cluster: Cluster, tmp_path: Path) -> None:
    """No profile, whole nodes, no extender, another kind: each is named."""
    good = yaml.safe_load(cluster.file("good.yaml").read_text())
    path = tmp_path / "old.yaml"

    async def found(**changes: Any) -> list[tuple[str, Verdict, str]]:
        path.write_text(yaml.safe_dump({**good, **changes}))
        return await cluster.problems(config=path)

    default = [{"schedulerName": "default-scheduler"}]
    named(await found(profiles=default), "node-sample", Verdict.FAIL, f"no profile is named {STEERED_NAME}")
    whole = [{**good["extenders"][0], "nodeCacheCapable": False}]
    named(await found(extenders=whole), "extender", Verdict.FAIL, "lacks nodeCacheCapable")
    named(await found(extenders=[]), "extender", Verdict.FAIL, "does not ask Thalweg")
    named(await found(kind="Pod"), "extender", Verdict.SKIP, 'kind is "Pod"')


async def test_policies(cluster: Cluster) -> None:
    """Policies that overlap, match nothing, come too late, or are not accepted."""
    made = [
        policy_object("bound-too", selects={"podSelector": {}}, precedence=5),
        policy_object("nobody", selects={"podSelector": {"matchLabels": {"app": "nobody"}}}),
        policy_object("wrong", selects={"podSelector": {}}, cost={"model": "NoSuchModel"}),
    ]
    for each in made:
        await cluster.api.create(each)
    try:
        found: list[Any] = []

        async def refused() -> bool:
            nonlocal found
            found = await cluster.problems()
            return any("wrong is not accepted" in each[2] for each in found)

        await until(refused, 30, lambda: f"the wrong policy to be refused: {found}")
        named(found, "policies", Verdict.FAIL, "wrong is not accepted", "NoSuchModel")
        named(found, "policies", Verdict.WARN, "nobody: it governs no pod: spec.selects matches no pod")
        why = "bound-too: it governs no pod: bound comes first, since its name comes first at the same precedence"
        named(found, "policies", Verdict.WARN, why, "default/bound-1")
    finally:
        for each in made:
            await cluster.api.delete(object_path(each))
    await healthy(cluster)


async def test_gates_are_not_installed(cluster: Cluster) -> None:
    """A policy wants gates, and the admission policy is not there."""
    path = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies/thalweg-gate"
    await cluster.api.delete(path)
    named(await cluster.problems(), "gates", Verdict.WARN, "there is no MutatingAdmissionPolicy thalweg-gate")
    await install_crds(cluster.api)
    await healthy(cluster)


async def test_two_operators(cluster: Cluster) -> None:
    """Another process renews another lease of Thalweg."""
    name = LeaseName("kube-system", "thalweg-other")
    async with connect(cluster.plane.kubeconfig, 2) as api_client:
        other = LeaderElector(api_client, Fence(), name)
        await other.attempt()
        assert other.held.is_set()
        named(await cluster.problems(), "lease", Verdict.FAIL, "2 operators", str(LEASE), str(name))
        assert not await cluster.problems(lease=LEASE)
        await other.release()
    await cluster.api.delete(f"{LEASES}/{name.name}")


async def test_what_the_chart_stored(cluster: Cluster) -> None:
    """Without a file: the configuration in the chart's Secret, else the client certificate in the other one."""
    stored = {
        "thalweg-scheduler-config": {"scheduler.yaml": cluster.file("good.yaml").read_text()},
        "thalweg-extender-client-tls": {"tls.crt": cluster.authority.client("chart").certificate.read_text()},
    }
    made = [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": "thalweg-system"},
            "stringData": data,
        }
        for name, data in stored.items()
    ]
    for each in made:
        await cluster.api.create(each)
    for each in made:
        async with connect(cluster.kubeconfig, 8) as api_client:
            found = judge(await gather(api_client, Examination(None, None, None, "", 10.0)))
        (said,) = [each for each in found if each.check == "certificates"]
        assert said.verdict is Verdict.OK
        assert said.sentence.startswith(f"Secret thalweg-system/{each['metadata']['name']}: ")
        answered = [finding.verdict for finding in found if finding.check == "extender"]
        assert answered == [Verdict.OK if each is made[0] else Verdict.SKIP]
        await cluster.api.delete(object_path(each))


async def test_the_view(cluster: Cluster) -> None:
    """A Service that leads nowhere is a warning; without a Service it is skipped, and a URL is asked itself."""
    core = "/api/v1/namespaces/thalweg-system"
    service, endpoints = f"{core}/services/thalweg-view", f"{core}/endpoints/thalweg-view"
    before = [await cluster.api.get(path) for path in (service, endpoints)]
    (subset,) = before[1]["subsets"]
    url = f"https://{subset['addresses'][0]['ip']}:{subset['ports'][0]['port']}"

    async def said(view: str = "") -> tuple[Verdict, str]:
        request = Examination(None, None, cluster.file("good.yaml"), "", 10.0, view)
        async with connect(cluster.kubeconfig, 8) as api_client:
            found = judge(await gather(api_client, request))
        (finding,) = [each for each in found if each.check == "view"]
        return finding.verdict, finding.sentence

    assert await said() == (Verdict.OK, "Service thalweg-system/thalweg-view leads to the view, which answers.")
    await cluster.api.patch(endpoints, {"subsets": None})
    verdict, sentence = await said()
    assert (verdict, "no endpoints available" in sentence) == (Verdict.WARN, True)
    await cluster.api.delete(service)
    assert (await said())[0] is Verdict.SKIP
    assert (await said(url))[0] is Verdict.OK
    assert (await said(f"http://{free_address()}"))[0] is Verdict.WARN
    metadata = {key: before[0]["metadata"][key] for key in ("name", "namespace", "labels")}
    ports = {"ports": before[0]["spec"]["ports"]}
    await cluster.api.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": ports})
    await cluster.api.replace(
        endpoints, {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": [subset]}
    )
    await healthy(cluster)


async def test_what_waits_after_uninstall(cluster: Cluster) -> None:
    """With the rights of the page alone: pods are counted, and templates that may not be read are named."""
    options = ("--kubeconfig", cluster.kubeconfig, "--before-uninstall", "-o", "json")
    found = json.loads((await asyncio.to_thread(thalweg, "doctor", *options)).stdout)
    said = [(each["verdict"], each["sentence"]) for each in found if each["check"] == "before-uninstall"]
    assert [verdict for verdict, text in said if text.startswith("Deployments are not read")] == ["SKIP"]
    named = "1 object names the scheduler thalweg, with 1 running pod and 0 waiting pods."
    assert [verdict for verdict, text in said if text.startswith(named)] == ["WARN"]


async def test_kube_schedulers_own_gangs_are_not_known(cluster: Cluster) -> None:
    """Without kube-scheduler's metrics, the API tells that it may schedule gangs: that is no fault."""
    request = Examination(None, None, cluster.file("good.yaml"), "", 10.0)
    async with connect(cluster.kubeconfig, 8) as api_client:
        facts = await gather(api_client, request)
    (said,) = [each for each in judge(facts) if each.check == "gang-scheduling"]
    assert said.verdict is Verdict.SKIP
    assert "Its feature gates are not known" in said.sentence
    request = replace(request, scheduler_metrics=f"http://{free_address()}/metrics")
    async with connect(cluster.kubeconfig, 8) as api_client:
        facts = await gather(api_client, request)
    (said,) = [each for each in judge(facts) if each.check == "gang-scheduling"]
    assert said.verdict is Verdict.SKIP


async def test_clocks_and_an_api_server_that_does_not_answer(cluster: Cluster, tmp_path: Path) -> None:
    """A Date header of another hour; then no answers: exit code 2 with a sentence; a wrong token is refused."""
    async with proxied(cluster.plane, cluster.api, tmp_path, user_of(cluster.kubeconfig)) as proxy:
        proxy.date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
        found = await cluster.problems(kubeconfig=proxy.kubeconfig)
        named(found, "clock", Verdict.WARN, "This machine's clock", "behind the API server's")
        named(found, "clock", Verdict.FAIL, f"operator that holds {LEASE}", "behind the API server's")
        assert not [each for each in found if each[0] == "lease"]
        proxy.cut = True
        run = partial(thalweg, "doctor", "--request-timeout", "1", "--kubeconfig")
        done = await asyncio.to_thread(run, proxy.kubeconfig)
        assert done.returncode == 2
        assert "Error: cannot use the API server" in done.stderr
        assert "within 1 s" in done.stderr
        proxy.cut = False
    config = yaml.safe_load(cluster.plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "wrong"}
    wrong = tmp_path / "wrong"
    wrong.write_text(json.dumps(config))
    with pytest.raises(Refused, match="401"):
        await cluster.findings(kubeconfig=wrong)


async def test_no_operator(cluster: Cluster) -> None:
    """The operator is killed: its lease, its gates and the pods that wait for it are named. Then the CRD goes too."""
    gated = pod("gated", cpu="100", scheduler=STEERED_NAME)

    async def with_gate() -> bool:
        made = await cluster.api.create(gated)
        if made["spec"].get("schedulingGates"):
            return True
        await cluster.api.delete(object_path(gated), gracePeriodSeconds="0")
        return False

    await until(with_gate, 30, lambda: "new pods to be gated")
    await cluster.operator.kill()
    await cluster.api.create(pod("waits", scheduler=SCHEDULER_NAME))
    # As if an hour had passed.
    past = (datetime.now(UTC) - timedelta(hours=1)).isoformat(timespec="microseconds").replace("+00:00", "Z")
    await cluster.api.patch(f"{LEASES}/thalweg", {"spec": {"renewTime": past}})
    await cluster.api.patch(f"{POLICIES}/steered/status", {"status": {"gate": {"heartbeat": past[:19] + "Z"}}})
    found = await cluster.problems()
    named(found, "lease", Verdict.FAIL, "No operator runs", str(LEASE), "3,60")
    named(found, "gates", Verdict.FAIL, "default/gated", "nobody opens it")
    named(found, "served", Verdict.FAIL, "default/waits", f"no operator serves the scheduler {SCHEDULER_NAME}")
    named(found, "extender", Verdict.FAIL, "does not answer")
    crd = policies_crd()
    await cluster.api.delete(object_path(crd))

    async def gone() -> bool:
        try:
            await cluster.api.get(object_path(crd))
        except ApiError as error:
            return error.status == 404
        return False

    await until(gone, 30, lambda: "the CRD to be gone")
    done = thalweg("doctor", "--kubeconfig", cluster.kubeconfig, "--lease", str(LEASE), "-o", "json")
    assert done.returncode == 1
    found = {each["verdict"]: each["sentence"] for each in json.loads(done.stdout) if each["check"] == "crd"}
    assert found.keys() == {"FAIL", "OK"}
    assert found["FAIL"] == f"The CRD {crd['metadata']['name']} is not installed."
