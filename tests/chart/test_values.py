"""What the chart renders from its values, and which values it refuses. No cluster is needed."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.helm import CHART, NAMESPACE, Helm, HelmError, Manifest, one, pod_templates
from support.repository import ROOT

MODES = ("Binder", "Extender", "Observe", "SecondScheduler")
SECRETS = {"certificates.source": "Secret", "certificates.secret": {"server": "s", "client": "c"}}


def test_lint(helm: Helm) -> None:
    """`helm lint --strict` finds no mistake in any mode; what it says beside is that there is no icon."""
    for mode in MODES:
        said = helm.run("lint", "--strict", CHART, "--set", f"mode={mode}")
        assert re.findall(r"\[(?:WARNING|ERROR)\].*", said) == []


def test_examples(helm: Helm) -> None:
    """There is one for each mode, which it sets, and lint finds no mistake in it."""
    modes = []
    for example in sorted((CHART / "examples").glob("*.yaml")):
        modes.append(yaml.safe_load(example.read_text())["mode"])
        said = helm.run("lint", "--strict", CHART, "--values", example)
        assert re.findall(r"\[(?:WARNING|ERROR)\].*", said) == []
    assert modes == list(MODES)


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


@pytest.mark.parametrize("mode", ["Extender", "SecondScheduler"])
@pytest.mark.parametrize("asked", ["All", "Governed"])
def test_operator_and_kube_scheduler_agree_whom_to_ask_about(helm: Helm, mode: str, asked: str) -> None:
    """One value for both."""
    text = json.dumps(helm.template({"mode": mode, "extender.askFor": asked}))
    words = re.findall(r'"(--ask-for=[^"]*)"', text)
    assert len(words) >= 2
    assert set(words) == {f"--ask-for={asked}"}


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
    rendered = {mode: helm.template({"mode": mode}) for mode in ("Extender", "Observe")}
    for path in sorted((ROOT / "rights").glob("*.yaml")):
        if path.name == "account.yaml":
            continue
        for expected in yaml.safe_load_all(
            path.read_text().replace("namespace: kube-system", f"namespace: {NAMESPACE}")
        ):
            mode = "Observe" if path.stem == "observe" else "Extender"
            found = one(rendered[mode], expected["kind"], expected["metadata"]["name"])
            found["metadata"]["labels"] = expected["metadata"].get("labels")
            expected["metadata"].setdefault("labels", None)
            assert found == expected


@pytest.mark.parametrize(
    ("values", "without"),
    [
        ({}, {"extender", "gates"}),
        ({"mode": "Extender"}, set()),
        ({"mode": "Extender", "view.enabled": False}, {"view", "view-endpoints"}),
        ({"mode": "Extender", "rights.binder": False}, {"binder"}),
        ({"mode": "SecondScheduler", "rights.gates": False}, {"gates"}),
        ({"mode": "Extender", "rights.eviction": False}, {"eviction"}),
        ({"mode": "Extender", "rights.usage": False}, {"usage"}),
        ({"mode": "Extender", "rights.devices": False}, {"devices"}),
        ({"mode": "Extender", "rights.volumes": False}, {"volumes"}),
        ({"mode": "Extender", "rights.podgroups": False}, {"podgroups"}),
        (
            {"mode": "Extender", "rights.gangs": ["jobset", "volcano"]},
            {f"gangs-{kind}" for kind in ("job", "leaderworkerset", "kubeflow", "raycluster", "podgang", "hypernode")},
        ),
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
        if path.name in ("account.yaml", "observe.yaml"):
            continue
        wanted = without is not None and path.stem not in without
        for each in yaml.safe_load_all(path.read_text()):
            assert ((each["kind"], each["metadata"]["name"]) in objects) == wanted, each["metadata"]


@pytest.mark.parametrize("view", [True, False])
def test_rights_of_an_operator_that_observes(helm: Helm, view: bool) -> None:  # noqa: FBT001
    """It lists and watches, holds its Lease, and asks about callers of the view, whatever else the values grant.

    No admission policy is installed, and its pods preempt nobody.
    """
    values = {"mode": "Observe", "view.enabled": view, "rights.eviction": True, "priorityClass.name": "high"}
    objects = helm.template(values)
    bound = {
        each["roleRef"]["name"]
        for each in objects
        if each["kind"] in ("RoleBinding", "ClusterRoleBinding") and each["subjects"][0]["name"] == "thalweg"
    }
    assert bound == {"thalweg-observe", "system:discovery", "thalweg-lease", *(["thalweg-view"] if view else [])}
    writes = {
        (resource, verb, *rule.get("resourceNames", ()))
        for each in objects
        if each["kind"] in ("Role", "ClusterRole") and each["metadata"]["name"] in bound
        for rule in each["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb not in ("get", "list", "watch")
    }
    reviews = {(resource, "create") for resource in ("tokenreviews", "subjectaccessreviews")} if view else set()
    assert writes == {("leases", verb, "thalweg") for verb in ("create", "patch", "update")} | reviews
    kinds = {each["kind"] for each in objects}
    assert kinds.isdisjoint({"MutatingAdmissionPolicy", "ValidatingAdmissionPolicy", "PriorityClass", "Secret"})
    assert all("priorityClassName" not in pod["spec"] for pod in pod_templates(objects))


def test_one_operator_observes(helm: Helm) -> None:
    """The view's Service leads to it by a selector: it writes no Endpoints. Of those that act there are two."""
    objects = helm.template({"mode": "Observe"})
    deployment = one(objects, "Deployment", "thalweg")["spec"]
    assert deployment["replicas"] == 1
    labels = deployment["template"]["metadata"]["labels"]
    selector = one(objects, "Service", "thalweg-view")["spec"]["selector"]
    assert selector.items() <= labels.items()
    assert one(helm.template({}), "Deployment", "thalweg")["spec"]["replicas"] == 2
    with pytest.raises(HelmError, match="replicas: mode Observe has one operator"):
        helm.template({"mode": "Observe", "replicas": 2})


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
        "priorityClass.create": False,
        "schedulerName": "independent",
        "image.repository": "registry.example/thalweg",
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
        assert spec["tolerations"] == values["tolerations"]
        assert spec["nodeSelector"] == {"pool": "system", "kubernetes.io/os": "linux"}
        assert spec["schedulerName"] == "independent"
        assert "priorityClassName" not in spec
        for container in spec["containers"]:
            if "kube-scheduler" not in container["image"]:
                assert container["image"] == f"registry.example/thalweg@sha256:{'0' * 64}"


@pytest.mark.parametrize("mode", MODES)
def test_every_pod_is_bounded(helm: Helm, mode: str) -> None:
    """Every container has requests, and limits of memory and disk, every pod is for Linux, every repeated Job ends."""
    objects = helm.template({"mode": mode})
    for pod in pod_templates(objects):
        assert pod["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
        for container in [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]:
            # Without a request of ephemeral storage its whole limit would be requested.
            assert set(container["resources"]["requests"]) == {"cpu", "memory", "ephemeral-storage"}
            assert {"memory", "ephemeral-storage"} <= set(container["resources"]["limits"])
    ends = {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "Job" and hook(each)}
    ends |= {
        each["metadata"]["name"]: each["spec"]["jobTemplate"]["spec"] for each in objects if each["kind"] == "CronJob"
    }
    made = {"thalweg-certificates"} if mode in ("Extender", "SecondScheduler") else set()
    assert set(ends) >= {"thalweg-uninstall", *made}
    assert all(spec["activeDeadlineSeconds"] <= 3600 for spec in ends.values())


def hook(manifest: Manifest) -> set[str]:
    """The events at which Helm makes an object; none: it is part of the release."""
    events = manifest["metadata"].get("annotations", {}).get("helm.sh/hook", "")
    return {event for event in events.split(",") if event}


@pytest.mark.parametrize(
    ("values", "name", "made"),
    [
        ({}, "thalweg", True),
        ({"priorityClass.name": "mine"}, "mine", True),
        ({"priorityClass": {"create": False, "name": "theirs"}}, "theirs", False),
        ({"priorityClass.create": False}, None, False),
    ],
    ids=["own", "named", "theirs", "none"],
)
def test_priority(helm: Helm, values: dict[str, Any], name: str | None, *, made: bool) -> None:
    """By default the pods have a class of the release's own, which a cluster allows in every namespace."""
    objects = helm.template({"mode": "SecondScheduler", **values})
    # The Job before a rollback to this revision runs when its class may not be there yet.
    hooked = one(objects, "Job", "thalweg-uninstall")["spec"]["template"]["spec"]
    assert "priorityClassName" not in hooked
    given = [pod["spec"].get("priorityClassName") for pod in pod_templates(objects) if pod["spec"] != hooked]
    assert set(given) == {name}
    assert [each["metadata"]["name"] for each in objects if each["kind"] == "PriorityClass"] == ([name] if made else [])


def test_openshift(helm: Helm) -> None:
    """There no pod asks for a user or group, and the leader may write addresses of pods. The cluster's kinds decide."""
    restricted = {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices/restricted"], "verbs": ["create"]}
    served = ("--api-versions", "security.openshift.io/v1")
    cases: tuple[tuple[dict[str, Any], tuple[str, ...], bool], ...] = (
        ({}, served, True),
        ({"openshift": False}, served, False),
        ({}, (), False),
        ({"openshift": True}, (), True),
    )
    for values, words, expected in cases:
        objects = helm.template({"mode": "SecondScheduler", **values}, *words)
        for pod in pod_templates(objects):
            context = pod["spec"]["securityContext"]
            assert context["runAsNonRoot"] is True
            assert (not {"runAsUser", "runAsGroup", "fsGroup"} & set(context)) == expected
        rules = [rule for each in objects if each["kind"] == "Role" for rule in each["rules"]]
        assert (restricted in rules) == expected


def test_what_uninstall_and_test_may_do_is_there_while_they_run(helm: Helm) -> None:
    """Their accounts and roles are hooks of the same events, come before the pod, and go with it."""
    for component in ("uninstall", "test"):
        objects = [each for each in helm.template({}) if each["metadata"]["name"] == f"thalweg-{component}"]
        kinds = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}
        runs = "Job" if component == "uninstall" else "Pod"
        assert {each["kind"] for each in objects} == {*kinds, runs}
        (events,) = {frozenset(hook(each)) for each in objects}
        assert events == ({"pre-delete", "pre-rollback"} if component == "uninstall" else {"test"})
        annotations = {each["kind"]: each["metadata"]["annotations"] for each in objects}
        weights = {kind: int(each["helm.sh/hook-weight"]) for kind, each in annotations.items()}
        assert all(weights[kind] < weights[runs] for kind in kinds)
        assert {each["helm.sh/hook-delete-policy"] for each in annotations.values()} == {
            "before-hook-creation,hook-succeeded"
        }
    assert [each for each in helm.template({"uninstallJob": False}) if "uninstall" in each["metadata"]["name"]] == []


def test_policies_are_changed_by_administrators_alone(helm: Helm) -> None:
    """A policy may evict pods of all namespaces: the cluster's role edit gains no right to change one."""
    gained: dict[str, set[str]] = {}
    for role in helm.template({}):
        for label in role["metadata"].get("labels") or {}:
            if label.startswith("rbac.authorization.k8s.io/aggregate-to-"):
                gained[label.rpartition("-")[2]] = {verb for rule in role["rules"] for verb in rule["verbs"]}
    reads, changes = {"get", "list", "watch"}, {"create", "update", "patch", "delete", "deletecollection"}
    assert gained == {"view": reads, "admin": changes}


def test_policies_outlive_the_release(helm: Helm) -> None:
    """Helm leaves the CRDs, unless a value says otherwise."""
    for values, expected in (({}, {"helm.sh/resource-policy": "keep"}), ({"crds.keep": False}, None)):
        crds = [each for each in helm.template(values) if each["kind"] == "CustomResourceDefinition"]
        assert [each["metadata"].get("annotations") for each in crds] == [expected] * 3


@pytest.mark.parametrize("mode", MODES)
def test_when_gates_are_opened(helm: Helm, mode: str) -> None:
    """Before the release goes, and before a rollback to a revision that has no right to open them."""
    events = hook(one(helm.template({"mode": mode}), "Job", "thalweg-uninstall"))
    expected = {"Binder": {"pre-delete", "pre-rollback"}, "Observe": {"pre-rollback"}}
    assert events == expected.get(mode, {"pre-delete"})


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
        "--probe-listen=:8081",
        "--log-level=info",
        "--dump-directory=/tmp/dumps",
    ]
    view = ["--view-listen=:8444", f"--view-endpoints={NAMESPACE}/thalweg-view"]
    assert arguments() == [*plain, *view]
    assert arguments(mode="SecondScheduler", **{"view.enabled": False}) == [
        *plain,
        "--extender-listen=:8443",
        "--ask-for=All",
        *(
            f"--extender-{name}=/etc/thalweg/extender/{file}"
            for name, file in (("cert", "tls.crt"), ("key", "tls.key"), ("client-ca", "ca.crt"))
        ),
        f"--extender-endpoints={NAMESPACE}/thalweg-extender",
    ]
    assert arguments(mode="Observe") == ["run", "--observe", *plain[1:], view[0]]
    given = arguments(workerMemory="2Gi", roundBudget=0, logLevel="debug", extraArgs=["--record=/tmp/rounds"])
    assert given[-5:] == ["--round-budget=0", "--worker-memory=2Gi", *view, "--record=/tmp/rounds"]
    assert "--log-level=debug" in given
    assert {"--audit-interval=0", "--usage-interval=9"} < {*arguments(audit={"interval": 0}, usage={"interval": 9})}


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
def test_nothing_is_written_in_kube_system(helm: Helm, mode: str) -> None:
    """All objects with a namespace are in the release's: some clusters let nobody write in kube-system."""
    for each in helm.template({"mode": mode}):
        assert each["metadata"].get("namespace", NAMESPACE) == NAMESPACE, each["metadata"]


@pytest.mark.parametrize("mode", MODES)
def test_strict_or_ignorable(helm: Helm, mode: str) -> None:
    """By default only the extender of the cluster's own kube-scheduler is ignorable; a value decides otherwise."""
    extends = mode in ("Extender", "SecondScheduler")
    for value, expected in ((None, mode == "Extender"), (True, extends), (False, False)):
        pods = pod_templates(helm.template({"mode": mode, "extender.ignorable": value}))
        containers = [
            each
            for pod in pods
            for each in [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
            if "scheduler-config" in each.get("args", ())
        ]
        assert bool(containers) == extends
        assert {"--ignorable" in each["args"] for each in containers} == ({expected} if containers else set())


def test_our_namespace_is_never_gated(helm: Helm) -> None:
    """The policy that gates pods leaves out kube-system and our namespace; the other one names our accounts."""
    values = {"mode": "Extender", "serviceAccount.name": "robot"}
    text = helm.run("template", "x", CHART, "--namespace", "elsewhere", *helm.values(values))
    objects = [each for each in yaml.safe_load_all(text) if each]
    (gate,) = [each for each in objects if each["kind"] == "MutatingAdmissionPolicy"]
    (condition,) = gate["spec"]["matchConditions"]
    assert '!(request.namespace in ["kube-system", "elsewhere"])' in condition["expression"]
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
    """The account of the certificates fills Secrets, each by name. No other account may."""
    verbs = {"thalweg-certificates": {"get", "patch"}}
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
