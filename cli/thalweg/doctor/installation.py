"""Checks of what is installed: versions, the CRD and rights. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from flowcore.api.policies import VERSION
from flowcore.model.kubernetes_version import KNOWN, KubernetesVersion
from thalweg.doctor.access import MAY_BE_OFF, OF_EXTENDER, REQUIRED, user_of, wanted_rights
from thalweg.doctor.facts import Facts, NotRead
from thalweg.doctor.findings import CheckResult, Verdict
from thalweg.doctor.governed import steered_policies
from thalweg.doctor.observing import observes, rights_of_observer

#: The oldest API server that Thalweg works with: ValidatingAdmissionPolicy v1.
OLDEST: Final = (1, 30)
_APPLY_CRD: Final = "kubectl apply --server-side -f crds/, or helm upgrade"


def api_server(facts: Facts) -> Iterator[CheckResult]:
    """Whether the API server's version is one that the tests run on, and else whose rules hold."""
    check, shown, version = "api-server", facts.server_version, KubernetesVersion(facts.server_version)
    tested = f"{', '.join(f'1.{minor}' for minor in KNOWN[:-1])} and 1.{KNOWN[-1]}"
    rules = f"Thalweg follows the rules of 1.{version.rules}"
    if version.is_known:
        said = f"The API server has version {shown}, which this Thalweg is tested on (it is tested on {tested})."
        yield CheckResult(check, Verdict.OK, said)
    elif version.minor is None:
        said = f'The API server reports the version "{shown}", which is not one of {tested}: {rules}.'
        yield CheckResult(check, Verdict.WARN, said)
    elif version.minor < OLDEST[1]:
        said = f"The API server has version {shown}; Thalweg needs {OLDEST[0]}.{OLDEST[1]} or newer."
        yield CheckResult(check, Verdict.FAIL, said, "Upgrade the cluster.")
    else:
        is_newer = version.minor > version.rules
        said = f"The API server has version {shown}, which this Thalweg is not tested on, but on {tested}: {rules}."
        yield CheckResult(check, Verdict.WARN, said, "Use a newer Thalweg." if is_newer else "Upgrade the cluster.")


def operator_version(facts: Facts) -> Iterator[CheckResult]:
    """Whether Thalweg's pods have the version of this program."""
    check, pods = "versions", facts.operator_pods
    if isinstance(pods, NotRead):
        yield CheckResult(check, Verdict.SKIP, pods.problem)
        return
    versions = {pod.key: pod.metadata.labels.get("app.kubernetes.io/version", "") for pod in pods}
    others = {key: version for key, version in versions.items() if version and version != facts.cli_version}
    if others:
        key, version = next(iter(sorted(others.items())))
        yield CheckResult(
            check,
            Verdict.WARN,
            f"{len(others)} of {len(versions)} pods of Thalweg have another version than this command "
            f"({facts.cli_version}), such as pod {key} ({version}).",
            "Use the same version of both: helm upgrade, or install the matching command.",
        )
    elif any(versions.values()):
        yield CheckResult(check, Verdict.OK, f"Thalweg's pods and this command have version {facts.cli_version}.")
    else:
        where = facts.service_account.namespace
        said = f"No running pod of {where} has the label app.kubernetes.io/name=thalweg and a version."
        yield CheckResult(check, Verdict.SKIP, said)


def second_scheduler(facts: Facts) -> Iterator[CheckResult]:
    """Whether the kube-scheduler that the chart started fits the API server.

    Source: Kubernetes' version skew policy: not newer than the API server, and at most one minor version older.
    """
    check, pods = "second-scheduler", facts.second_scheduler_pods
    if isinstance(pods, NotRead):
        yield CheckResult(check, Verdict.SKIP, pods.problem)
        return
    server = re.match(r"v?(\d+)\.(\d+)", facts.server_version)
    images = {image.image: pod.key for pod in pods for image in pod.spec.containers}
    known = [(image, match) for image in sorted(images) if (match := re.search(r":v?(\d+)\.(\d+)[^:/@]*(@|$)", image))]
    if server is None or not known:
        yield CheckResult(check, Verdict.SKIP, "No second kube-scheduler of the chart runs." if not pods
                      else "The version of the second kube-scheduler cannot be told from its image.")  # fmt: skip
        return
    for image, match in known:
        older = int(server[2]) - int(match[2])
        said = f"Pod {images[image]} runs {image}; the API server has version {facts.server_version}"
        if int(match[1]) == int(server[1]) and 0 <= older <= 1:
            yield CheckResult(check, Verdict.OK, f"{said}.")
        else:
            said += ": kube-scheduler may not be newer, and at most one minor version older."
            yield CheckResult(check, Verdict.FAIL, said, "helm upgrade, or set secondScheduler.image.tag")


def crd(facts: Facts) -> Iterator[CheckResult]:
    """Whether the CRDs are installed and are those of this version."""
    if isinstance(facts.crds, NotRead):
        yield CheckResult("crd", Verdict.SKIP, facts.crds.problem)
        return
    for expected, installed in zip(facts.expected_crds, facts.crds, strict=True):
        yield _crd(expected, installed)


def _crd(of_version: Mapping[str, Any], installed: Mapping[str, Any] | None) -> CheckResult:
    check, name = "crd", of_version["metadata"]["name"]
    if installed is None:
        return CheckResult(check, Verdict.FAIL, f"The CRD {name} is not installed.", _APPLY_CRD)
    version = next(
        (version_spec for version_spec in installed["spec"]["versions"] if version_spec["name"] == VERSION), None
    )
    if version is None or not version.get("served"):
        return CheckResult(check, Verdict.FAIL, f"The CRD {name} does not serve version {VERSION}.", _APPLY_CRD)
    conditions = {each["type"]: each for each in installed.get("status", {}).get("conditions", ())}
    established = conditions.get("Established", {})
    if established.get("status") != "True":
        said = established.get("message") or "the API server has not established it"
        return CheckResult(
            check, Verdict.FAIL, f"The CRD {name} is not served: {said}.", f"kubectl describe crd {name}"
        )
    (expected,) = (each for each in of_version["spec"]["versions"] if each["name"] == VERSION)
    return _schema(check, name, expected["schema"]["openAPIV3Schema"], version.get("schema", {}).get("openAPIV3Schema"))


def _schema(
    check: str, name: str, expected_schema: Mapping[str, Any], installed_schema: Mapping[str, Any] | None
) -> CheckResult:
    if expected_schema == installed_schema:
        return CheckResult(check, Verdict.OK, f"The CRD {name} is that of this version.")
    expected, installed = set(_fields(expected_schema)), set(_fields(installed_schema or {}))
    lacking, unknown = sorted(expected - installed), sorted(installed - expected)
    if lacking and not unknown:
        said = f"The CRD {name} is older than this command: it lacks {lacking[0]}."
        return CheckResult(check, Verdict.FAIL, said, _APPLY_CRD)
    if unknown and not lacking:
        said = f"The CRD {name} is newer than this command: it has {unknown[0]}."
        return CheckResult(check, Verdict.WARN, said, "Use the newer version of this command.")
    if lacking:
        said = f"The CRD {name} differs from that of this version: it lacks {lacking[0]} and has {unknown[0]}."
    else:
        said = f"The CRD {name} has the fields of this version, but other limits, rules or texts."
    return CheckResult(check, Verdict.FAIL if lacking else Verdict.WARN, said, _APPLY_CRD)


def _fields(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Paths of all fields of a schema."""
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}".removeprefix(".")
        yield here
        yield from _fields(field, here)
        yield from _fields(field.get("items", {}), f"{here}[]")


def rights(facts: Facts) -> Iterator[CheckResult]:
    """Whether the operator's account has the rights of each file in rights/."""
    if observes(facts):
        yield from rights_of_observer(facts)
        return
    check, denied = "rights", facts.denied
    if isinstance(denied, NotRead):
        yield CheckResult(check, Verdict.SKIP, denied.problem)
        return
    files: dict[str, list[str]] = defaultdict(list)
    for right in denied:
        if right.file != "observe":
            files[right.file].append(str(right))
    wanted = Counter(right.file for right in wanted_rights(facts.service_account, facts.service_account))
    for file in (*MAY_BE_OFF, *(() if steered_policies(facts) else OF_EXTENDER)):
        if len(files.get(file, ())) == wanted[file]:
            files.pop(file, None)
    for file, lacking in files.items():
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        required = file in REQUIRED
        yield CheckResult(
            check,
            Verdict.FAIL if required else Verdict.WARN,
            f"{user_of(facts.service_account)} may not {lacking[0]}{more} (rights/{file}.yaml).",
            f"kubectl apply -f rights/{file}.yaml" + ("" if required else ", unless you do not want this feature"),
        )
    if not files:
        yield CheckResult(check, Verdict.OK, f"{user_of(facts.service_account)} has the rights of rights/.")
