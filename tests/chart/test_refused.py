"""Values that the chart refuses, and why: unknown keys, bad values, contradictions. No cluster is needed."""

import json
import re
from typing import Any

import click
import pytest
import yaml
from support.helm import CHART, Helm, HelmError
from thalweg.certificates.rotation import OVERLAP, RENEWAL
from thalweg.main import main

#: Days: the longest life of a certificate that `thalweg certificates` takes with its own default of the CA's life.
OPTIONS = {each.name: each for each in main.commands["certificates"].params}
#: Seconds: the longest interval that `thalweg run` takes.
(INTERVAL,) = (each.type.max for each in main.commands["run"].params if each.name == "usage_interval")
LONGEST = int(OPTIONS["ca_valid_days"].default * OVERLAP)

#: Options that `thalweg run` had once.
GONE = ("cores", "extender-bind", "extender-insecure", "usage-samples", "usage-stale-after", "view-memory")

#: Values that are refused, and words of the sentence that says why.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"modus": "Binder"}, "additional properties 'modus' not allowed"),
    "unknown within": ({"image.tags": "x"}, "at '/image': additional properties 'tags' not allowed"),
    "removed": ({"rights": None}, "missing property 'rights'"),
    "removed within": ({"networkPolicy.egress": None}, "at '/networkPolicy': missing property 'egress'"),
    "mode": ({"mode": "binder"}, "at '/mode': value must be one of 'Binder', 'Extender', 'SecondScheduler', 'Observe'"),
    "no replicas": ({"replicas": 0}, "at '/replicas': minimum: got 0, want 1"),
    "text for a number": ({"replicas": "2"}, "at '/replicas': got string, want null or integer"),
    "digest": ({"image.digest": "sha256:12"}, "at '/image/digest'"),
    "sample": ({"extender.nodeSample": 101}, "at '/extender/nodeSample': maximum: got 101, want 100"),
    "whom to ask about": ({"extender.askFor": "Some"}, "at '/extender/askFor': value must be one of 'All', 'Governed'"),
    "no marks": (
        {"mode": "Extender", "extender.askFor": "Governed", "rights.gates": False},
        "extender.askFor: Governed needs the admission policy that marks pods (Kubernetes 1.36, and rights.gates",
    ),
    "budget": ({"roundBudget": 31}, "at '/roundBudget': maximum: got 31, want 30"),
    "memory": ({"workerMemory": "much"}, "at '/workerMemory'"),
    "memory in no unit": ({"workerMemory": "524288ki"}, "at '/workerMemory'"),
    "no number": ({"workerMemory": "..."}, "at '/workerMemory'"),
    "no gate": ({"featureGates": {"DRATaints": False}}, "additional properties 'DRATaints' not allowed"),
    "no boolean": ({"featureGates": {"DRADeviceTaints": "off"}}, "at '/featureGates/DRADeviceTaints'"),
    "no unit": ({"resources.requests": {"memory": "512mi"}}, "at '/resources/requests/memory'"),
    "two points": ({"jobs.resources.requests": {"cpu": "1.0.0"}}, "at '/jobs/resources/requests/cpu'"),
    "system's class": (
        {"priorityClass.name": "system-cluster-critical"},
        'priorityClass.name: "system-cluster-critical" begins with system-, which is for classes of Kubernetes.',
    ),
    "name of a digit": ({"fullnameOverride": "1foo"}, "at '/fullnameOverride'"),
    "value of a label": ({"commonLabels": {"team": "two words"}}, "at '/commonLabels/team'"),
    "long label": ({"podLabels": {"team": "x" * 64}}, "at '/podLabels/team'"),
    "drains": ({"podDisruptionBudget.maxUnavailable": 0}, "at '/podDisruptionBudget/maxUnavailable'"),
    "no ports": ({"networkPolicy.egress": {"restrict": True, "ports": []}}, "at '/networkPolicy/egress/ports'"),
    "two monitors": (
        {"monitoring.podMonitor.enabled": True, "monitoring.serviceMonitor.enabled": True},
        "monitoring: podMonitor and serviceMonitor would both collect every metric, so all figures would count twice.",
    ),
    "itself": ({"schedulerName": "thalweg"}, 'schedulerName: "thalweg" is served by Thalweg itself'),
    "itself, steered": ({"schedulerName": "thalweg-steered"}, "so its own pods would wait for themselves"),
    "taken": ({"extender.schedulerName": "default-scheduler"}, "has a scheduler already. Use a name of its own"),
    "removed value": ({"rights.extender": True}, "at '/rights': additional properties 'extender' not allowed"),
    "no binder": ({"rights.binder": False}, "rights.binder: in mode Binder Thalweg binds the pods itself."),
    "no gates": ({"rights.gates": True}, "rights.gates: gates belong to delivery Extender"),
    "no gates where nothing is written": (
        {"mode": "Observe", "rights.gates": True},
        "rights.gates: gates belong to delivery Extender, which mode Observe does not have.",
    ),
    "no queries": ({"usage.prometheus.url": "http://p:9090"}, "usage.prometheus: url and queries need each other"),
    "half a query": (
        {"usage.prometheus": {"url": "http://p:9090", "queries": {"cpu": "x"}}},
        "usage.prometheus.queries: give cpu and memory, or none of the two",
    ),
    "unknown query": ({"usage.prometheus.queries": {"gpu": "x"}}, "at '/usage/prometheus/queries'"),
    "samples are no value": ({"usage.samples": 20}, "at '/usage': additional properties 'samples' not allowed"),
    "interval": ({"usage.interval": INTERVAL + 1}, "at '/usage/interval': maximum: got 91, want 90"),
    "audits in the past": ({"audit.interval": -1}, "at '/audit/interval': minimum: got -1, want 0"),
    "account": ({"serviceAccount.create": False}, "serviceAccount.name: with serviceAccount.create false it must name"),
    "secret": (
        {"mode": "Extender", "certificates.source": "Secret", "certificates.secret.server": "s"},
        "certificates.secret: with certificates.source Secret, name both Secrets",
    ),
    "validity": ({"certificates.generated.validDays": 0}, "at '/certificates/generated/validDays'"),
    "life within the alert": (
        {"certificates.generated.clientValidDays": 44},
        "at '/certificates/generated/clientValidDays': minimum: got 44, want 45",
    ),
    "renewal": (
        {"certificates.certManager": {"duration": "1h30m", "renewBefore": "90m"}},
        "certificates.certManager.renewBefore: 90m is not less than the duration, 1h30m",
    ),
    "duration": (
        {"certificates.certManager": {"duration": "59m59s", "renewBefore": "10m"}},
        "certificates.certManager.duration: 59m59s is less than one hour",
    ),
    "argument": ({"extraArgs": ["--lease=a/b"]}, "extraArgs: the chart sets --lease itself. Use the value for it."),
    "extender argument": ({"extraArgs": ["--extender-key=k"]}, "extraArgs: the chart sets --extender-key"),
    **{
        f"argument that is gone: {option}": (
            {"extraArgs": [f"--{option}=1"]},
            f"extraArgs: thalweg run has no option --{option} any more. Leave it out.",
        )
        for option in GONE
    },
    "second argument": ({"secondScheduler.extraArgs": ["--config=x"]}, "the chart sets --config itself"),
    "variable": ({"extraEnv": [{"name": "POD_IP", "value": "1"}]}, "extraEnv: the chart decides about POD_IP itself"),
    "life": (
        {"certificates.generated.clientValidDays": LONGEST + 1},
        f"at '/certificates/generated/clientValidDays': maximum: got {LONGEST + 1}, want {LONGEST}",
    ),
    "rollout": (
        {"strategy.rollingUpdate": {"maxSurge": "0%", "maxUnavailable": 0}},
        "strategy.rollingUpdate: with maxSurge and maxUnavailable 0 no pod could ever be replaced",
    ),
    "memory of the worker": (
        {"workerMemory": "5Gi"},
        "workerMemory: 5Gi is more than the container's limit, resources.limits.memory 4Gi",
    ),
    "memory in other units": ({"workerMemory": "4.1e9", "resources.limits": {"memory": "4G"}}, "4.1e9 is more than"),
    "request": (
        {"resources.requests": {"memory": "8Gi"}},
        "resources: the request of memory, 8Gi, is more than the limit, 4Gi",
    ),
    "request of jobs": (
        {"jobs.resources": {"requests": {"cpu": 1}, "limits": {"cpu": "500m"}}},
        "jobs.resources: the request of cpu, 1, is more than the limit, 500m",
    ),
    "label of pods": (
        {"podLabels": {"app.kubernetes.io/component": "mine"}},
        "podLabels: the chart sets app.kubernetes.io/component itself, and selects pods by its labels. Use another",
    ),
    "label of all": (
        {"commonLabels": {"app.kubernetes.io/name": "a"}},
        "commonLabels: the chart sets app.kubernetes.io",
    ),
    "label twice": ({"commonLabels": {"a": "b"}, "podLabels": {"a": "c"}}, "podLabels: the chart sets a itself"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(helm: Helm, name: str) -> None:
    """Unknown keys and contradictions fail before anything is rendered, with words that name the value."""
    values, words = REFUSED[name]
    with pytest.raises(HelmError) as error:
        helm.template(values)
    assert words in " ".join(str(error.value).split())


def test_lives_of_certificates() -> None:
    """The schema takes the lives that the command takes, but those that are renewed later than the alert fires.

    The CronJob looks once a day, so a certificate may be renewed a day late.
    """
    alerts = {
        rule["alert"]: rule["expr"]
        for group in yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    schema = json.loads((CHART / "values.schema.json").read_text())
    lives = schema["properties"]["certificates"]["properties"]["generated"]["properties"]
    for name, option, alert in (
        ("validDays", "valid_days", "ThalwegExtenderCertificateExpires"),
        ("clientValidDays", "client_valid_days", "ThalwegClientCertificateExpires"),
    ):
        (warned,) = re.findall(r"< (\d+) \* 86400", alerts[alert])
        shortest = round((int(warned) + 1) / (1 - RENEWAL))
        range_ = OPTIONS[option].type
        assert isinstance(range_, click.IntRange)
        assert range_.max is not None
        assert shortest > range_.min
        assert (lives[name]["minimum"], lives[name]["maximum"]) == (shortest, min(range_.max, LONGEST))


def test_the_version_of_the_second_kube_scheduler(helm: Helm) -> None:
    """Where the cluster's version has no patch, there is no such image: the tag must be named."""
    words = ("--kube-version", "1.36")
    with pytest.raises(HelmError, match=r"secondScheduler\.image\.tag: .* Kubernetes v1\.36, without a patch version"):
        helm.template({"mode": "SecondScheduler"}, *words)
    helm.template({"mode": "SecondScheduler", "secondScheduler.image.tag": "v1.36.0"}, *words)
    helm.template({"mode": "SecondScheduler", "secondScheduler.image.digest": f"sha256:{'0' * 64}"}, *words)


def test_what_is_no_contradiction(helm: Helm) -> None:
    """Values near those that are refused."""
    helm.template({"workerMemory": "4096Mi", "strategy.rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}})
    helm.template({"workerMemory": "0", "resources.limits": {"memory": 4294967296}})
    helm.template({"workerMemory": "524288Ki", "jobs.resources.requests": {"cpu": ".5", "memory": "1e8"}})
    helm.template({"priorityClass": {"create": False, "name": "system-cluster-critical"}})
    helm.template({"commonLabels": {"a": ""}, "podAnnotations": {"note": "two words"}, "fullnameOverride": "f1"})
    helm.template({"certificates.certManager": {"duration": "1h", "renewBefore": "59m59s"}})
    helm.template({"usage": {"interval": INTERVAL}})
    helm.template({"workerMemory": "9Gi", "resources": {"requests": None, "limits": {"memory": None}}})


@pytest.mark.parametrize("release", ["1foo", "a.b"])
def test_names_of_services(helm: Helm, release: str) -> None:
    """Helm takes release names that no Service may have; another name of the objects helps."""
    with pytest.raises(HelmError, match=r"fullnameOverride: the objects would be called"):
        helm.template({}, release=release)
    helm.template({"fullnameOverride": "foo"}, release=release)
