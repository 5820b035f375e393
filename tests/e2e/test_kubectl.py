"""`kubectl thalweg` against a real operator, by the API server's proxy: what it says, and to whom."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from aiohttp import web
from support.cli import by_pod
from support.cluster_scenario import ClusterScenario
from support.device_clusters import API, GPU, claim, slice_of
from support.operator import Operator, free_address, running_operator, until
from support.rights import token
from support.tools import kubectl
from support.view_service import (
    LABELS,
    NAME,
    NAMESPACE,
    PODS,
    PROXY,
    account_kubeconfig,
    allow,
    kubeconfig_of,
    leading_to,
    make_viewer,
    own_address,
    tokens_of,
)
from thalweg.option_types import NamespacedName
from thalweg.plans.plan import QUESTION
from thalweg.sources.cluster_source import cluster_source
from thalweg.sources.source import SourceError, SourceOptions
from thalweg.view.view_live import _own_context
from thalweg_controlplane import Api, ApiError, ControlPlane
from thalweg_controlplane.client.objects import object_path
from thalweg_listener import ConnectionLimits, listening
from thalweg_view.callers.access import AUDIENCE

from flowcore.questions.scenario.plan_listing import PlanAnswer, PlanQuery
from flowcore.questions.scenario.reading.moment import NO_TIME, parse_moment

__all__ = ["kubectl"]

pytestmark = pytest.mark.asyncio(loop_scope="module")

_PLUGIN = Path(sys.executable).with_name("kubectl-thalweg")


@pytest.fixture(scope="module")
def address() -> str:
    return f"{own_address()}:{free_address().rpartition(':')[2]}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def operator(account: Path, address: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Operator]:
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    async with running_operator(account, log, extender=("--view-listen", address)) as operator:
        yield operator


@pytest_asyncio.fixture(loop_scope="module", autouse=True)
async def service(scene: ClusterScenario, address: str) -> AsyncIterator[None]:
    host, _, port = address.rpartition(":")
    await make_viewer(scene.api)
    async with leading_to(scene.api, host, int(port)):
        yield


async def plugin(kubeconfig: Path, *words: str, program: tuple[Path | str, ...] = (_PLUGIN,)) -> tuple[int, str, str]:
    """Exit code, standard output and standard error, as kubectl runs it: the kubeconfig is in the environment."""
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "COLUMNS": "200", "NO_COLOR": "1"}
    process = await asyncio.create_subprocess_exec(
        *program, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    async with asyncio.timeout(120):
        out, err = await process.communicate()
    assert b"Traceback" not in err, err.decode()
    return process.returncode or 0, out.decode(), err.decode()


async def answer(kubeconfig: Path, *words: str) -> Any:
    """The answer as JSON."""
    code, out, err = await plugin(kubeconfig, *words, "-o", "json")
    assert code == 0, err
    return json.loads(out)


async def asked(kubeconfig: Path, **options: Any) -> PlanAnswer:
    """The plan of the context's namespace, by the plugin's own client."""
    async with cluster_source(SourceOptions(kubeconfig=kubeconfig, **options)) as source:
        return await source.ask(QUESTION, PlanQuery(namespace=source.namespace))


async def test_the_plan_and_who_may_see_it(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path
) -> None:
    """All of it for an administrator; his own pods for a developer, in the namespace of his context."""
    control_plane, api = plane
    await scene.nodes("small", cpu="2")
    await scene.create("runs", "1")
    await scene.node_of("runs")
    await scene.create("large", "3")
    await scene.reason_of("large", "Insufficient cpu")
    other = f"{scene.namespace}-other"
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
    try:
        secret = scene.pod("secret", "3")
        secret["metadata"]["namespace"] = other
        await api.create(secret)
        found = await answer(control_plane.kubeconfig, "plan", "-A")
        assert {each["pod"] for each in found["waiting"]} >= {f"{scene.namespace}/large", f"{other}/secret"}

        await allow(api, "developer", namespace=scene.namespace, rules=PODS, name="pods")
        await allow(api, "developer", namespace=NAMESPACE, rules=[*PROXY, tokens_of("developer")], name="view")
        developer = await account_kubeconfig(control_plane, api, tmp_path / "config", "developer", scene.namespace)
        code, out, err = await plugin(developer, "plan", "--pods")
        assert code == 0, err
        assert "large" in out
        assert "0/1 nodes are available: 1 Insufficient cpu." in out
        assert out.splitlines()[-1].startswith("as of 20")  # the moment that the answer is for
        found = await answer(developer, "plan", "-A")
        assert parse_moment(found["now"]) > NO_TIME
        assert [each["pod"] for each in found["waiting"]] == [f"{scene.namespace}/large"]
        assert found["hidden"] >= 1
        assert "secret" not in json.dumps(found)
        assert (await answer(developer, "plan", "-n", other))["waiting"] == []
        why = await answer(developer, "why", "large", "--no-fixes")
        assert (why["pod"], why["kind"]) == (f"{scene.namespace}/large", "NothingFits")
        code, out, err = await plugin(developer, "why", f"{other}/secret")
        assert (code, out, err.count("\n")) == (2, "", 1)
        code, out, err = await plugin(developer, "status")
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "flowschedulingpolicies" in err or "policies" in err
    finally:
        await api.delete(f"/api/v1/namespaces/{other}/pods/secret", gracePeriodSeconds="0")


async def test_every_kind_of_login(scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path) -> None:
    """An account's own token, file or plug-in; a file's token and another account's for logins that have none."""
    control_plane, api = plane
    await scene.nodes("a")
    await allow(api, "login", namespace=scene.namespace, rules=PODS, name="pods")
    await allow(api, "login", namespace=NAMESPACE, rules=[*PROXY, tokens_of("login")], name="login")
    shown = await token(api, 3600, "login")
    (tmp_path / "token").write_text(shown)
    (tmp_path / "for-the-view").write_text(await token(api, 3600, "thalweg-viewer", AUDIENCE))
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": shown},
    }
    (tmp_path / "credential").write_text(json.dumps(credential))
    run = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "cat",
        "args": [str(tmp_path / "credential")],
        "interactiveMode": "Never",
    }
    logins: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"tokenFile": "token"}, {}),
        ({"exec": run}, {}),
        ({"token": shown}, {"token_file": tmp_path / "for-the-view"}),
    ]
    for number, (user, options) in enumerate(logins):
        config = kubeconfig_of(control_plane, tmp_path / f"config-{number}", user, scene.namespace)
        assert (await asked(config, **options)).nodes == 1
    viewer, nobody = NamespacedName(NAMESPACE, "thalweg-viewer"), NamespacedName(NAMESPACE, "nobody")
    assert (await asked(control_plane.kubeconfig, service_account=viewer)).nodes == 1
    with pytest.raises(SourceError, match=f"you may not make one of service account {NAMESPACE}/nobody"):
        await asked(control_plane.kubeconfig, service_account=nobody)
    without = kubeconfig_of(control_plane, tmp_path / "without", {})
    with pytest.raises(SourceError, match="system:anonymous"):
        await asked(without)


async def test_an_impostor_collects_no_token_that_is_of_use(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path
) -> None:
    """The Service leads to a thief's server, as a stolen token of the operator can make it: no login's token comes.

    What comes is for the view alone, and the API server does not take it. Nor is a redirect out of the proxy's path
    followed, which the API server passes on: the thief would choose what is asked with the login.
    """
    control_plane, api = plane
    await allow(api, "robbed", namespace=NAMESPACE, rules=[*PROXY, tokens_of("robbed")], name="robbed")
    robbed = await account_kubeconfig(control_plane, api, tmp_path / "config", "robbed", scene.namespace)
    logins = [
        yaml.safe_load(each.read_text())["users"][0]["user"]["token"] for each in (control_plane.kubeconfig, robbed)
    ]
    (tmp_path / "token").write_text(logins[1])
    heads: list[dict[str, str]] = []

    async def collects(request: web.BaseRequest) -> web.StreamResponse:
        heads.append(dict(request.headers))
        if redirects:
            return web.Response(status=307, headers={"Location": f"{'../' * 12}api/v1/namespaces/default/configmaps"})
        return web.json_response({"error": "collected"}, status=400)

    redirects: list[bool] = []
    limits = ConnectionLimits()
    async with listening(own_address(), 0, collects, limits, lambda *_: None, _own_context) as port:
        path = f"/api/v1/namespaces/{NAMESPACE}/endpoints/{NAME}"
        leads = await api.get(path)
        leads["subsets"][0]["ports"][0]["port"] = port
        await api.replace(path, leads)

        async def collected() -> bool:
            with pytest.raises(SourceError, match=r"collected|cannot be reached|does not accept|connection"):
                await asked(control_plane.kubeconfig)
            return bool(heads)

        await until(collected, 60, lambda: "the Service to lead to the thief")
        for _ in range(2):
            with pytest.raises(SourceError, match="collected"):
                await asked(robbed)
        redirects.append(True)
        with pytest.raises(SourceError, match="307: a redirect, which is not followed"):
            await asked(robbed)
        with pytest.raises(SourceError, match="not for the audience thalweg-view alone"):
            await asked(robbed, token_file=tmp_path / "token")
    text = json.dumps(heads)
    assert not any(login in text for login in logins)
    shown = {head["X-Thalweg-Token"] for head in heads}
    assert len(shown) >= 2
    for each in shown:
        kubeconfig = kubeconfig_of(control_plane, tmp_path / "stolen", {"token": each})
        async with Api(kubeconfig) as thief:
            with pytest.raises(ApiError) as refused:
                await thief.get("/api/v1/namespaces/default/pods")
            assert refused.value.status == 401


async def test_a_token_is_not_shown_to_services_of_other_namespaces(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], capsys: pytest.CaptureFixture[str]
) -> None:
    """Anybody may make a Service with the chart's labels in a namespace of their own. It is not asked."""
    control_plane, api = plane
    await scene.nodes("a")
    metadata = {"name": "impostor", "namespace": scene.namespace, "labels": LABELS}
    ports = [{"name": "https", "port": 443}]
    await api.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}})
    assert (await answer(control_plane.kubeconfig, "plan"))["nodes"] == 1
    await api.delete(f"/api/v1/namespaces/{NAMESPACE}/services/thalweg-view")
    assert (await asked(control_plane.kubeconfig)).nodes == 1
    said = capsys.readouterr().err
    assert f"Note: planned here, as with --direct: no Service of namespace {NAMESPACE} has the labels" in said


async def test_what_stands_in_the_way_is_one_sentence(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path
) -> None:
    """No such Service, no right to the proxy, an unknown policy, nobody behind the Service."""
    control_plane, api = plane
    await scene.nodes("a")
    with pytest.raises(SourceError, match='services "none" not found'):
        await asked(control_plane.kubeconfig, service=NamespacedName(NAMESPACE, "none"))
    await allow(api, "stranger", namespace=scene.namespace, rules=PODS, name="pods-of-strangers")
    stranger = await account_kubeconfig(control_plane, api, tmp_path / "config", "stranger", scene.namespace)
    with pytest.raises(
        SourceError, match=f"you may not ask the operator: .*{NAMESPACE}/thalweg-viewer .*--service-account"
    ):
        await asked(stranger)
    await allow(api, "stranger", namespace=NAMESPACE, rules=[tokens_of("stranger")], name="tokens-of-strangers")

    async def may_make_tokens() -> bool:
        with pytest.raises(SourceError) as refused:
            await asked(stranger)
        return f"services/proxy of thalweg-view in namespace {NAMESPACE}" in str(refused.value)

    await until(may_make_tokens, 30, lambda: "the right to make tokens")
    code, out, err = await plugin(control_plane.kubeconfig, "plan", "--policy", "none")
    assert (code, out, err) == (2, "", 'Error: policy "none": no FlowSchedulingPolicy has this name\n')
    await api.delete(f"/api/v1/namespaces/{NAMESPACE}/endpoints/thalweg-view")
    with pytest.raises(SourceError, match=r"Is the operator running|install the chart with view\.enabled"):
        await asked(control_plane.kubeconfig)


async def test_watching(scene: ClusterScenario, plane: tuple[ControlPlane, Api]) -> None:
    """The plan is printed again once it changes; Ctrl-C ends it."""
    environment = {**os.environ, "KUBECONFIG": str(plane[0].kubeconfig), "PYTHONUNBUFFERED": "1"}
    await scene.nodes("small", cpu="2")
    process = await asyncio.create_subprocess_exec(
        _PLUGIN, "plan", "-n", scene.namespace, "--watch", stdout=subprocess.PIPE, env=environment
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(120):
            while b"waits" not in await process.stdout.readline():
                pass
            await scene.create("large", "3")
            while b"large" not in await process.stdout.readline():
                pass
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130
    finally:
        if process.returncode is None:
            process.kill()


async def test_observed_pods_beside_the_other_schedulers_choice(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api]
) -> None:
    """A pod that another scheduler put elsewhere is listed with both nodes; the status counts policies and pods."""
    await scene.nodes("old", "new")
    prefers = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["new"]}
    preferred = [{"weight": 100, "preference": {"matchExpressions": [prefers]}}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    await scene.policy("observed", selects={"schedulerNames": ["other"], "podSelector": {}}, delivery="Observe")
    await scene.create("misplaced", nodeName="old", scheduler="other", affinity=affinity)
    bound = {"kubernetes.io/hostname": "old"}
    await scene.create("right", nodeName="old", scheduler="other", nodeSelector=bound)

    async def known() -> bool:
        status = await answer(plane[0].kubeconfig, "status")
        return "observed" in {each["name"] for each in status["policies"]}

    await until(known, 60, lambda: "the policy to be shown")

    async def observed() -> list[dict[str, Any]]:
        found = await answer(plane[0].kubeconfig, "plan", "-n", scene.namespace, "--policy", "observed")
        return list(found["observed"])

    found: list[dict[str, Any]] = []

    async def both() -> bool:
        found[:] = await observed()
        return len(found) == 2

    await until(both, 60, lambda: f"both pods to be observed; there are {found}")
    nodes = {each["pod"].rpartition("/")[2]: (each["node"], each["planned"]) for each in found}
    assert nodes == {"misplaced": ("old", "new"), "right": ("old", "old")}
    status = await answer(plane[0].kubeconfig, "status")
    assert {"observed": "Observe"}.items() <= {each["name"]: each["delivery"] for each in status["policies"]}.items()
    assert status["overview"]["nodes"] == 2


async def test_pods_of_templates_that_the_cluster_has(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path
) -> None:
    """A what-if with a pod that claims by a template knows the template, which the operator does not watch."""
    control_plane, api = plane
    await scene.nodes("gpus", cpu="4")
    published = slice_of("gpus", 2)
    made = [{**API, "kind": "DeviceClass", **GPU}, {**API, "kind": "ResourceSlice", **published}]
    await api.create_many(made)
    for name, number in (("two", 2), ("three", 3)):
        metadata = {"name": name, "namespace": scene.namespace}
        spec = {"spec": claim("c", number)["spec"]}
        await api.create({**API, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec})
    pods = []
    for name in ("two", "three", "none"):
        pod = scene.pod(name, "1")
        pod["metadata"]["namespace"] = scene.namespace
        pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": name}]
        pods.append(pod)
    path = tmp_path / "pods.yaml"
    path.write_text(yaml.safe_dump_all(pods))
    try:
        found: dict[str, Any] = {}
        async with asyncio.timeout(30):
            while not found.get("placed"):  # until the operator has seen the devices
                found = await answer(control_plane.kubeconfig, "what-if", "--apply", str(path), "-n", scene.namespace)
        assert found["placed"] == [f"{scene.namespace}/two"]
        assert "cannot allocate all claims" in found["reasons"][f"{scene.namespace}/three"]
        assert "ResourceClaim not created yet" in found["reasons"][f"{scene.namespace}/none"]
    finally:
        for each in made:
            await api.delete(object_path(each))


async def test_a_cluster_without_an_operator(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path
) -> None:
    """`plan --direct` and `why --nodes` list the cluster with the caller's own rights, all of it or not at all."""
    control_plane, api = plane
    await scene.nodes("small", cpu="2")
    await scene.create("large", "3")
    program = (sys.executable, "-m", "thalweg")
    config = ("--kubeconfig", str(control_plane.kubeconfig))
    code, out, err = await plugin(tmp_path / "none", "plan", "-A", "--direct", *config, "-o", "json", program=program)
    assert code == 0, err
    assert by_pod(out)["pending"][f"{scene.namespace}/large"]["reason"].startswith(
        "0/1 nodes are available: 1 Insufficient"
    )
    code, out, err = await plugin(
        control_plane.kubeconfig, "why", f"{scene.namespace}/large", "--nodes", program=program
    )
    assert code == 0, err
    assert "Insufficient cpu" in out
    for words in (("why", f"{scene.namespace}/large"), ("plan", "-A"), ("what-if", "--drain", "small"), ("status",)):
        code, out, err = await plugin(control_plane.kubeconfig, *words, "--direct", program=program)
        assert code == 0, err
        assert out
    why = await answer(control_plane.kubeconfig, "why", "large", "-n", scene.namespace, "--direct")
    assert why["kind"] == "NothingFits"
    await allow(api, "stranger", namespace=scene.namespace, rules=PODS, name="pods-of-strangers")
    stranger = await account_kubeconfig(control_plane, api, tmp_path / "config", "stranger", scene.namespace)
    code, out, err = await plugin(stranger, "dump", program=program)
    assert (code, out, err.count("\n")) == (2, "", 1)
    code, out, err = await plugin(stranger, "plan", "--direct", program=program)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "the API server does not list nodes: 403" in err


async def test_an_operator_at_an_address(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path
) -> None:
    """--server asks a view that no Service leads to, with a token for the view alone."""
    control_plane, api = plane
    await scene.nodes("small", cpu="2")
    await scene.create("large", "3")
    await scene.reason_of("large", "Insufficient cpu")
    await make_viewer(api)
    await api.delete(f"/api/v1/namespaces/{NAMESPACE}/services/{NAME}")
    address = free_address()
    log = tmp_path / "operator.log"
    more = ("--lease", f"{scene.namespace}/second", "--view-listen", address)
    async with running_operator(control_plane.kubeconfig, log, extender=more):
        why = await answer(control_plane.kubeconfig, "why", "large", "-n", scene.namespace, *_at(f"http://{address}"))
        assert (why["pod"], why["kind"]) == (f"{scene.namespace}/large", "NothingFits")
        code, out, err = await plugin(control_plane.kubeconfig, "why", "none", *_at(f"http://{address}"))
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "none" in err
    code, out, err = await plugin(control_plane.kubeconfig, "plan", *_at(f"http://{address}"))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"the operator's view at http://{address} cannot be asked" in err


def _at(url: str) -> tuple[str, str]:
    return "--server", url


@pytest.mark.parametrize("redact", [(), ("--redact",)])
async def test_a_dump_is_what_the_other_commands_read(
    scene: ClusterScenario, plane: tuple[ControlPlane, Api], tmp_path: Path, redact: tuple[str, ...]
) -> None:
    """The plan of a dump is that of the cluster, redacted or not; --redact leaves no environment variable."""
    config, program = plane[0].kubeconfig, (sys.executable, "-m", "thalweg")
    await scene.nodes("small", cpu="2")
    await scene.policy("spread", selects={"podSelector": {"matchLabels": {"app": "web"}}})
    manifest = scene.pod("large", "3", labels={"app": "web"})
    manifest["metadata"]["annotations"] = {"example.com/note": "hush"}
    manifest["spec"]["containers"][0]["env"] = [{"name": "PASSWORD", "value": "hush"}]
    await scene.api.create(manifest)
    code, out, err = await plugin(config, "dump", *redact, program=program)
    assert code == 0, err
    assert ("hush" in out) is not bool(redact)
    file = tmp_path / "now.json"
    file.write_text(out)
    ours, theirs = json.loads(out)["items"], (await answer_of_dump(file))
    assert {"Node", "Pod", "Namespace", "PriorityClass", "FlowSchedulingPolicy"} <= {each["kind"] for each in ours}
    written = json.loads(out)["metadata"]["annotations"]["scheduling.thalweg/dumped"]
    assert theirs["now"] == written
    live = await answer(config, "plan", "-A", "--direct")
    assert theirs["waiting"] == live["waiting"] != []


async def answer_of_dump(file: Path) -> Any:
    """The plan of a dump, as JSON."""
    code, out, err = await plugin(Path("none"), "plan", "-A", "-f", str(file), "-o", "json")
    assert code == 0, err
    return json.loads(out)


async def test_the_real_kubectl(scene: ClusterScenario, plane: tuple[ControlPlane, Api], kubectl: Path) -> None:
    """It finds the plug-in and its completion by their names."""
    await scene.nodes("a")
    folder = str(_PLUGIN.parent)
    program = ("env", f"PATH={folder}:{os.environ['PATH']}", kubectl)
    code, out, err = await plugin(plane[0].kubeconfig, "thalweg", "plan", program=program)
    assert code == 0, err
    assert "1 node; no pod of namespace default waits" in out
    code, out, err = await plugin(plane[0].kubeconfig, "__complete", "thalweg", "pl", program=program)
    assert code == 0, err
    assert out.splitlines()[0].startswith("plan\t")
