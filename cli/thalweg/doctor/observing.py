"""An operator that only observes: ``thalweg run --observe``, the chart's mode Observe. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from flowcore.api.policies import parse_policy
from flowcore.model.cost_policy import KnownModels
from flowcore.model.errors import PolicyError
from flowcore.model.policies import BUILT_IN
from thalweg.doctor.access import MAY_BE_OFF, OF_OBSERVERS, Right, user_of
from thalweg.doctor.facts import Facts, NotRead, PolicyObject
from thalweg.doctor.findings import CheckResult, Verdict
from thalweg.wire_objects import Pod

_OPTION: Final = "--observe"


def observes(facts: Facts) -> bool:
    """Whether the operator only observes.

    All of its pods say so. Where none runs in the cluster, it can do nothing else with an account that may only read.
    """
    pods = () if isinstance(facts.operator_pods, NotRead) else facts.operator_pods
    if pods:
        return all(map(_is_observer, pods))
    if isinstance(facts.denied, NotRead) or isinstance(facts.granted, NotRead):
        return False
    reads = {right.file for right in facts.granted} - {right.file for right in facts.denied}
    return "observe" in reads and not any(right.file == "base" and right.writes for right in facts.granted)


def _is_observer(pod: Pod) -> bool:
    return any(_OPTION in (*container.command, *container.args) for container in pod.spec.containers)


def rights_of_observer(facts: Facts) -> Iterator[CheckResult]:
    """Whether the account may read what plans need, and no more."""
    check, user = "rights", user_of(facts.service_account)
    if isinstance(facts.denied, NotRead):
        yield CheckResult(check, Verdict.SKIP, facts.denied.problem)
        return
    granted = () if isinstance(facts.granted, NotRead) else facts.granted
    off = set(MAY_BE_OFF) - {right.file for right in granted}
    lacking = [right for right in facts.denied if right.file in OF_OBSERVERS and right.file not in off]
    for file in OF_OBSERVERS:
        if of_file := [right for right in lacking if right.file == file]:
            said = f"{user} may not {of_file[0]}{_more(of_file)} (rights/{file}.yaml)."
            yield CheckResult(check, Verdict.FAIL, said, f"kubectl apply -f rights/{file}.yaml")
    excess = [right for right in granted if right.writes and right.file not in OF_OBSERVERS]
    if excess:
        which = f"{excess[0]}{_more(excess)} (rights/{excess[0].file}.yaml)"
        said = f"The operator only observes, and {user} may also {which}."
        advice = "Take these roles away: an operator that observes needs rights/observe.yaml and rights/lease.yaml"
        yield CheckResult(check, Verdict.WARN, said, advice)
    if not excess and not lacking:
        said = f"{user} may read what plans need, and write nothing but its Lease: the operator only observes."
        yield CheckResult(check, Verdict.OK, said)


def observed_policies(objects: tuple[PolicyObject, ...]) -> Iterator[CheckResult]:
    """What an operator that writes no status does not say of policies."""
    check = "policies"
    for stored in objects:
        name, cost = stored.metadata.name, stored.spec.get("cost")
        model = cost.get("model") if isinstance(cost, dict) else None
        try:
            policy = parse_policy(name, stored.spec, KnownModels((model or BUILT_IN.cost.model,)))
        except PolicyError as error:
            said = f"FlowSchedulingPolicy {name} is not accepted: {error}"
            yield CheckResult(check, Verdict.FAIL, said, f"kubectl edit fsp {name}")
            continue
        if policy.delivery.acts:
            said = (
                f"FlowSchedulingPolicy {name} has delivery {policy.delivery}, and the operator only observes: it shows"
            )
            yield CheckResult(check, Verdict.WARN, f"{said} the policy's plans, and carries none out.")


def _more(rights: list[Right]) -> str:
    return f" and {len(rights) - 1} more" if len(rights) > 1 else ""
