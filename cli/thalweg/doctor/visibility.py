"""Checks of what people look at: pods that wait for long, and the view. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from flowcore.model.policies import GATE
from thalweg.doctor.facts import Facts, NotRead
from thalweg.doctor.findings import CheckResult, Verdict
from thalweg.doctor.governed import parsed
from thalweg.scheduler_users.users import schedulers_of
from thalweg.wire_objects import Pod

#: As the alert ThalwegPodsWaitLong.
LONG: Final = timedelta(hours=1)


def waits(facts: Facts) -> Iterator[CheckResult]:
    """Whether pods that name a scheduler of Thalweg wait for long."""
    check = "waiting"
    if isinstance(facts.pods, NotRead):
        yield CheckResult(check, Verdict.SKIP, facts.pods.problem)
        return
    names = schedulers_of(() if isinstance(facts.policies, NotRead) else parsed(facts.policies))
    waiting = [
        (_age(pod, facts.server_time), pod)
        for pod in facts.pods
        if pod.waiting and pod.spec.scheduler_name in names and not _held_by_others(pod)
    ]
    long = [(age, pod) for age, pod in waiting if age >= LONG]
    if not long:
        said = "No pod waits" if not waiting else f"{_pods(len(waiting))}, none for longer than an hour"
        yield CheckResult(check, Verdict.OK, f"{said}.")
        return
    age, longest = max(long, key=lambda entry: (entry[0], entry[1].key))
    reason = next((each.message for each in longest.status.conditions if each.type == "PodScheduled"), "")
    yield CheckResult(
        check,
        Verdict.WARN,
        f"{_pods(len(long))} for longer than an hour. Pod {longest.key} waits longest, for {_hours(age)}"
        f"{f': {reason}' if reason else '.'}",
        f"thalweg why {longest.metadata.name} -n {longest.metadata.namespace}",
    )


def view(facts: Facts) -> Iterator[CheckResult]:
    """Whether the operator's view answers."""
    check, answer = "view", facts.view
    if isinstance(answer, NotRead):
        yield CheckResult(check, Verdict.SKIP, answer.problem)
    elif answer is None:
        where = facts.service_account.namespace
        yield CheckResult(
            check,
            Verdict.SKIP,
            f"No Service of namespace {where} leads to the view, so there is no page.",
            "Set view.enabled=true in the chart, or name the view of another operator with --server URL",
        )
    elif answer.problem:
        yield CheckResult(
            check,
            Verdict.WARN,
            f"{answer.where} does not lead to the view: {answer.problem}",
            "Does the operator run, and with --view-listen? kubectl get lease -A",
        )
    else:
        yield CheckResult(check, Verdict.OK, f"{answer.where} leads to the view, which answers.")


def _held_by_others(pod: Pod) -> bool:
    return any(gate.name != GATE for gate in pod.spec.scheduling_gates)


def _age(pod: Pod, now: datetime) -> timedelta:
    created = pod.metadata.creation_timestamp
    return timedelta() if created is None else now - created


def _pods(count: int) -> str:
    return "1 pod waits" if count == 1 else f"{count:,} pods wait"


def _hours(age: timedelta) -> str:
    hours = age // timedelta(hours=1)
    return f"{hours} h" if hours < 48 else f"{hours // 24} days"
