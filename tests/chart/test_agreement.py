"""The objects of the chart agree with each other: selectors, ports, names of certificates, keys of Secrets."""

import json
import re
from typing import Any

import pytest
import yaml
from support.helm import CHART, NAMESPACE, Helm, Manifest, one, pod_templates
from thalweg.up.up_objects import up_objects
from thalweg_controlplane.building.build import MINOR_VERSION

MODES = ("Binder", "Extender", "Observe", "SecondScheduler")
HOST = f"thalweg-extender.{NAMESPACE}.svc"


def matches(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


def options(args: list[str]) -> dict[str, list[str]]:
    """Values of a command line's options, by option."""
    found: dict[str, list[str]] = {}
    for word in args:
        name, _, value = word.partition("=")
        found.setdefault(name, []).append(value)
    return found


def container(objects: list[Manifest], command: str) -> Manifest:
    """The container that runs a command of ours, in a Job where there is a CronJob too."""
    for each in objects:
        if each["kind"] in ("Deployment", "Job"):
            spec = each["spec"]["template"]["spec"]
            for found in [*spec.get("initContainers", ()), *spec["containers"]]:
                if command in found.get("args", ()):
                    return dict(found)
    raise AssertionError(command)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("openshift", [False, True])
def test_volumes(helm: Helm, mode: str, openshift: bool) -> None:  # noqa: FBT001
    """Scratch space is limited, and Secrets are for the pod's group alone.

    OpenShift gives each namespace a group of its own.
    """
    values = {"mode": mode, "view.enabled": True, "view.tlsSecret": "view-tls", "openshift": openshift}
    secrets = 0
    for pod in pod_templates(helm.template(values)):
        spec = pod["spec"]
        for volume in spec.get("volumes", ()):
            if "emptyDir" in volume:
                assert volume["emptyDir"]["sizeLimit"], volume["name"]
            if "secret" in volume:
                secrets += 1
                assert volume["secret"]["defaultMode"] == 0o440
                assert ("fsGroup" in spec["securityContext"]) == (not openshift)
    assert secrets == {"Binder": 1, "Extender": 3, "Observe": 1, "SecondScheduler": 4}[mode]


@pytest.mark.parametrize("mode", MODES)
def test_selectors(helm: Helm, mode: str) -> None:
    """Each selector of a component matches the pods of its Deployment, and no other pod of the release."""
    values = {"mode": mode, "monitoring.podMonitor.enabled": True}
    objects = helm.template(values)
    pods = pod_templates(objects)
    deployments = [each for each in objects if each["kind"] == "Deployment"]
    assert len(deployments) == (2 if mode == "SecondScheduler" else 1)

    def component(each: Manifest) -> str:
        return str(each["metadata"]["labels"]["app.kubernetes.io/component"])

    checked = set()
    for each in objects:
        spec = each.get("spec", {})
        selectors = [spec.get("selector"), spec.get("podSelector")]
        if each["kind"] == "Deployment":
            selectors += [each["labelSelector"] for each in spec["template"]["spec"]["topologySpreadConstraints"]]
        for selector in selectors:
            if selector:
                wanted = selector if each["kind"] == "Service" else selector["matchLabels"]
                matched = [pod for pod in pods if matches(wanted, pod["metadata"]["labels"])]
                # In mode Observe the view's Service leads to the only operator by a selector.
                expected = "operator" if component(each) == "view" else component(each)
                assert [component(pod) for pod in matched] == [expected]
                checked.add(each["kind"])
    assert checked == {"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy", "PodMonitor"}
    services = {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "Service"}
    assert ("thalweg-extender" in services) == (mode in ("Extender", "SecondScheduler"))
    assert "selector" not in services.get("thalweg-extender", {})
    assert ("selector" in services["thalweg-view"]) == (mode == "Observe")


@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor"])
def test_monitors(helm: Helm, kind: str) -> None:
    """A monitor finds the operators' port by its name and gives the job the name that the alerts expect."""
    objects = helm.template({f"monitoring.{kind[0].lower()}{kind[1:]}": {"enabled": True, "labels": {"release": "p"}}})
    monitor = one(objects, kind, "thalweg")
    assert monitor["metadata"]["labels"]["release"] == "p"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints" if kind == "PodMonitor" else "endpoints"]
    assert (endpoint["path"], endpoint["interval"]) == ("/metrics", "30s")
    selector = monitor["spec"]["selector"]["matchLabels"]
    if kind == "PodMonitor":
        (pod,) = pod_templates([one(objects, "Deployment", "thalweg")])
        labels, ports = pod["metadata"]["labels"], pod["spec"]["containers"][0]["ports"]
    else:
        service = one(objects, "Service", "thalweg")
        labels, ports = service["metadata"]["labels"], service["spec"]["ports"]
    assert matches(selector, labels)
    assert endpoint["port"] in [port["name"] for port in ports]
    assert labels[monitor["spec"]["jobLabel"]] == "thalweg"


@pytest.mark.parametrize("mode", ["Extender", "SecondScheduler"])
def test_the_certificate_has_the_name_that_is_verified(helm: Helm, mode: str) -> None:
    """kube-scheduler verifies the extender by a name that the certificate has, whoever makes it."""
    objects = helm.template({"mode": mode})
    configured = options(container(objects, "scheduler-config")["args"])
    if mode == "Extender":
        assert configured["--server-name"] == [HOST]
        assert configured["--service"] == [f"{NAMESPACE}/thalweg-extender"]
    else:
        assert configured["--url"] == [f"https://{HOST}:8443/extender"]
    assert HOST in options(container(objects, "certificates")["args"])["--dns-name"]
    managed = helm.template({"mode": mode, "certificates.source": "CertManager"})
    assert HOST in one(managed, "Certificate", "thalweg-extender")["spec"]["dnsNames"]
    assert one(managed, "Certificate", "thalweg-extender-client")["spec"]["usages"] == ["client auth"]


@pytest.mark.parametrize("source", ["Generated", "CertManager", "Secret"])
@pytest.mark.parametrize("mode", ["Extender", "SecondScheduler"])
def test_secrets(helm: Helm, mode: str, source: str) -> None:
    """What pods mount and commands read is what the source of the certificates makes."""
    given = {"server": "mine", "client": "theirs"}
    objects = helm.template({"mode": mode, "certificates.source": source, "certificates.secret": given})
    used: set[str] = set()
    for pod in pod_templates(objects):
        for volume in pod["spec"].get("volumes", ()):
            if "secret" in volume and volume["name"] != "config":  # kube-scheduler's configuration
                used.add(volume["secret"]["secretName"])
                keys = {each["key"]: each["path"] for each in volume["secret"]["items"]}
                assert keys == {key: key for key in ("tls.crt", "tls.key", "ca.crt")}
    if mode == "Extender":
        reads = options(container(objects, "scheduler-config")["args"])
        used.add(reads["--certificates"][0].removeprefix(f"{NAMESPACE}/"))
    secrets = {each["metadata"]["name"] for each in objects if each["kind"] == "Secret"}
    if source == "Generated":
        fills = options(container(objects, "certificates")["args"])
        made = {fills["--server-secret"][0], fills["--client-secret"][0]}
        assert {*made, fills["--ca-secret"][0]} <= secrets
    elif source == "CertManager":
        made = {each["spec"]["secretName"] for each in objects if each["kind"] == "Certificate"}
        made -= {"thalweg-extender-ca"}
    else:
        made = set(given.values())
    assert used == made
    assert all("data" not in each and "stringData" not in each for each in objects if each["kind"] == "Secret")


def test_a_renewed_ca_is_trusted_as_before(helm: Helm) -> None:
    """The CA that cert-manager keeps for the release has the same key after a renewal, whatever its default is."""
    authority = one(
        helm.template({"mode": "Extender", "certificates.source": "CertManager"}), "Certificate", "thalweg-extender-ca"
    )
    assert authority["spec"]["privateKey"]["rotationPolicy"] == "Never"


@pytest.mark.parametrize("mode", MODES)
def test_the_release_reaches_its_own_ports(helm: Helm, mode: str) -> None:
    """Whoever else is let in by the network policy: `helm test` and the second kube-scheduler are."""
    mine = [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
    values = {
        "mode": mode,
        "networkPolicy.metricsFrom": mine,
        "networkPolicy.extenderFrom": mine,
        "view.enabled": False,
    }
    objects = helm.template(values)
    labels = {
        pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod["metadata"]["labels"]
        for pod in pod_templates(objects)
    }
    opened = {}
    for rule in one(objects, "NetworkPolicy", "thalweg")["spec"]["ingress"]:
        assert rule["from"][0] == mine[0]
        selectors = [each["podSelector"]["matchLabels"] for each in rule["from"][1:]]
        reached = {name for name in labels if any(matches(selector, labels[name]) for selector in selectors)}
        opened[rule["ports"][0]["port"]] = reached
    expected = {
        "Binder": {},
        "Observe": {},
        "Extender": {"extender": {"test"}},
        "SecondScheduler": {"extender": {"test", "kube-scheduler"}},
    }
    assert opened == {"http": {"test"}, **expected[mode]}


def test_probes_have_a_port_that_the_network_policy_opens_to_nobody(helm: Helm) -> None:
    """So no pod can flood it: the kubelet of the pod's own node is always let in."""
    objects = helm.template({"view.enabled": True, "mode": "SecondScheduler"})
    operator = container(objects, "run")
    ports = {each["name"]: each["containerPort"] for each in operator["ports"]}
    assert options(operator["args"])["--probe-listen"] == [f":{ports['probes']}"]
    probes = [operator[f"{kind}Probe"]["httpGet"]["port"] for kind in ("startup", "liveness", "readiness")]
    assert probes == ["probes"] * 3
    opened = [rule["ports"][0]["port"] for rule in one(objects, "NetworkPolicy", "thalweg")["spec"]["ingress"]]
    assert opened == ["http", "extender", "view"]


def test_metrics_are_not_open_to_everybody(helm: Helm) -> None:
    """By default to one namespace, and with an empty list to `helm test` alone; whoever binds pods is not shut out."""
    monitoring = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    for values, expected in (({}, [monitoring]), ({"networkPolicy.metricsFrom": []}, [])):
        objects = helm.template({"mode": "Extender", **values})
        metrics, extender, _view = one(objects, "NetworkPolicy", "thalweg")["spec"]["ingress"]
        *others, test = metrics["from"]
        assert others == expected
        assert test["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "test"
        # kube-scheduler is on its host's network: no selector matches it.
        assert extender == {"ports": [{"port": "extender"}]}


@pytest.mark.parametrize("mode", MODES)
def test_helm_test_asks_the_extender(helm: Helm, mode: str) -> None:
    """With an extender, `thalweg doctor` gets the configuration that kube-scheduler has, and reaches it as it does."""
    objects = helm.template({"mode": mode})
    spec = one(objects, "Pod", "thalweg-test")["spec"]
    (doctor,) = spec["containers"]
    given = options(doctor["args"]).get("--scheduler-config")
    assert given == (["/config/scheduler.yaml"] if mode in ("Extender", "SecondScheduler") else None)
    mounts = {each["name"]: each["mountPath"] for each in doctor["volumeMounts"]}
    volumes = {each["name"]: each for each in spec["volumes"]}
    if mode == "Extender":
        made = options(container(objects, "scheduler-config")["args"])["--store"]
        secret = volumes["config"]["secret"]
        assert (mounts["config"], [f"{NAMESPACE}/{secret['secretName']}"]) == ("/config", made)
        assert secret["items"] == [{"key": "scheduler.yaml", "path": "scheduler.yaml"}]
    if mode == "SecondScheduler":
        second = one(objects, "Deployment", "thalweg-kube-scheduler")["spec"]["template"]["spec"]
        assert spec["initContainers"][-1] == second["initContainers"][0]
        assert {each["name"]: each for each in second["volumes"]} == volumes
        assert mounts == {each["name"]: each["mountPath"] for each in second["containers"][0]["volumeMounts"]}


def test_your_own_issuer(helm: Helm) -> None:
    """With an issuer of yours the chart makes no CA."""
    issuer = {"name": "pki", "kind": "ClusterIssuer", "group": "cert-manager.io"}
    values = {"mode": "Extender", "certificates.source": "CertManager", "certificates.certManager.issuerRef": issuer}
    objects = helm.template(values)
    assert "Issuer" not in {each["kind"] for each in objects}
    assert [each["spec"]["issuerRef"] for each in objects if each["kind"] == "Certificate"] == [issuer, issuer]


def test_alerts_and_dashboard(helm: Helm) -> None:
    """They are the files of the chart, unchanged but for the runbooks' address."""
    values: dict[str, Any] = {
        "monitoring.prometheusRule": {"enabled": True, "runbooks": "https://runbooks.example"},
        "monitoring.dashboard.enabled": True,
    }
    objects = helm.template(values)
    alerts = (CHART / "files" / "alerts.yaml").read_text().replace("RUNBOOK_BASE", "https://runbooks.example")
    spec = one(objects, "PrometheusRule", "thalweg")["spec"]
    assert spec == yaml.safe_load(alerts)
    assert any(rule.get("alert") for group in spec["groups"] for rule in group["rules"])
    dashboard = one(objects, "ConfigMap", "thalweg-dashboard")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(dashboard["data"]["thalweg.json"])["panels"]


def test_the_accounts_are_documented(helm: Helm) -> None:
    """The reference page of rights has a row for each account of the chart, with all that its roles are about."""
    page = (CHART.parents[1] / "docs/reference/rights.md").read_text()
    rows = dict(re.findall(r"^\| `(thalweg[a-z-]*)` \| (.*) \|$", page, re.MULTILINE))
    accounts, with_secrets = set[str](), set[str]()
    for mode in MODES:
        objects = helm.template({"mode": mode})
        accounts |= {each["metadata"]["name"] for each in objects if each["kind"] == "ServiceAccount"}
        roles = {(each["kind"], each["metadata"]["name"]): each for each in objects if each["kind"].endswith("Role")}
        for binding in (each for each in objects if each["kind"].endswith("RoleBinding")):
            account = binding["subjects"][0]["name"]
            role = roles.get((binding["roleRef"]["kind"], binding["roleRef"]["name"]))
            if account == "thalweg":
                continue  # the table of rights/ has it, right by right
            if role is None:
                assert f"`{binding['roleRef']['name']}`" in rows[account]
            else:
                about = {name for rule in role["rules"] for name in rule.get("resources", rule.get("nonResourceURLs"))}
                assert [name for name in about if f"`{name}`" not in rows[account]] == [], account
                with_secrets |= {account} if "secrets" in about else set()
    assert set(rows) == accounts
    assert {account for account, row in rows.items() if "`secrets`" in row} == with_secrets


def test_the_view(helm: Helm) -> None:
    """Off, nothing of it is there. On, the Service has the port that the operator looks for, and roles its names."""
    without = helm.template({"view.enabled": False})
    assert not any(
        "view" in each["metadata"]["name"].removesuffix("-viewer") for each in without if each["kind"] != "ClusterRole"
    )
    assert not any(word.startswith("--view") for word in container(without, "run")["args"])
    objects = helm.template({"view.tlsSecret": "s"})
    service = one(objects, "Service", "thalweg-view")
    (port,) = service["spec"]["ports"]
    assert "selector" not in service["spec"]
    assert (port["name"], port["port"]) == ("https", 443)
    operator = container(objects, "run")
    given = options(operator["args"])
    assert given["--view-endpoints"] == [f"{NAMESPACE}/thalweg-view"]
    (listening,) = [each for each in operator["ports"] if each["name"] == "view"]
    assert given["--view-listen"] == [f":{listening['containerPort']}"]
    (mounted,) = [each["mountPath"] for each in operator["volumeMounts"] if each["name"] == "view"]
    assert given["--view-cert"] == [f"{mounted}/tls.crt"]
    users = one(objects, "Role", "thalweg-view-users")["rules"][0]["resourceNames"]
    assert users == ["https:thalweg-view:https", "https:thalweg-view:443"]
    (rule,) = one(objects, "Role", "thalweg-viewer-tokens")["rules"]
    assert rule["resourceNames"] == [one(objects, "ServiceAccount", "thalweg-viewer")["metadata"]["name"]]
    policy = one(objects, "NetworkPolicy", "thalweg")
    assert [{"port": "view"}] in [each["ports"] for each in policy["spec"]["ingress"]]
    alone = helm.template({"view.viewer": False})
    assert not [each for each in alone if "viewer" in each["metadata"]["name"]]


def test_the_viewer_of_a_local_cluster_is_the_charts(helm: Helm) -> None:
    """`thalweg up` gives the account of its page the chart's name and rights."""
    objects = helm.template({})
    for made in up_objects("", MINOR_VERSION):
        if made["metadata"]["name"] == "thalweg-viewer":
            found = one(objects, made["kind"], "thalweg-viewer")
            assert found | {"metadata": made["metadata"]} == made
