"""What the manifests of rights/ grant, as they are written."""

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "rights").glob("*.yaml"))


def manifests(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_nothing_more_than_is_used(path: Path) -> None:
    """No wildcard, no secrets, no right to grant rights; pods are never created, deleted or replaced.

    Of ConfigMaps one alone, which comes with the rights: the account cannot make any.
    """
    for each in manifests(path):
        for rule in each.get("rules", []):
            words = [word for values in rule.values() for word in values]
            assert "*" not in "".join(words)
            assert set(words).isdisjoint({"secrets", "escalate", "impersonate", "deletecollection"})
            if "configmaps" in rule.get("resources", []):
                assert (rule["resourceNames"], rule["verbs"]) == (["thalweg-usage"], ["get", "patch"])
                assert rule["resources"] == ["configmaps"]
            if "pods" in rule.get("resources", []):
                assert set(rule["verbs"]) <= {"get", "list", "watch", "patch"}
            if "admissionregistration.k8s.io" in rule.get("apiGroups", []):
                assert rule["verbs"] == ["get"]


def test_who_observes_may_only_read() -> None:
    """The file grants list and watch, and no Role: the Lease is that of lease.yaml."""
    objects = manifests(ROOT / "rights/observe.yaml")
    assert {verb for each in objects for rule in each.get("rules", []) for verb in rule["verbs"]} == {"list", "watch"}
    assert {each["kind"] for each in objects} == {"ClusterRole", "ClusterRoleBinding"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_role_is_bound_to_the_account_beside_it(path: Path) -> None:
    """So that a file that is left out takes its feature away and nothing else."""
    roles = {each["metadata"]["name"] for each in manifests(path) if each["kind"] in ("Role", "ClusterRole")}
    bindings = [each for each in manifests(path) if each["kind"].endswith("RoleBinding")]
    # Kubernetes' own role is bound with the base.
    assert {each["roleRef"]["name"] for each in bindings} - {"system:discovery"} == roles
    for each in bindings:
        assert each["subjects"] == [{"kind": "ServiceAccount", "name": "thalweg", "namespace": "thalweg-system"}]


def test_the_docs_list_each_file() -> None:
    """With what is missing without it."""
    page = (
        (ROOT / "docs/how-to/run-the-operator.md").read_text().partition("## Grant the rights")[2].partition("\n## ")[0]
    )
    listed = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `")}
    assert listed == {path.name for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_rule_has_a_reason(path: Path) -> None:
    """A comment above it, which the reference page shows."""
    lines = path.read_text().splitlines()
    rules = [at for at, line in enumerate(lines) if line.startswith("  - apiGroups:")]
    for at in rules:
        assert lines[at - 1].startswith("  # "), f"{path.name}:{at + 1}: a comment above the rule is missing"
    assert len(rules) == sum(len(each.get("rules", [])) for each in manifests(path))


def test_the_docs_quote_the_confinement() -> None:
    """Each message of the admission policy is in the reference, and no other."""
    (policy,) = (each for each in manifests(ROOT / "rights/confinement.yaml") if "validations" in each["spec"])
    messages = {each["message"] for each in policy["spec"]["validations"]}
    page = (ROOT / "docs/reference/rights.md").read_text()
    assert {line.split("`")[1] for line in page.splitlines() if line.startswith("| `Thalweg")} == messages
