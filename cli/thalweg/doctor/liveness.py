"""Checks of the running operator: its lease, clocks, and pods that no operator plans. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from thalweg_operator.policies.gate_manifests import GATE_NAME, wants_gate

from flowcore.model.policies import GATE, SCHEDULER_NAME, STEERED_NAME
from thalweg.doctor.facts import Facts, Lease, NotRead, SchedulerFacts
from thalweg.doctor.findings import CheckResult, Verdict
from thalweg.doctor.governed import parsed
from thalweg.doctor.observing import observes
from thalweg.wire_objects import Pod

#: How far clocks may differ. The Date header has whole seconds.
CLOCKS_DIFFER: Final = timedelta(seconds=5)
#: The admission policy of rights/gates.yaml gates pods so long after a heartbeat.
HEARTBEAT: Final = timedelta(seconds=30)
#: A scheduler looks at a new pod much sooner.
_UNSEEN: Final = timedelta(seconds=60)


def live_leases(facts: Facts) -> tuple[Lease, ...]:
    """The leases that an operator holds and renews."""
    if isinstance(facts.leases, NotRead):
        return ()
    return tuple(each for each in facts.leases if _is_live(each, facts))


def _is_live(lease: Lease, facts: Facts) -> bool:
    if not lease.spec.holder_identity or lease.spec.renew_time is None:
        return False
    if facts.still_renewed is not None:  # the holder's clock may be wrong: what was seen counts
        return lease.name in facts.still_renewed
    return facts.server_time - lease.spec.renew_time <= timedelta(seconds=lease.spec.lease_duration_seconds or 15)


def looks_wrong(lease: Lease, server_time: datetime) -> bool:
    """Whether the times of a held lease say that it ended, or lie in the future: to be watched for a renewal."""
    if not lease.spec.holder_identity or lease.spec.renew_time is None:
        return False
    age = server_time - lease.spec.renew_time
    return age > timedelta(seconds=lease.spec.lease_duration_seconds or 15) or age < -CLOCKS_DIFFER


def lease(facts: Facts) -> Iterator[CheckResult]:
    """Whether exactly one operator holds and renews a lease."""
    check = "lease"
    if isinstance(facts.leases, NotRead):
        yield CheckResult(check, Verdict.SKIP, facts.leases.problem)
        return
    live = live_leases(facts)
    if len(live) > 1 and not observes(facts):
        names = " and ".join(f"{each.name} ({each.spec.holder_identity})" for each in live)
        yield CheckResult(
            check,
            Verdict.FAIL,
            f"{len(live)} operators work on this cluster: somebody renews the leases {names}.",
            "Stop all but one, or give all of them the same --lease.",
        )
    elif live:
        for held in live:
            said = f"{held.spec.holder_identity} holds the lease {held.name} and renews it."
            yield CheckResult(check, Verdict.OK, said)
    else:
        ended = [each for each in facts.leases if each.spec.holder_identity and each.spec.renew_time]
        if ended:
            last = max(ended, key=lambda lease: lease.spec.renew_time or facts.server_time)
            ago = _seconds(facts.server_time - (last.spec.renew_time or facts.server_time))
            said = f"{last.spec.holder_identity} holds the lease {last.name}, but last renewed it {ago} ago"
        else:
            said = f"nobody holds {f'the lease {facts.lease}' if facts.lease else 'a lease of Thalweg'}"
        yield CheckResult(check, Verdict.FAIL, f"No operator runs: {said}.", _start(facts))


def clock(facts: Facts) -> Iterator[CheckResult]:
    """Whether this machine's clock, the API server's and the operator's agree."""
    check = "clock"
    apart = facts.local_time - facts.server_time
    wrong = False
    if abs(apart) > CLOCKS_DIFFER:
        wrong = True
        way = "ahead of" if apart > timedelta() else "behind"
        yield CheckResult(
            check,
            Verdict.WARN,
            f"This machine's clock is {_seconds(abs(apart))} {way} the API server's.",
            "Synchronize both clocks by NTP.",
        )
    for lease in live_leases(facts):
        renewed = lease.spec.renew_time or facts.server_time
        # A lease is renewed every 2 s; the times are those of two machines.
        ahead = renewed - facts.server_time
        behind = -ahead if facts.still_renewed is not None else timedelta()
        if max(ahead, behind) > CLOCKS_DIFFER:
            wrong = True
            if ahead > behind:
                text, effect = f"{_seconds(ahead)} ahead of", "pods are gated for longer after it ends"
            else:
                text, effect = f"about {_seconds(behind)} behind", "new pods may not be gated"
            yield CheckResult(
                check,
                Verdict.FAIL if max(ahead, behind) > HEARTBEAT else Verdict.WARN,
                f"The clock of the operator that holds {lease.name} is {text} the API server's: {effect}.",
                "Synchronize the clocks of the nodes by NTP.",
            )
    if not wrong:
        yield CheckResult(check, Verdict.OK, "The clocks agree.")


def gates(facts: Facts) -> Iterator[CheckResult]:
    """Whether an operator runs that opens closed scheduling gates."""
    check = "gates"
    if isinstance(facts.pods, NotRead):
        yield CheckResult(check, Verdict.SKIP, facts.pods.problem)
        return
    if isinstance(facts.policies, NotRead):
        yield CheckResult(check, Verdict.SKIP, facts.policies.problem)
        return
    gated = [pod for pod in facts.pods if pod.waiting and any(each.name == GATE for each in pod.spec.scheduling_gates)]
    if isinstance(facts.new_pod_rules, NotRead):
        yield CheckResult(check, Verdict.SKIP, facts.new_pod_rules.problem)
        return
    beat = facts.new_pod_rules.heartbeat if facts.new_pod_rules is not None else None
    fresh = beat is not None and facts.server_time - beat <= HEARTBEAT
    # Who observes gates no pod.
    wanting = [each.name for each in parsed(facts.policies) if wants_gate(each) and not observes(facts)]
    if gated and not (fresh and live_leases(facts)):
        since = f"the last heartbeat was {_seconds(facts.server_time - beat)} ago" if beat else "no heartbeat"
        yield CheckResult(
            check,
            Verdict.FAIL,
            f"{_pods(gated)} behind Thalweg's scheduling gate, and nobody opens it: {since}.",
            "Start the operator, or open all gates with: thalweg uninstall",
        )
    elif wanting and isinstance(facts.missing_gate_objects, NotRead):
        yield CheckResult(check, Verdict.SKIP, facts.missing_gate_objects.problem)
    elif wanting and not isinstance(facts.missing_gate_objects, NotRead) and facts.missing_gate_objects:
        missing = " and ".join(facts.missing_gate_objects)
        yield CheckResult(
            check,
            Verdict.WARN,
            f"FlowSchedulingPolicy {wanting[0]} wants gates, but there is no {missing} {GATE_NAME}: new pods wait in "
            "kube-scheduler's queue instead.",
            "kubectl apply -f rights/gates.yaml (Kubernetes 1.36)",
        )
    elif wanting and not fresh:
        yield CheckResult(
            check,
            Verdict.WARN,
            f"FlowSchedulingPolicy {wanting[0]} wants gates, but there is no fresh heartbeat: new pods are not gated.",
            "Wait 30 s; then look at the operator's log.",
        )
    else:
        yield CheckResult(check, Verdict.OK, f"{_pods(gated)} behind gates that the operator opens." if gated
                      else "No pod waits behind a gate.")  # fmt: skip


def served(facts: Facts) -> Iterator[CheckResult]:
    """Whether a scheduler runs for the waiting pods that name one of ours."""
    check = "served"
    if isinstance(facts.pods, NotRead):
        yield CheckResult(check, Verdict.SKIP, facts.pods.problem)
        return
    policies = () if isinstance(facts.policies, NotRead) else parsed(facts.policies)
    own_names, steered = {SCHEDULER_NAME}, {STEERED_NAME}
    for policy in policies:
        if not policy.selects.nothing:
            names = policy.selects.scheduler_names
            if policy.delivery.through_kube_scheduler:
                steered |= set(names)
            elif policy.delivery.acts:
                own_names |= set(names)
    waiting = [each for each in facts.pods if each.waiting]
    bound_by_us = [each for each in waiting if each.spec.scheduler_name in own_names]
    problems = 0
    # Of several that live, one may act.
    if bound_by_us and observes(facts) and len(live_leases(facts)) < 2:
        problems += 1
        name = bound_by_us[0].spec.scheduler_name
        said = f"{_pods(bound_by_us)}: the operator only observes, and binds no pod of the scheduler {name}."
        yield CheckResult(check, Verdict.FAIL, said, "Install mode Binder, or give the pods another schedulerName.")
    elif bound_by_us and not isinstance(facts.leases, NotRead) and not live_leases(facts):
        problems += 1
        name = bound_by_us[0].spec.scheduler_name
        yield CheckResult(
            check,
            Verdict.FAIL,
            f"{_pods(bound_by_us)}: no operator serves the scheduler {name}.",
            f"{_start(facts)}. If Thalweg is removed: docs/how-to/remove-thalweg.md, step 0",
        )
    own = () if isinstance(facts.operator_pods, NotRead) else facts.operator_pods
    for pod in (pod for pod in own if pod.spec.scheduler_name in own_names):
        problems += 1
        name = pod.spec.scheduler_name
        said = f"Pod {pod.key} is Thalweg's own and names the scheduler {name}, which needs a running Thalweg."
        yield CheckResult(check, Verdict.FAIL, said, "Give Thalweg's pods the schedulerName default-scheduler.")
    by_profile = [each for each in waiting if each.spec.scheduler_name in steered]
    if isinstance(facts.scheduler, SchedulerFacts):
        config = facts.scheduler.config
        lost = [each for each in by_profile if config.profile(each.spec.scheduler_name) is None]
    else:
        lost = [each for each in by_profile if _unseen(each, facts.server_time)]
    if lost:
        problems += 1
        name = lost[0].spec.scheduler_name
        yield CheckResult(
            check,
            Verdict.FAIL if isinstance(facts.scheduler, SchedulerFacts) else Verdict.WARN,
            f"{_pods(lost)}: no kube-scheduler serves the scheduler {name}.",
            f"Give kube-scheduler a profile {name}: thalweg scheduler-config",
        )
    if not problems:
        yield CheckResult(check, Verdict.OK, "Every waiting pod that names a scheduler of Thalweg is served.")


def _start(facts: Facts) -> str:
    namespace = facts.service_account.namespace
    log = f"kubectl -n {namespace} logs -l app.kubernetes.io/name=thalweg --tail=100"
    return f"Start the operator. If it runs, read its log: {log}"


def _unseen(pod: Pod, now: datetime) -> bool:
    """Whether no scheduler has looked at an old pod."""
    created = pod.metadata.creation_timestamp
    old = created is not None and now - created > _UNSEEN
    return old and not pod.spec.scheduling_gates and all(each.type != "PodScheduled" for each in pod.status.conditions)


def _pods(pods: list[Pod]) -> str:
    return f"Pod {pods[0].key} waits" if len(pods) == 1 else f"{len(pods)} pods wait (such as {pods[0].key})"


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():,.0f} s"
