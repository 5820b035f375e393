"""Whether the admission policy that confines the operator's account is in force, and is that of this version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from thalweg.crds import rights_by_file
from thalweg.doctor.access import user_of
from thalweg.doctor.facts import Facts, NotRead
from thalweg.doctor.findings import CheckResult, Verdict
from thalweg.doctor.observing import observes
from thalweg.option_types import NamespacedName

_KIND = "ValidatingAdmissionPolicy"
_APPLY = "kubectl apply -f rights/confinement.yaml, or helm upgrade with rights.confinement=true"


def expected_confinement(account: NamespacedName, release: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The policy of rights/confinement.yaml and its binding, with the chart's names for an account and a release."""
    policy, binding = rights_by_file()["confinement"]
    name = confinement_name(release)
    names = {
        'thalweg-system:thalweg"': f'{account}"'.replace("/", ":"),
        'thalweg-system:thalweg-uninstall"': f'{account.namespace}:{release}-uninstall"',
    }
    policy = {**policy, "metadata": {"name": name}, "spec": _renamed(policy["spec"], names)}
    return policy, {**binding, "metadata": {"name": name}, "spec": {**binding["spec"], "policyName": name}}


def confinement_name(release: str) -> str:
    """Name of the policy and of its binding."""
    return f"{release}-confinement"


def confinement(facts: Facts) -> Iterator[CheckResult]:
    """Whether the account is confined as this version wants it."""
    check, installed = "confinement", facts.confinement
    if observes(facts):
        yield CheckResult(check, Verdict.SKIP, "The operator only observes, so its account has nothing to be confined.")
        return
    if isinstance(installed, NotRead):
        yield CheckResult(check, Verdict.SKIP, installed.problem)
        return
    user = user_of(facts.service_account)
    problems = [
        f"there is no {kind} {wanted['metadata']['name']}"
        if actual is None
        else f"the {kind} {wanted['metadata']['name']} differs from that of this version"
        for kind, wanted, actual in zip((_KIND, f"{_KIND}Binding"), facts.expected_confinement, installed, strict=True)
        if actual is None or _without_defaults(actual["spec"]) != _without_defaults(wanted["spec"])
    ]
    if problems:
        said = f"A stolen token of {user} may do more than Thalweg needs: {' and '.join(problems)}."
        yield CheckResult(check, Verdict.WARN, said, _APPLY)
    else:
        yield CheckResult(check, Verdict.OK, f"{user} is confined to what Thalweg needs.")


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """A value in which all texts have other names."""
    if isinstance(value, dict):
        return {key: _renamed(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [_renamed(each, names) for each in value]
    if isinstance(value, str):
        for before, after in names.items():
            if before in value:
                value = value.replace(before, after)
    return value


def _without_defaults(value: Any) -> Any:
    """A spec without what the API server adds to it."""
    if isinstance(value, list):
        return [_without_defaults(each) for each in value]
    if isinstance(value, dict):
        defaults = (("matchPolicy", "Equivalent"), ("scope", "*"))
        return {k: _without_defaults(v) for k, v in value.items() if v != {} and (k, v) not in defaults}
    return value
