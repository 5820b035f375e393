"""Checks of what is installed: versions, the CRD and rights. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from flowcore.api.policies import VERSION
from thalweg.doctor.access import MAY_BE_OFF, OF_EXTENDER, REQUIRED, user_of, wanted_rights
from thalweg.doctor.facts import Facts, NotRead
from thalweg.doctor.findings import CheckResult, Verdict
from thalweg.doctor.governed import steered_policies

#: The oldest API server that Thalweg works with: ValidatingAdmissionPolicy v1.
OLDEST: Final = (1, 30)
#: The newest API server that the tests run on.
TESTED: Final = (1, 36)
_APPLY_CRD: Final = "kubectl apply --server-side -f crds/, or helm upgrade"


def api_server(facts: Facts) -> Iterator[CheckResult]:
    """Whether the API server's version is in the supported range."""
    check, match = "api-server", re.match(r"v?(\d+)\.(\d+)", facts.server_version)
    if match is None:
        yield CheckResult(check, Verdict.WARN, f'The API server reports the version "{facts.server_version}".')
        return
    version = (int(match[1]), int(match[2]))
    shown, oldest, tested = facts.server_version, _dotted(OLDEST), _dotted(TESTED)
    if version < OLDEST:
        yield CheckResult(
            check,
            Verdict.FAIL,
            f"The API server has version {shown}; Thalweg needs {oldest} or newer.",
            "Upgrade the cluster.",
        )
    elif version > TESTED:
        yield CheckResult(
            check,
            Verdict.WARN,
            f"The API server has version {shown}; this Thalweg is tested up to {tested}.",
            "Use a newer Thalweg.",
        )
    else:
        yield CheckResult(check, Verdict.OK, f"The API server has version {shown}.")


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


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
    check, denied = "rights", facts.denied
    if isinstance(denied, NotRead):
        yield CheckResult(check, Verdict.SKIP, denied.problem)
        return
    files: dict[str, list[str]] = defaultdict(list)
    for right in denied:
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
