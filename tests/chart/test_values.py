"""What the chart renders from its values, and which values it refuses. No cluster is needed."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.helm import CHART, NAMESPACE, Helm, HelmError, one, pod_templates
from support.repository import ROOT

MODES = ("Binder", "Extender", "SecondScheduler")
SECRETS = {"certificates.source": "Secret", "certificates.secret": {"server": "s", "client": "c"}}

#: Values that are refused, and words of the sentence that says why.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"modus": "Binder"}, "additional properties 'modus' not allowed"),
    "unknown within": ({"image.tags": "x"}, "at '/image': additional properties 'tags' not allowed"),
    "removed": ({"rights": None}, "missing property 'rights'"),
    "removed within": ({"networkPolicy.egress": None}, "at '/networkPolicy': missing property 'egress'"),
    "mode": ({"mode": "binder"}, "at '/mode': value must be one of 'Binder', 'Extender', 'SecondScheduler'"),
    "no replicas": ({"replicas": 0}, "at '/replicas': minimum: got 0, want 1"),
    "text for a number": ({"replicas": "2"}, "at '/replicas': got string, want integer"),
    "digest": ({"image.digest": "sha256:12"}, "at '/image/digest'"),
    "sample": ({"extender.nodeSample": 101}, "at '/extender/nodeSample': maximum: got 101, want 100"),
    "budget": ({"roundBudget": 31}, "at '/roundBudget': maximum: got 31, want 30"),
    "memory": ({"workerMemory": "much"}, "at '/workerMemory'"),
    "drains": ({"podDisruptionBudget.maxUnavailable": 0}, "at '/podDisruptionBudget/maxUnavailable'"),
    "no ports": ({"networkPolicy.egress": {"restrict": True, "ports": []}}, "at '/networkPolicy/egress/ports'"),
    "two monitors": (
        {"monitoring.podMonitor.enabled": True, "monitoring.serviceMonitor.enabled": True},
        "monitoring: podMonitor and serviceMonitor would both collect every metric, so all figures would count twice.",
    ),
    "itself": ({"schedulerName": "thalweg"}, 'schedulerName: "thalweg" is served by Thalweg itself'),
    "itself, steered": ({"schedulerName": "thalweg-steered"}, "so its own pods would wait for themselves"),
    "taken": ({"extender.schedulerName": "default-scheduler"}, "has a scheduler already. Use a name of its own"),
    "no extender": ({"rights.extender": True}, "rights.extender: mode Binder has no extender"),
    "no gates": ({"rights.gates": True}, "rights.gates: gates belong to delivery Extender"),
    "gates for ever": (
        {"mode": "Extender", "rights.extender": False, "rights.gates": True},
        "rights.gates: with rights.extender false Thalweg could not open the gates of new pods",
    ),
    "keep": ({"crds": {"install": False, "keep": True}}, "crds.keep: with crds.install false the chart has no CRDs"),
    "account": ({"serviceAccount.create": False}, "serviceAccount.name: with serviceAccount.create false it must name"),
    "secret": (
        {"mode": "Extender", "certificates.source": "Secret", "certificates.secret.server": "s"},
        "certificates.secret: with certificates.source Secret, name both Secrets",
    ),
    "validity": ({"certificates.generated.validDays": 0}, "at '/certificates/generated/validDays'"),
    "argument": ({"extraArgs": ["--lease=a/b"]}, "extraArgs: the chart sets --lease itself. Use the value for it."),
    "extender argument": ({"extraArgs": ["--extender-insecure"]}, "extraArgs: the chart sets --extender-insecure"),
    "second argument": ({"secondScheduler.extraArgs": ["--config=x"]}, "the chart sets --config itself"),
    "variable": ({"extraEnv": [{"name": "POD_IP", "value": "1"}]}, "extraEnv: the chart decides about POD_IP itself"),
}


def test_lint(helm: Helm) -> None:
    """`helm lint --strict` finds no mistake in any mode; what it says beside is that there is no icon."""
    for mode in MODES:
        said = helm.run("lint", "--strict", CHART, "--set", f"mode={mode}")
        assert re.findall(r"\[(?:WARNING|ERROR)\].*", said) == []


def test_a_package_has_all_files(helm: Helm, tmp_path: Path) -> None:
    """Helm follows the chart's symbolic links: a package renders the same objects as the folder."""
    helm.run("package", CHART, "--destination", tmp_path)
    (package,) = tmp_path.iterdir()
    values = {"mode": "Extender"}
    assert helm.template(values, chart=package) == helm.template(values)


def test_versions() -> None:
    """The chart, the application and the package have one version."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (chart["version"], chart["appVersion"]) == (version, version)


def test_the_schema_is_closed() -> None:
    """Every object of the schema refuses unknown keys or says what its values are, and knows each default."""

    def check(schema: Any, path: str) -> None:
        if isinstance(schema, dict):
            if "properties" in schema:
                assert schema["additionalProperties"] is False, path
            for name, each in schema.items():
                check(each, f"{path}/{name}")

    schema = json.loads((CHART / "values.schema.json").read_text())
    check(schema, "")
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(values) == set(schema["properties"]) - {"global"}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(helm: Helm, name: str) -> None:
    """Unknown keys and contradictions fail before anything is rendered, with words that name the value."""
    values, words = REFUSED[name]
    with pytest.raises(HelmError) as error:
        helm.template(values)
    assert words in " ".join(str(error.value).split())


def test_gates_need_kubernetes_1_36(helm: Helm) -> None:
    """On an older cluster the chart leaves gates out; who asks for them gets the reason."""
    kinds = {each["kind"] for each in helm.template({"mode": "Extender"}, "--kube-version", "1.35.2")}
    assert "MutatingAdmissionPolicy" not in kinds
    assert "ValidatingAdmissionPolicy" in kinds
    assert "MutatingAdmissionPolicy" in {each["kind"] for each in helm.template({"mode": "Extender"})}
    with pytest.raises(HelmError, match=r"rights\.gates: the cluster is Kubernetes v1\.35\.2, and Mut.* needs 1\.36"):
        helm.template({"mode": "Extender", "rights.gates": True}, "--kube-version", "1.35.2")
    with pytest.raises(HelmError, match=r"requires kubeVersion: >=1\.30"):
        helm.template({}, "--kube-version", "1.29.0")


def plain(text: str, names: list[str]) -> str:
    """The text with placeholders for these names, which no other text contains."""
    for position, name in enumerate(names):
        text = text.replace(name, f"<{position}>")
    return text


def test_two_releases_differ_by_their_names_only(helm: Helm) -> None:
    """Release and namespace are in names, accounts and expressions, nowhere else."""
    values = {"mode": "Extender", "certificates.source": "CertManager"}
    texts = []
    for release, namespace in (("first-thalweg", "one-place"), ("second-thalweg", "other-place")):
        text = helm.run("template", release, CHART, "--namespace", namespace, *helm.values(values))
        texts.append(re.sub(r"-certificates-[0-9a-f]{8}", "", plain(text, [release, namespace])))
    assert texts[0] == texts[1]


def test_the_rights_are_those_of_the_repository(helm: Helm) -> None:
    """With the names of rights/ the release has exactly its objects, but for the Lease's namespace and the labels."""
    rendered = helm.template({"mode": "Extender"})
    for path in sorted((ROOT / "rights").glob("*.yaml")):
        if path.name == "account.yaml":
            continue
        for expected in yaml.safe_load_all(
            path.read_text().replace("namespace: kube-system", f"namespace: {NAMESPACE}")
        ):
            found = one(rendered, expected["kind"], expected["metadata"]["name"])
            found["metadata"]["labels"] = expected["metadata"].get("labels")
            expected["metadata"].setdefault("labels", None)
            assert found == expected


@pytest.mark.parametrize(
    ("values", "without"),
    [
        ({}, {"extender", "gates"}),
        ({"rights.binder": False}, {"binder", "extender", "gates"}),
        ({"mode": "Extender"}, set()),
        ({"mode": "Extender", "rights.extender": False}, {"extender", "gates"}),
        ({"mode": "SecondScheduler", "rights.gates": False}, {"gates"}),
        ({"mode": "Extender", "rights.eviction": False}, {"eviction"}),
        ({"mode": "Extender", "rights.confinement": False}, {"confinement"}),
        ({"mode": "Extender", "rights.create": False}, None),
    ],
    # Sets have no order, and all processes must have the same names of tests.
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_rights_by_feature(helm: Helm, values: dict[str, Any], without: set[str] | None) -> None:
    """Each file of rights/ is one feature; a mode or a value leaves out all objects of its file, and no others."""
    objects = {(each["kind"], each["metadata"]["name"]) for each in helm.template(values)}
    for path in sorted((ROOT / "rights").glob("*.yaml")):
        if path.name == "account.yaml":
            continue
        wanted = without is not None and path.stem not in without
        for each in yaml.safe_load_all(path.read_text()):
            assert ((each["kind"], each["metadata"]["name"]) in objects) == wanted, each["metadata"]


def test_long_names(helm: Helm) -> None:
    """The longest release name that Helm allows gives names that fit, and no two objects the same."""
    objects = helm.template({"mode": "Extender"}, release="r" * 53)
    objects += helm.template({"mode": "SecondScheduler"}, release="r" * 53)
    limits = {"CronJob": 52, "ClusterRole": 253}
    for each in objects:
        assert len(each["metadata"]["name"]) <= limits.get(each["kind"], 63), each["metadata"]
    labels = [value for each in objects for value in each["metadata"]["labels"].values()]
    assert max(map(len, labels)) <= 63


@pytest.mark.parametrize("mode", MODES)
def test_common_values_reach_every_pod(helm: Helm, mode: str) -> None:
    """Labels, pull secrets, tolerations and the scheduler: every pod and object of the release has them."""
    values = {
        "mode": mode,
        "commonLabels": {"team": "platform"},
        "imagePullSecrets": [{"name": "registry"}],
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "nodeSelector": {"pool": "system"},
        "priorityClassName": "",
        "image.digest": f"sha256:{'0' * 64}",
    }
    objects = helm.template(values)
    assert all(each["metadata"]["labels"]["team"] == "platform" for each in objects)
    pods = pod_templates(objects)
    assert len(pods) >= 3
    for pod in pods:
        spec = pod["spec"]
        assert pod["metadata"]["labels"]["team"] == "platform"
        assert spec["imagePullSecrets"] == values["imagePullSecrets"]
        assert (spec["tolerations"], spec["nodeSelector"]) == (values["tolerations"], values["nodeSelector"])
        assert spec["schedulerName"] == "default-scheduler"
        assert "priorityClassName" not in spec
        for container in spec["containers"]:
            if "kube-scheduler" not in container["image"]:
                assert container["image"] == f"thalweg@sha256:{'0' * 64}"


def test_the_operators_arguments(helm: Helm) -> None:
    """The mode and the values reach the command line; a value that is not set is not there."""

    def arguments(**values: Any) -> list[str]:
        container = one(helm.template(values), "Deployment", "thalweg")["spec"]["template"]["spec"]["containers"][0]
        return list(container["args"])

    plain = [
        "run",
        "--replicated",
        f"--lease={NAMESPACE}/thalweg",
        "--listen=:8080",
        "--log-level=info",
        "--dump-directory=/tmp/dumps",
    ]
    assert arguments() == plain
    assert arguments(mode="SecondScheduler") == [
        *plain,
        "--extender-listen=:8443",
        *(
            f"--extender-{name}=/etc/thalweg/extender/{file}"
            for name, file in (("cert", "tls.crt"), ("key", "tls.key"), ("client-ca", "ca.crt"))
        ),
        f"--extender-endpoints={NAMESPACE}/thalweg-extender",
    ]
    given = arguments(workerMemory="2Gi", roundBudget=0, logLevel="debug", extraArgs=["--record=/tmp/rounds"])
    assert given[-3:] == ["--round-budget=0", "--worker-memory=2Gi", "--record=/tmp/rounds"]
    assert "--log-level=debug" in given


def test_the_second_kube_scheduler(helm: Helm) -> None:
    """It has the cluster's version, whatever a provider appends, unless a value says another."""

    def image(*words: str, **values: Any) -> str:
        objects = helm.template({"mode": "SecondScheduler", **values}, *words)
        return str(
            pod_templates([one(objects, "Deployment", "thalweg-kube-scheduler")])[0]["spec"]["containers"][0]["image"]
        )

    assert image("--kube-version", "v1.36.3-gke.1024000") == "registry.k8s.io/kube-scheduler:v1.36.3"
    tagged = {"secondScheduler.image": {"repository": "mirror/kube-scheduler", "tag": "v1.36.9"}}
    assert image(**tagged) == "mirror/kube-scheduler:v1.36.9"


@pytest.mark.parametrize("mode", MODES)
def test_strict_or_ignorable(helm: Helm, mode: str) -> None:
    """By default only the extender of the cluster's own kube-scheduler is ignorable; a value decides otherwise."""
    for value, expected in ((None, mode == "Extender"), (True, mode != "Binder"), (False, False)):
        pods = pod_templates(helm.template({"mode": mode, "extender.ignorable": value}))
        containers = [
            each
            for pod in pods
            for each in [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
            if "scheduler-config" in each.get("args", ())
        ]
        assert bool(containers) == (mode != "Binder")
        assert {"--ignorable" in each["args"] for each in containers} == ({expected} if containers else set())


def test_our_namespace_is_never_gated(helm: Helm) -> None:
    """The policy that gates pods leaves out kube-system and our namespace; the other one names our accounts."""
    values = {"mode": "Extender", "serviceAccount.name": "robot"}
    text = helm.run("template", "x", CHART, "--namespace", "elsewhere", *helm.values(values))
    objects = [each for each in yaml.safe_load_all(text) if each]
    (gate,) = [each for each in objects if each["kind"] == "MutatingAdmissionPolicy"]
    (expression,) = gate["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    assert expression == {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": ["kube-system", "elsewhere"],
    }
    (confinement,) = [each for each in objects if each["kind"] == "ValidatingAdmissionPolicy"]
    (condition,) = confinement["spec"]["matchConditions"]
    accounts = '["system:serviceaccount:elsewhere:robot", "system:serviceaccount:elsewhere:x-thalweg-uninstall"]'
    assert condition["expression"] == f"request.userInfo.username in {accounts}"
    assert "x-thalweg-uninstall" in {each["metadata"]["name"] for each in objects if each["kind"] == "ServiceAccount"}
    assert "thalweg-system" not in text


def test_the_job_runs_again_only_if_it_changed(helm: Helm) -> None:
    """A Job cannot be changed: it has another name when its pod differs, and the same name when it does not."""

    def name(**values: Any) -> str:
        (job,) = [
            each
            for each in helm.template({"mode": "Extender", **values})
            if each["kind"] == "Job" and "helm.sh/hook" not in each["metadata"].get("annotations", {})
        ]
        return str(job["metadata"]["name"])

    assert name() == name(replicas=3)
    assert len({name(), name(**{"extender.nodeSample": 100}), name(**{"image.tag": "new"})}) == 3


def test_who_may_read_secrets(helm: Helm) -> None:
    """The account of the certificates fills Secrets, `helm test` reads one, each by name. No other account may."""
    verbs = {"thalweg-certificates": {"get", "patch"}, "thalweg-test": {"get"}}
    for mode in MODES:
        for source in ({}, {"certificates.source": "CertManager"}, SECRETS):
            for role in helm.template({"mode": mode, **source}):
                for rule in role.get("rules") or ():
                    if "secrets" in rule.get("resources", ()):
                        assert role["kind"] == "Role"
                        assert rule["resourceNames"]
                        assert set(rule["verbs"]) <= verbs[role["metadata"]["name"]]
                    assert "*" not in [*rule.get("resources", ()), *rule["verbs"], *rule.get("apiGroups", ())]


def test_every_account_gets_its_token_where_it_works(helm: Helm) -> None:
    """No account mounts its token by itself; a pod whose command uses the API server says so."""
    for mode in MODES:
        objects = helm.template({"mode": mode})
        accounts = [each for each in objects if each["kind"] == "ServiceAccount"]
        assert accounts
        assert all(each["automountServiceAccountToken"] is False for each in accounts)
        assert all(pod["spec"]["automountServiceAccountToken"] is True for pod in pod_templates(objects))
