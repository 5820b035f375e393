"""The checks of `thalweg doctor` by facts: each verdict where it belongs, and nothing else."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from thalweg.crds import custom_resource_definitions, rights_by_file
from thalweg.doctor import run
from thalweg.doctor.access import Right, wanted_rights
from thalweg.doctor.confinement import expected_confinement
from thalweg.doctor.extender_probe import ProbeAnswer, ProbeOutcome
from thalweg.doctor.facts import ClientCertificate, Facts, Lease, NewPodRules, NotRead, PolicyObject, SchedulerFacts
from thalweg.doctor.findings import CheckResult, Verdict, exit_code
from thalweg.doctor.installation import OLDEST
from thalweg.doctor.liveness import HEARTBEAT
from thalweg.doctor.run import judge
from thalweg.doctor.scheduler_file import ConfiguredExtender, SchedulerFile, SchedulerFileError, parse
from thalweg.doctor.view_probe import ViewAnswer
from thalweg.doctor.visibility import LONG
from thalweg.option_types import NamespacedName
from thalweg.wire_objects import Pod
from thalweg_controlplane.building.build import KUBERNETES, KUBERNETES_VERSION

from flowcore.api.kinds import POLICY
from flowcore.model.kubernetes_version import KNOWN

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
STEERED, OURS = "thalweg-steered", "thalweg"
ACCOUNT = NamespacedName("thalweg-system", "thalweg")
URL = "https://10.96.0.7:8443/extender"
#: Thalweg's extender in kube-scheduler's configuration.
EXTENDER = {"urlPrefix": URL, "nodeCacheCapable": True, "tlsConfig": {"caData": "eA=="}}
MARKS = {"managedResources": [{"name": "scheduling.thalweg/steered", "ignoredByScheduler": True}]}


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def lease(name: str = "thalweg", renewed: float = 1, holder: str = "one") -> Lease:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": ago(renewed)}
    return msgspec.convert({"metadata": {"name": name, "namespace": "kube-system"}, "spec": spec}, Lease)


def pod(name: str, scheduler: str = OURS, node: str = "", old: float = 300, **more: Any) -> Pod:
    metadata = {"name": name, "namespace": "default", "creationTimestamp": ago(old), "labels": more.pop("labels", {})}
    spec = {"schedulerName": scheduler, "nodeName": node, **more}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


def rules(heartbeat: float | None, *, marked: bool = False) -> NewPodRules:
    said = {"order": [{"marked": marked}], **({} if heartbeat is None else {"heartbeat": ago(heartbeat)})}
    return msgspec.convert(said, NewPodRules)


def policy(name: str, accepted: str = "True", **spec: Any) -> PolicyObject:
    status: dict[str, Any] = {
        "observedGeneration": 1,
        "conditions": [{"type": "Accepted", "status": accepted, "message": "spec: wrong"}],
    }
    selects = {"selects": {"podSelector": {}}, **spec}
    return msgspec.convert(
        {"metadata": {"name": name, "generation": 1}, "spec": selects, "status": status}, PolicyObject
    )


#: The policies' CRD comes first.
CRDS = sorted(custom_resource_definitions(), key=lambda each: each["spec"]["names"]["kind"] != POLICY.kind)


def installed(**changes: Any) -> Mapping[str, Any]:
    """The policies' CRD as the API server shows it."""
    crd = copy.deepcopy(CRDS[0])
    return {**crd, "status": {"conditions": [{"type": "Established", "status": "True"}]}, **changes}


def with_schema(add: str = "", drop: str = "") -> Mapping[str, Any]:
    crd = installed()
    fields = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    if add:
        fields[add] = {"type": "string"}
    if drop:
        del fields[drop]
    return crd


def not_served() -> Mapping[str, Any]:
    crd = installed()
    crd["spec"]["versions"][0]["served"] = False
    return crd


def scheduler(*answers: ProbeAnswer, chosen: bool = True, **config: Any) -> SchedulerFacts:
    profiles = [{"schedulerName": STEERED, "percentageOfNodesToScore": 1}]
    found = {"kind": "KubeSchedulerConfiguration", "profiles": profiles, "extenders": [EXTENDER], **config}
    return SchedulerFacts("a.yaml", chosen, parse(yaml.safe_dump(found)), answers)


def answer(
    outcome: ProbeOutcome = ProbeOutcome.ANSWERED, status: int = 200, text: str = "[]", **tls: Any
) -> ProbeAnswer:
    given = EXTENDER | ({"tlsConfig": tls} if tls else {})
    return ProbeAnswer(msgspec.convert(given, ConfiguredExtender), outcome, status, text)


def second(version: str = KUBERNETES_VERSION) -> Pod:
    """The chart's second kube-scheduler."""
    return pod("k", "default-scheduler", node="n", containers=[{"image": f"registry.k8s.io/kube-scheduler:{version}"}])


def certificate(left: float) -> ClientCertificate:
    """One of 30 days, of which so many are left."""
    return ClientCertificate("a.yaml", NOW - timedelta(days=30 - left), NOW + timedelta(days=left))


def not_confined() -> tuple[Any, ...]:
    """The policy of an account with another name, and a binding that only warns."""
    policy, _ = expected_confinement(NamespacedName("elsewhere", "thalweg"), "thalweg")
    _, binding = copy.deepcopy(expected_confinement(ACCOUNT, "thalweg"))
    binding["spec"]["validationActions"] = ["Warn"]
    return policy, binding


HEALTHY = Facts(
    server_time=NOW,
    local_time=NOW,
    server_version=KUBERNETES_VERSION,
    cli_version="1.0.0",
    service_account=ACCOUNT,
    lease=None,
    crds=(installed(),),
    expected_crds=(CRDS[0],),
    denied=(),
    leases=(lease(),),
    still_renewed=None,
    confinement=expected_confinement(ACCOUNT, "thalweg"),
    expected_confinement=expected_confinement(ACCOUNT, "thalweg"),
    operator_pods=(pod("o", "default-scheduler", node="n", labels={"app.kubernetes.io/version": "1.0.0"}),),
    second_scheduler_pods=(second(),),
    pods=(pod("ours"), pod("steered", STEERED)),
    namespaces={"default": {}},
    policies=(policy("steered", delivery="Extender"),),
    new_pod_rules=rules(1),
    missing_gate_objects=(),
    node_count=5000,
    scheduler=scheduler(answer()),
    client_certificates=(certificate(30),),
    scheduler_features={"GangScheduling": False},
    pod_group_versions=(),
    hyper_node_problems=None,
    view=ViewAnswer("Service thalweg-system/thalweg-view"),
)
GATED = (pod("gated", STEERED, schedulingGates=[{"name": "scheduling.thalweg/plan"}]),)
#: The labels make a system namespace.
SYSTEM = {"default": {"kubernetes.io/metadata.name": "kube-system"}}
NOT_READ = NotRead("Not read: 403: no")


def not_ok(facts: Facts) -> list[CheckResult]:
    return [each for each in judge(facts) if each.verdict is not Verdict.OK]


def test_a_healthy_cluster_is_ok() -> None:
    """Every check speaks, and says OK; the page names each check."""
    assert not_ok(HEALTHY) == []
    pages = (ROOT / "docs/how-to/check-a-cluster.md").read_text()
    assert {each.check for each in judge(HEALTHY)} == set(re.findall(r"^\| `([a-z-]+)` \|", pages, re.MULTILINE))


_ACCOUNT = NamespacedName("thalweg-system", "thalweg")
OF_THE_VIEW = tuple(right for right in wanted_rights(_ACCOUNT, _ACCOUNT) if right.file == "view")
LONG_WAITS = (pod("p", old=7200), pod("q", old=90000))
CASES: list[tuple[dict[str, Any], str, Verdict, str]] = [
    ({"server_version": "v1.29.9"}, "api-server", Verdict.FAIL, "needs 1.30 or newer"),
    (
        {"server_version": "v1.99.0"},
        "api-server",
        Verdict.WARN,
        "not tested on, but on 1.35, 1.36 and 1.37: Thalweg follows the rules of 1.37",
    ),
    ({"server_version": "v1.34.2"}, "api-server", Verdict.WARN, "Thalweg follows the rules of 1.35"),
    ({"server_version": "dev"}, "api-server", Verdict.WARN, '"dev"'),
    ({"cli_version": "2.0.0"}, "versions", Verdict.WARN, "pod default/o (1.0.0)"),
    ({"operator_pods": ()}, "versions", Verdict.SKIP, "No running pod of thalweg-system"),
    ({"operator_pods": NOT_READ}, "versions", Verdict.SKIP, "403"),
    ({"crds": (None,)}, "crd", Verdict.FAIL, "is not installed"),
    ({"crds": (not_served(),)}, "crd", Verdict.FAIL, "does not serve version v1alpha1"),
    ({"crds": (installed(status={}),)}, "crd", Verdict.FAIL, "has not established it"),
    ({"crds": (with_schema(drop="gangs"),)}, "crd", Verdict.FAIL, "older than this command: it lacks spec.gangs"),
    ({"crds": (with_schema(add="later"),)}, "crd", Verdict.WARN, "newer than this command: it has spec.later"),
    ({"crds": (with_schema(add="later", drop="gangs"),)}, "crd", Verdict.FAIL, "lacks spec.gangs and has spec.later"),
    (
        {"denied": (Right("binder", "create", "", "pods/binding"),)},
        "rights",
        Verdict.WARN,
        "create pods/binding (rights",
    ),
    ({"denied": (Right("base", "list", "", "pods"),)}, "rights", Verdict.FAIL, "system:serviceaccount:thalweg-system:"),
    ({"denied": NOT_READ}, "rights", Verdict.SKIP, "403"),
    ({"denied": OF_THE_VIEW[1:]}, "rights", Verdict.WARN, "rights/view.yaml"),
    (
        {"confinement": (None, None)},
        "confinement",
        Verdict.WARN,
        "no ValidatingAdmissionPolicy thalweg-confinement and",
    ),
    ({"confinement": not_confined()}, "confinement", Verdict.WARN, "Policy thalweg-confinement differs"),
    ({"confinement": not_confined()}, "confinement", Verdict.WARN, "PolicyBinding thalweg-confinement differs"),
    ({"confinement": NOT_READ}, "confinement", Verdict.SKIP, "403"),
    ({"second_scheduler_pods": (second("v1.99.0"),)}, "second-scheduler", Verdict.FAIL, "may not be newer"),
    ({"second_scheduler_pods": (second("v1.30.0"),)}, "second-scheduler", Verdict.FAIL, "kube-scheduler:v1.30.0; the"),
    ({"second_scheduler_pods": (second("latest"),)}, "second-scheduler", Verdict.SKIP, "cannot be told"),
    ({"second_scheduler_pods": ()}, "second-scheduler", Verdict.SKIP, "No second kube-scheduler"),
    ({"second_scheduler_pods": NOT_READ}, "second-scheduler", Verdict.SKIP, "403"),
    ({"client_certificates": (certificate(-1),)}, "certificates", Verdict.FAIL, "ended at 2026-11-21 12:00 UTC"),
    ({"client_certificates": (certificate(6),)}, "certificates", Verdict.WARN, "ends soon, at 2026-11-28 12:00 UTC"),
    ({"client_certificates": ()}, "certificates", Verdict.SKIP, "No client certificate"),
    ({"operator_pods": (pod("o", OURS),)}, "served", Verdict.FAIL, "Pod default/o is Thalweg's own"),
    ({"leases": ()}, "lease", Verdict.FAIL, "nobody holds a lease of Thalweg"),
    ({"leases": (), "lease": NamespacedName("a", "b")}, "lease", Verdict.FAIL, "nobody holds the lease a/b"),
    ({"leases": (lease(renewed=60),)}, "lease", Verdict.FAIL, "last renewed it 60 s ago"),
    ({"leases": (lease(renewed=-60),), "still_renewed": frozenset()}, "lease", Verdict.FAIL, "No operator runs"),
    ({"leases": (lease(), lease("thalweg-2"))}, "lease", Verdict.FAIL, "kube-system/thalweg-2 (one)"),
    ({"leases": NOT_READ}, "lease", Verdict.SKIP, "403"),
    ({"local_time": NOW + timedelta(minutes=1)}, "clock", Verdict.WARN, "60 s ahead of the API server's"),
    ({"local_time": NOW - timedelta(minutes=1)}, "clock", Verdict.WARN, "60 s behind the API server's"),
    ({"policies": (policy("p", accepted="False"),)}, "policies", Verdict.FAIL, "p is not accepted: spec: wrong"),
    (
        {"policies": (policy("p"), policy("q"))},
        "policies",
        Verdict.WARN,
        "q: it governs no pod: p comes first, since its name comes first at the same precedence, such as",
    ),
    ({"policies": (policy("p", selects={}),)}, "policies", Verdict.WARN, "spec.selects is empty"),
    (
        {
            "policies": (policy("p", delivery="Extender"),),
            "pods": (pod("p", STEERED),),
            "namespaces": SYSTEM,
        },
        "policies",
        Verdict.WARN,
        "it governs no pod: pods of default are left to kube-scheduler, such as default/p",
    ),
    (
        {"policies": (policy("p", cost={"machines": {"label": "gen", "weight": 3}}),)},
        "policies",
        Verdict.WARN,
        "p: spec.cost.machines.weight is ignored since 0.1.0: each slowdown counts as it is stated.",
    ),
    ({"policies": NOT_READ}, "policies", Verdict.SKIP, "403"),
    ({"pods": GATED, "new_pod_rules": rules(99)}, "gates", Verdict.FAIL, "last heartbeat was 99 s ago"),
    ({"pods": GATED, "new_pod_rules": rules(None)}, "gates", Verdict.FAIL, "no heartbeat"),
    ({"new_pod_rules": NOT_READ}, "gates", Verdict.SKIP, "403"),
    ({"pods": GATED, "leases": ()}, "gates", Verdict.FAIL, "Pod default/gated waits behind"),
    ({"missing_gate_objects": ("MutatingAdmissionPolicy",)}, "gates", Verdict.WARN, "there is no MutatingAdmission"),
    ({"new_pod_rules": None}, "gates", Verdict.WARN, "no fresh heartbeat"),
    ({"leases": ()}, "served", Verdict.FAIL, "no operator serves the scheduler thalweg"),
    ({"scheduler": scheduler(profiles=[])}, "served", Verdict.FAIL, "no kube-scheduler serves the scheduler"),
    ({"scheduler": None}, "served", Verdict.WARN, "Pod default/steered waits: no kube-scheduler serves"),
    ({"scheduler": None}, "extender", Verdict.SKIP, "steered needs the extender"),
    ({"scheduler": None, "policies": ()}, "extender", Verdict.SKIP, "No policy has delivery Extender"),
    ({"scheduler": NOT_READ}, "extender", Verdict.SKIP, "403"),
    ({"scheduler": scheduler(extenders=[])}, "extender", Verdict.FAIL, "does not ask Thalweg"),
    (
        {"scheduler": scheduler(answer(), extenders=[EXTENDER | MARKS])},
        "extender",
        Verdict.FAIL,
        "asks about pods with the mark scheduling.thalweg/steered only, and no pod gets it",
    ),
    (
        {"scheduler": scheduler(answer(), extenders=[EXTENDER | MARKS]), "new_pod_rules": rules(1, marked=True)},
        "extender",
        Verdict.WARN,
        "Governed pods wait without the mark scheduling.thalweg/steered: 1, such as default/steered",
    ),
    (
        {"scheduler": scheduler(answer(), extenders=[EXTENDER | {"bindVerb": "bind"}])},
        "extender",
        Verdict.FAIL,
        "has bindVerb: bind, but Thalweg's extender binds no pods: kube-scheduler binds no pod",
    ),
    (
        {"scheduler": scheduler(answer(), extenders=[EXTENDER | {"bindVerb": "bind", "ignorable": True}])},
        "extender",
        Verdict.FAIL,
        "kube-scheduler binds each pod only after a request in vain",
    ),
    ({"scheduler": scheduler(answer(ProbeOutcome.UNREACHABLE, 0, "x"))}, "extender", Verdict.FAIL, "does not answer"),
    (
        {"scheduler": scheduler(answer(ProbeOutcome.UNREACHABLE, 0), chosen=False)},
        "extender",
        Verdict.WARN,
        "not answer",
    ),
    ({"scheduler": scheduler(answer(ProbeOutcome.UNTRUSTED, 0))}, "extender", Verdict.FAIL, "does not trust"),
    ({"scheduler": scheduler(answer(ProbeOutcome.CLIENT_REFUSED, 0))}, "extender", Verdict.FAIL, "does not accept"),
    ({"scheduler": scheduler(answer(status=503, text="no lease"))}, "extender", Verdict.FAIL, "It says: no lease"),
    ({"scheduler": scheduler(answer(status=404))}, "extender", Verdict.FAIL, "answers 404"),
    ({"scheduler": scheduler(answer(insecure=True))}, "extender", Verdict.WARN, "does not verify"),
    (
        {"scheduler": scheduler(answer(), profiles=[{"schedulerName": STEERED}])},
        "node-sample",
        Verdict.WARN,
        "500 of 5,0",
    ),
    (
        {"policies": (policy("p", delivery="Extender", steering="Prefer"),)},
        "node-sample",
        Verdict.WARN,
        "Prefer",
    ),
    ({"node_count": NOT_READ}, "node-sample", Verdict.SKIP, "403"),
    (
        {"scheduler_features": {"GangScheduling": True}, "policies": (policy("p", delivery="Binder"),)},
        "gang-scheduling",
        Verdict.WARN,
        "feature gate GangScheduling",
    ),
    (
        {"pod_group_versions": ("v1alpha2",)},
        "gang-scheduling",
        Verdict.WARN,
        "FlowSchedulingPolicy steered gives these pods no gate",
    ),
    ({"scheduler_features": None, "pod_group_versions": ("v1beta1",)}, "gang-scheduling", Verdict.SKIP, "not known"),
    (
        {"hyper_node_problems": ("HyperNode a: x", "b", "c", "d")},
        "hyper-nodes",
        Verdict.WARN,
        "HyperNode a: x; b; c; and 1 more.",
    ),
    ({"hyper_node_problems": NOT_READ}, "hyper-nodes", Verdict.SKIP, "403"),
    (
        {"pods": (pod("p", old=7200), pod("q", old=90000))},
        "waiting",
        Verdict.WARN,
        "2 pods wait for longer than an hour",
    ),
    (
        {"pods": (pod("p", old=7200), pod("q", old=90000))},
        "waiting",
        Verdict.WARN,
        "Pod default/q waits longest, for 25 h",
    ),
    ({"pods": NOT_READ}, "waiting", Verdict.SKIP, "403"),
    ({"view": None}, "view", Verdict.SKIP, "No Service of namespace thalweg-system leads to the view"),
    ({"view": NOT_READ}, "view", Verdict.SKIP, "403"),
    (
        {"view": ViewAnswer("Service a/b", "503: no endpoints")},
        "view",
        Verdict.WARN,
        "Service a/b does not lead to the",
    ),
    ({"scheduler_features": NOT_READ}, "gang-scheduling", Verdict.SKIP, "403"),
]


@pytest.mark.parametrize(("changes", "check", "verdict", "words"), CASES, ids=[f"{c}-{w}" for _, c, _, w in CASES])
def test_a_fault_is_named(changes: dict[str, Any], check: str, verdict: Verdict, words: str) -> None:
    """By its check, with the right verdict, in a sentence with an end, and with advice where something fails."""
    found = [each for each in not_ok(replace(HEALTHY, **changes)) if (each.check, each.verdict) == (check, verdict)]
    assert any(words in each.sentence for each in found), judge(replace(HEALTHY, **changes))
    assert all(each.advice for each in found if each.verdict in (Verdict.FAIL, Verdict.WARN) and check != "api-server")


def test_defaults_of_the_api_server_are_no_difference() -> None:
    """The policy as the API server shows it is that of rights/."""
    policy, binding = copy.deepcopy(expected_confinement(ACCOUNT, "thalweg"))
    constraints = policy["spec"]["matchConstraints"]
    constraints |= {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}
    for rule in constraints["resourceRules"]:
        rule["scope"] = "*"
    assert not_ok(replace(HEALTHY, confinement=(policy, binding))) == []
    constraints["namespaceSelector"] = {"matchLabels": {"a": "b"}}
    assert [each.check for each in not_ok(replace(HEALTHY, confinement=(policy, binding)))] == ["confinement"]


def test_a_wrong_clock_is_not_a_dead_operator() -> None:
    """A lease that is renewed counts as held, whatever its times say; the clock is named instead."""
    for renewed, way in ((3600, "behind"), (-3600, "ahead of")):
        facts = replace(HEALTHY, leases=(lease(renewed=renewed),), still_renewed=frozenset({"kube-system/thalweg"}))
        (found,) = not_ok(facts)
        assert (found.check, found.verdict) == ("clock", Verdict.FAIL)
        assert way in found.sentence


def test_old_pods_only_are_without_a_scheduler() -> None:
    """A pod that was just created may not have been looked at; one with a condition has been."""
    young = replace(HEALTHY, scheduler=None, pods=(pod("p", STEERED, old=1),))
    assert not [each for each in not_ok(young) if each.check == "served"]


def test_exit_codes() -> None:
    """A failure is 1; a warning is 1 with --strict alone; what was skipped is never."""

    def code(*verdicts: Verdict, strict: bool = False) -> int:
        return exit_code([CheckResult("c", each, "s") for each in verdicts], strict=strict)

    assert code(Verdict.OK, Verdict.WARN, Verdict.SKIP) == 0
    assert code(Verdict.OK, Verdict.FAIL) == 1
    assert code(Verdict.WARN, strict=True) == 1
    assert code(Verdict.OK, Verdict.SKIP, strict=True) == 0


def test_the_table_shows_everything(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks, verdicts, sentences with brackets in them, advice, and the counts."""
    monkeypatch.setenv("COLUMNS", "200")
    run._print(
        [CheckResult("one", Verdict.FAIL, "It [sic] fails.", "kubectl [x]"), CheckResult("two", Verdict.OK, "Fine.")]
    )
    shown = capsys.readouterr().out
    for words in ("one", "FAIL", "It [sic] fails.", "kubectl [x]", "two", "Fine.", "1 OK, 1 FAIL"):
        assert words in shown


def test_who_waits_for_long() -> None:
    """The reason of the longest wait is told. Pods behind others' gates, of others, and young ones are not."""
    reason = {"type": "PodScheduled", "status": "False", "message": "0/5 nodes are available."}
    old = LONG.total_seconds() + 1
    slow = msgspec.structs.replace(
        pod("slow", old=old), status=msgspec.convert({"conditions": [reason]}, type(pod("x").status))
    )
    others = (
        pod("young", old=old - 2),
        pod("gated", old=old, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]),
        pod("theirs", "default-scheduler", old=old),
        pod("placed", node="n", old=old),
    )

    def told(*pods: Pod) -> list[str]:
        return [each.sentence for each in not_ok(replace(HEALTHY, pods=pods)) if each.check == "waiting"]

    assert told(*others) == []
    (sentence,) = told(*others, slow)
    assert sentence.endswith("Pod default/slow waits longest, for 1 h: 0/5 nodes are available.")


def test_an_account_without_the_rights_of_a_feature_is_whole() -> None:
    """The view may be off. Without a policy of delivery Extender, so may what it needs."""
    assert not any(each.check == "rights" for each in not_ok(replace(HEALTHY, denied=OF_THE_VIEW)))
    of_extender = tuple(each for each in wanted_rights(_ACCOUNT, _ACCOUNT) if each.file in ("extender", "gates"))
    named = [each for each in not_ok(replace(HEALTHY, denied=of_extender)) if each.check == "rights"]
    assert len(named) == 2
    bound = replace(HEALTHY, denied=of_extender, policies=(policy("bound"),))
    assert not any(each.check == "rights" for each in not_ok(bound))


def test_rights_are_those_of_the_manifests() -> None:
    """Each verb of each rule is asked about once, for the given account and lease."""
    found = wanted_rights(NamespacedName("ns", "account"), NamespacedName("ns", "lease"))
    rules = [
        rule
        for manifests in rights_by_file().values()
        for each in manifests
        if each["kind"] in ("Role", "ClusterRole")
        for rule in each["rules"]
    ]
    assert len(found) == sum(
        len(rule["verbs"])
        * (len(rule["resources"]) * len(rule["apiGroups"]) * len(rule.get("resourceNames", "x")) if "resources" in rule
           else len(rule["nonResourceURLs"]))
        for rule in rules
    )  # fmt: skip
    assert len(set(found)) == len(found)
    assert Right("lease", "update", "coordination.k8s.io", "leases", "lease", "ns") in found
    # The chart names the Service after the release, as the Lease, and not after the account.
    assert Right("extender", "get", "", "services", "lease-extender", "ns") in found
    elsewhere = wanted_rights(ACCOUNT, NamespacedName("kube-system", "any"))
    assert Right("extender", "get", "", "services", "thalweg-extender", "thalweg-system") in elsewhere
    assert Right("usage", "patch", "", "configmaps", "any-usage", "kube-system") in elsewhere
    review = Right("binder", "create", "", "pods/binding").review("system:serviceaccount:ns:account")["spec"]
    assert (review["resourceAttributes"]["resource"], review["resourceAttributes"]["subresource"]) == (
        "pods",
        "binding",
    )
    assert "system:serviceaccounts:ns" in review["groups"]


@pytest.mark.parametrize(
    ("nodes", "own", "of_all", "sample"),
    [(99, 1, 0, 99), (100, 1, 0, 100), (5000, 1, 0, 100), (20_000, 1, 0, 200), (1000, None, 0, 420),
     (5000, None, 0, 500), (10_000, None, 0, 500), (5000, None, 100, 5000), (5000, 0, 100, 500), (5000, 100, 1, 5000)],
)  # fmt: skip
def test_node_samples_are_kube_schedulers(nodes: int, own: int | None, of_all: int, sample: int) -> None:
    """As numFeasibleNodesToFind of kube-scheduler 1.36 computes them."""
    profile = {"schedulerName": STEERED, **({} if own is None else {"percentageOfNodesToScore": own})}
    given = {"kind": "KubeSchedulerConfiguration", "percentageOfNodesToScore": of_all, "profiles": [profile]}
    config = msgspec.convert(given, SchedulerFile)
    assert config.node_sample(config.profiles[0], nodes) == sample


@pytest.mark.parametrize("text", ["", "a: [", "kind: Pod", "kind: KubeSchedulerConfiguration\nprofiles: 3"])
def test_other_files_are_no_configuration(text: str) -> None:
    """One error, whatever the file holds."""
    with pytest.raises(SchedulerFileError):
        parse(text)


def test_versions_and_times_are_those_of_the_repository() -> None:
    """Of the chart, of the control plane that tests run on, and of the admission policy."""
    chart = yaml.safe_load((ROOT / "charts/thalweg/Chart.yaml").read_text())
    assert chart["kubeVersion"].startswith(f">={OLDEST[0]}.{OLDEST[1]}.")
    assert [f"1.{minor}" for minor in KNOWN] == list(KUBERNETES)
    (seconds,) = set(re.findall(r'heartbeat\) \+ duration\("(\d+)s"\)', (ROOT / "rights/gates.yaml").read_text()))
    assert timedelta(seconds=int(seconds)) == HEARTBEAT


_OF_OBSERVER = {right for right in wanted_rights(_ACCOUNT, _ACCOUNT) if right.file in ("observe", "lease", "view")}
#: Of an operator that only observes, with its rights and a policy that it has read.
OBSERVING = replace(
    HEALTHY,
    operator_pods=(
        pod("o", "default-scheduler", node="n", containers=[{"args": ["run", "--observe"]}],
            labels={"app.kubernetes.io/version": "1.0.0"}),
    ),
    denied=tuple(right for right in wanted_rights(_ACCOUNT, _ACCOUNT) if right not in _OF_OBSERVER),
    granted=tuple(right for right in wanted_rights(_ACCOUNT, _ACCOUNT) if right in _OF_OBSERVER),
    confinement=(None, None),
    pods=(pod("theirs", "default-scheduler"),),
    policies=(
        msgspec.convert(
            {"metadata": {"name": "all", "generation": 1},
             "spec": {"delivery": "Observe", "selects": {"schedulerNames": ["default-scheduler"]}}},
            PolicyObject,
        ),
    ),
)  # fmt: skip


@pytest.mark.parametrize("pods", [OBSERVING.operator_pods, ()], ids=["pods", "rights"])
def test_an_operator_that_only_observes(pods: tuple[Pod, ...]) -> None:
    """It may write nothing, is not confined, and writes no status. Its pods tell, or its account's rights."""
    facts = replace(OBSERVING, operator_pods=pods)
    found = [each for each in judge(facts) if each.verdict in (Verdict.FAIL, Verdict.WARN)]
    assert found == []
    (of_rights,) = [each for each in judge(facts) if each.check == "rights"]
    assert of_rights.verdict is Verdict.OK
    assert "write nothing but its Lease" in of_rights.sentence


def test_an_operator_acts_until_all_of_its_pods_observe() -> None:
    """As while a release changes its mode."""
    facts = replace(OBSERVING, operator_pods=(*OBSERVING.operator_pods, *HEALTHY.operator_pods))
    assert not [each for each in judge(facts) if "only observes" in each.sentence]


def test_an_operator_without_pods_that_may_write_acts() -> None:
    """The rights of all files: those to read do not make it one that observes."""
    facts = replace(HEALTHY, operator_pods=(), granted=wanted_rights(_ACCOUNT, _ACCOUNT))
    assert not [each for each in judge(facts) if "observes" in each.sentence]


OF_OBSERVER: list[tuple[dict[str, Any], str, Verdict, str]] = [
    (
        {"denied": (Right("observe", "list", "", "nodes"),)},
        "rights",
        Verdict.FAIL,
        "may not list nodes (rights/observe",
    ),
    (
        {"granted": (*OBSERVING.granted, Right("binder", "create", "", "pods/binding"))},  # type: ignore[misc]
        "rights",
        Verdict.WARN,
        "may also create pods/binding (rights/binder.yaml)",
    ),
    ({"denied": NOT_READ}, "rights", Verdict.SKIP, "403"),
    ({"policies": (policy("acts"),)}, "policies", Verdict.WARN, "has delivery Binder, and the operator only observes"),
    ({"policies": (policy("bad", delivery="Both"),)}, "policies", Verdict.FAIL, "bad is not accepted: spec.delivery"),
    ({"pods": (pod("ours"),)}, "served", Verdict.FAIL, "binds no pod of the scheduler thalweg"),
]


@pytest.mark.parametrize(("changes", "check", "verdict", "words"), OF_OBSERVER, ids=[each[3] for each in OF_OBSERVER])
def test_what_is_wrong_with_one_that_only_observes(
    changes: dict[str, Any], check: str, verdict: Verdict, words: str
) -> None:
    """Missing rights, rights that it does not need, and what waits for an operator that acts."""
    found = [(each.check, each.verdict, each.sentence) for each in judge(replace(OBSERVING, **changes))]
    assert [each for each in found if each[:2] == (check, verdict) and words in each[2]], found


def test_an_operator_that_observes_may_be_beside_one_that_acts() -> None:
    """Each holds a lease of its own."""
    facts = replace(OBSERVING, leases=(lease(), lease("other")), pods=(pod("ours"),))
    assert not [each for each in judge(facts) if each.verdict is Verdict.FAIL]


def test_gang_scheduling_where_it_is_wanted() -> None:
    """Where a policy steers, kube-scheduler's own gang scheduling is right; with gates for all gangs it may be off."""
    on = replace(HEALTHY, scheduler_features={"GenericWorkload": True}, pod_group_versions=("v1beta1",))
    gated = policy("steered", heartbeat=1, delivery="Extender", gangs={"waiting": "Gate"})
    assert not_ok(on) == []
    assert not_ok(replace(HEALTHY, policies=(gated,), pod_group_versions=("v1alpha2",))) == []
