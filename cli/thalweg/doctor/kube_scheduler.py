"""Checks of kube-scheduler: its extender, the node sample of its profiles, its own gang scheduling. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from flowcore.model.policies import MARK, STEERED_NAME, Steering, WaitingMode
from thalweg.doctor.extender_probe import ProbeAnswer, ProbeOutcome
from thalweg.doctor.facts import Facts, NotRead, SchedulerFacts
from thalweg.doctor.findings import CheckResult, Verdict
from thalweg.doctor.governed import steered_pods, steered_policies
from thalweg.doctor.scheduler_file import FEWEST_NODES, ConfiguredExtender

#: A certificate that is to be renewed ends sooner than this; a third of its life is left when Thalweg renews it.
_SOON: Final = timedelta(days=7)
_RENEW: Final = "Renew it (docs/how-to/connect-kube-scheduler.md) and copy it to where kube-scheduler runs."
_GIVE_FILE: Final = "thalweg doctor --scheduler-config FILE"
#: kube-scheduler's feature gates by which it schedules gangs itself.
_GANG_GATES: Final = ("GangScheduling", "GenericWorkload")


def extender(facts: Facts) -> Iterator[CheckResult]:
    """Whether kube-scheduler reaches the extender, and both trust each other."""
    check, scheduler = "extender", facts.scheduler
    if not isinstance(scheduler, SchedulerFacts):
        yield _no_config(check, facts)
        return
    if not scheduler.config.thalweg_extenders:
        yield CheckResult(
            check,
            Verdict.FAIL,
            f"{scheduler.source}: no extender has a urlPrefix that ends with /extender, so kube-scheduler "
            "does not ask Thalweg.",
            "thalweg scheduler-config",
        )
    for entry in scheduler.config.thalweg_extenders:
        if not entry.node_cache_capable:
            yield CheckResult(
                check,
                Verdict.FAIL,
                f"{scheduler.source}: extender {entry.url_prefix} lacks nodeCacheCapable: true, and "
                "Thalweg refuses requests with whole nodes.",
                "thalweg scheduler-config",
            )
        if entry.bind_verb:
            # kube-scheduler ignores the error of an ignorable extender and binds the pod itself.
            effect = "binds each pod only after a request in vain" if entry.ignorable else "binds no pod"
            yield CheckResult(
                check,
                Verdict.FAIL,
                f"{scheduler.source}: extender {entry.url_prefix} has bindVerb: {entry.bind_verb}, but Thalweg's "
                f"extender binds no pods: kube-scheduler {effect}.",
                "Remove bindVerb, or write the configuration again: thalweg scheduler-config",
            )
        if _asks_by_mark(entry):
            yield from _marks(check, facts)
    for answer in scheduler.answers:
        yield _judge(check, answer, scheduler)


def _asks_by_mark(extender: ConfiguredExtender) -> bool:
    """Whether kube-scheduler asks about pods with our mark only."""
    return any(resource.name == MARK for resource in extender.managed_resources)


def _marks(check: str, facts: Facts) -> Iterator[CheckResult]:
    """Whether governed pods have the mark without which kube-scheduler does not ask about them."""
    if isinstance(facts.new_pod_rules, NotRead):
        yield CheckResult(check, Verdict.SKIP, facts.new_pod_rules.problem)
        return
    marks = facts.new_pod_rules is not None and any(rule.marked for rule in facts.new_pod_rules.order)
    if steered_policies(facts) and not marks:
        yield CheckResult(
            check,
            Verdict.FAIL,
            f"kube-scheduler asks about pods with the mark {MARK} only, and no pod gets it: governed pods are placed "
            "without a plan.",
            "thalweg run --ask-for Governed (extender.askFor of the chart), or thalweg scheduler-config --ask-for All",
        )
    bare = [
        pod
        for pod in steered_pods(facts)
        if pod.waiting and not any(MARK in each.resources.limits for each in pod.spec.containers)
    ]
    if bare:
        yield CheckResult(
            check,
            Verdict.WARN,
            f"Governed pods wait without the mark {MARK}: {len(bare)}, such as {bare[0].key}. kube-scheduler places "
            "them without a plan.",
            "Create them again. A pod gets the mark when it is created, and only while the operator marks pods.",
        )


def _no_config(check: str, facts: Facts) -> CheckResult:
    if isinstance(facts.scheduler, NotRead):
        return CheckResult(check, Verdict.SKIP, facts.scheduler.problem, _GIVE_FILE)
    steered = steered_policies(facts)
    if steered:
        said = (
            f"FlowSchedulingPolicy {steered[0].name} needs the extender; kube-scheduler's configuration is not known."
        )
        return CheckResult(check, Verdict.SKIP, said, _GIVE_FILE)
    return CheckResult(check, Verdict.SKIP, "No policy has delivery Extender.")


def _judge(check: str, answer: ProbeAnswer, scheduler: SchedulerFacts) -> CheckResult:
    url, tls = answer.extender.url_prefix, answer.extender.tls_config
    match answer.outcome:
        case ProbeOutcome.UNREACHABLE:
            # A stored configuration has the address of a Service, which machines outside of the cluster do not reach.
            return CheckResult(
                check,
                Verdict.FAIL if scheduler.chosen else Verdict.WARN,
                f"{url} does not answer this machine: {answer.text}.",
                "Run this where kube-scheduler runs. If it fails there: kubectl get endpointslices -A",
            )
        case ProbeOutcome.UNTRUSTED:
            return CheckResult(
                check,
                Verdict.FAIL,
                f"kube-scheduler does not trust the certificate of {url}: {answer.text}.",
                "Put the CA that signed --extender-cert into the configuration: thalweg scheduler-config --ca-file",
            )
        case ProbeOutcome.CLIENT_REFUSED:
            return CheckResult(
                check,
                Verdict.FAIL,
                f"{url} does not accept kube-scheduler's client certificate: {answer.text}.",
                "Give kube-scheduler a certificate of the CA of thalweg run --extender-client-ca.",
            )
        case ProbeOutcome.NO_CERTIFICATE:
            return CheckResult(
                check,
                Verdict.SKIP,
                f"The certificates for {url} cannot be used here: {answer.text}.",
                "Run this where kube-scheduler runs.",
            )
        case ProbeOutcome.ANSWERED:
            pass
    if answer.status == 503:
        stays_out = "no governed pod" if _asks_by_mark(answer.extender) else "no pod"
        effect = "kube-scheduler ignores it" if answer.extender.ignorable else f"kube-scheduler schedules {stays_out}"
        return CheckResult(
            check,
            Verdict.FAIL,
            f"{url} answers 503: it is a standby, or not in sync yet. Meanwhile {effect}. It says: {answer.text}",
            "kube-scheduler must reach the leader: kubectl get lease -A; kubectl get endpointslices -A",
        )
    if answer.status != 200:
        said = f"{url} answers {answer.status}, so it is not Thalweg's extender: {answer.text}"
        return CheckResult(check, Verdict.FAIL, said, "Check urlPrefix in kube-scheduler's configuration.")
    if url.startswith("https:") and (tls is None or tls.insecure or not (tls.ca_data or tls.ca_file)):
        said = f"{url} answers, but kube-scheduler does not verify its certificate: tlsConfig has no CA."
        return CheckResult(check, Verdict.WARN, said, "thalweg scheduler-config --ca-file")
    return CheckResult(check, Verdict.OK, f"{url} answers kube-scheduler.")


def certificates(facts: Facts) -> Iterator[CheckResult]:
    """Whether the certificates that kube-scheduler shows to the extender are valid for long enough."""
    check = "certificates"
    for certificate in facts.client_certificates:
        left = certificate.until - facts.server_time
        day = f"{certificate.until:%Y-%m-%d %H:%M} UTC"
        said = f"{certificate.source}: kube-scheduler's client certificate"
        if left <= timedelta():
            said += f" ended at {day}, so the extender refuses kube-scheduler."
            yield CheckResult(check, Verdict.FAIL, said, _RENEW)
        elif left < min(_SOON, (certificate.until - certificate.since) / 3):
            yield CheckResult(check, Verdict.WARN, f"{said} ends soon, at {day}.", _RENEW)
        else:
            yield CheckResult(check, Verdict.OK, f"{said} ends at {day}.")
    if not facts.client_certificates:
        yield CheckResult(check, Verdict.SKIP, "No client certificate of kube-scheduler can be read here.")


def node_sample(facts: Facts) -> Iterator[CheckResult]:
    """Whether the profile of steered pods looks for as many nodes as its policies need, and no more."""
    check, scheduler, nodes = "node-sample", facts.scheduler, facts.node_count
    if not isinstance(scheduler, SchedulerFacts):
        yield _no_config(check, facts)
        return
    if isinstance(nodes, NotRead):
        yield CheckResult(check, Verdict.SKIP, nodes.problem)
        return
    steered = steered_policies(facts)
    names = dict.fromkeys(name for each in steered for name in each.selects.scheduler_names) or {STEERED_NAME: None}
    for name in names:
        profile = scheduler.config.profile(name)
        if profile is None:
            said = f"{scheduler.source}: no profile is named {name}."
            yield CheckResult(check, Verdict.FAIL if steered else Verdict.WARN, said, "thalweg scheduler-config")
            continue
        sample = scheduler.config.node_sample(profile, nodes)
        prefers = [
            policy.name
            for policy in steered
            if policy.steering is Steering.PREFER and name in policy.selects.scheduler_names
        ]
        said = f"An attempt at a pod of profile {name} looks for {sample:,} of {nodes:,} nodes"
        if prefers and sample < nodes:
            said += f"; FlowSchedulingPolicy {prefers[0]} has steering Prefer, which compares all nodes."
            yield CheckResult(check, Verdict.WARN, said, f"Set percentageOfNodesToScore: 100 in profile {name}.")
        elif (
            not prefers
            and sample > min(nodes, FEWEST_NODES)
            and name != "default-scheduler"
            and profile.percentage_of_nodes_to_score != 1
        ):
            said += f", though {FEWEST_NODES} are enough: attempts before the plan cost more than needed."
            yield CheckResult(check, Verdict.WARN, said, f"Set percentageOfNodesToScore: 1 in profile {name}.")
        else:
            yield CheckResult(check, Verdict.OK, f"{said}.")


def gang_scheduling(facts: Facts) -> Iterator[CheckResult]:
    """Whether kube-scheduler schedules gangs itself: it should where it binds them by our plans, and not elsewhere."""
    check, features, versions = "gang-scheduling", facts.scheduler_features, facts.pod_group_versions
    if isinstance(features, NotRead):
        yield CheckResult(check, Verdict.SKIP, features.problem)
    elif features is not None:
        yield _judge_gang_gates(check, facts, [name for name in _GANG_GATES if features.get(name)])
    elif isinstance(versions, NotRead):
        yield CheckResult(check, Verdict.SKIP, versions.problem)
    elif versions:
        yield CheckResult(
            check,
            Verdict.SKIP,
            f"The API server serves PodGroups (scheduling.k8s.io/{versions[0]}), so kube-scheduler may schedule gangs "
            "itself. Its feature gates are not known.",
            "thalweg doctor --scheduler-metrics https://HOST:10259/metrics",
        )
    else:
        yield CheckResult(
            check, Verdict.OK, "The API server serves no PodGroups, so kube-scheduler cannot schedule gangs (inferred)."
        )


def _judge_gang_gates(check: str, facts: Facts, enabled: list[str]) -> CheckResult:
    steered = steered_policies(facts)
    if enabled:
        said = f"kube-scheduler has the feature gate {' and '.join(enabled)}: it schedules gangs of PodGroups itself"
        if steered:
            return CheckResult(check, Verdict.OK, f"{said}, and Thalweg tells it where.")
        return CheckResult(
            check, Verdict.WARN, f"{said}.", "Let one scheduler handle each gang: docs/reference/gangs.md"
        )
    said = f"kube-scheduler has no feature gate {' or '.join(_GANG_GATES)}"
    ungated = [policy.name for policy in steered if policy.gangs.waiting is WaitingMode.AUTO]
    if ungated and facts.pod_group_versions and not isinstance(facts.pod_group_versions, NotRead):
        return CheckResult(
            check,
            Verdict.WARN,
            f"{said}, so it tries each pod of a PodGroup by itself. FlowSchedulingPolicy {ungated[0]} gives these pods "
            "no gate.",
            "Turn GenericWorkload on in kube-scheduler, in Kubernetes 1.36 GangScheduling too; or set "
            "spec.gangs.waiting: Gate",
        )
    return CheckResult(check, Verdict.OK, f"{said}.")
