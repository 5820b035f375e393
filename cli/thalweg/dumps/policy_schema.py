"""Validation of Thalweg's own objects by the CRD's schema, and its defaults, as in the API server.

Unknown fields are refused, as under strict field validation, kubectl's default. The CRD's CEL rules are not evaluated
here: ``flowcore.api.policies.parse_policy`` has the same rules.
Source: apiextensions-apiserver pkg/apiserver/schema (defaulting, pruning, validation).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from flowcore.api.policies import GROUP, VERSION
from flowcore.model.errors import PolicyError
from thalweg.crds import custom_resource_definitions

if TYPE_CHECKING:
    from jsonschema import Draft7Validator
    from jsonschema.exceptions import ValidationError

Schema = dict[str, Any]

#: Fields of metadata that every Kubernetes object may have.
_METADATA = (
    "annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "generateName",
    "generation", "labels", "managedFields", "name", "namespace", "ownerReferences", "resourceVersion", "selfLink",
    "uid",
)  # fmt: skip
#: A DNS subdomain, RFC 1123.
_PART = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = {"type": "string", "maxLength": 253, "pattern": rf"^{_PART}(\.{_PART})*$"}
#: Characters of a message.
_MAX_MESSAGE = 300


def checked_spec(manifest: dict[str, Any]) -> dict[str, Any]:
    """The validated spec of a policy or queue with the schema's defaults.

    Args:
        manifest: the whole object. Its status is ignored, as in the API server.

    Raises:
        PolicyError: the API server would refuse the object; the message names the field.
    """
    kind = str(manifest["kind"])
    try:
        complete = _with_defaults({key: value for key, value in manifest.items() if key != "status"}, _schema(kind))
        error = min(_validator(kind).iter_errors(complete), key=lambda error: _path(error.absolute_path), default=None)
    except RecursionError as error:
        raise PolicyError("", "nested too deeply") from error
    if error is not None:
        raise PolicyError(*_field_and_problem(error))
    spec: dict[str, Any] = complete["spec"]
    return spec


@cache
def _schema(kind: str) -> Schema:
    crd = next(each for each in custom_resource_definitions() if each["spec"]["names"]["kind"] == kind)
    version = next(each for each in crd["spec"]["versions"] if each["name"] == VERSION)
    root = dict(version["schema"]["openAPIV3Schema"])
    served = {
        "apiVersion": {"type": "string", "enum": [f"{GROUP}/{VERSION}"]},
        "metadata": {"type": "object", "properties": {**{key: {} for key in _METADATA}, "name": _NAME}},
    }
    root["properties"] = {**root["properties"], **served}
    root["required"] = ["apiVersion", *root["required"]]
    return _without_unknown_fields(root)


@cache
def _validator(kind: str) -> Draft7Validator:
    # Most dumps have neither policy nor queue. The import takes longer than their plan where rfc3987-syntax is
    # installed: jsonschema reads that grammar then.
    from jsonschema import Draft7Validator  # noqa: PLC0415

    return Draft7Validator(_schema(kind))


def _without_unknown_fields(schema: Schema) -> Schema:
    """The structural schema as JSON Schema that forbids unknown fields."""
    closed = dict(schema)
    if "properties" in schema:
        closed["properties"] = {key: _without_unknown_fields(each) for key, each in schema["properties"].items()}
        closed["additionalProperties"] = False
    if "items" in schema:
        closed["items"] = _without_unknown_fields(schema["items"])
    if schema.get("x-kubernetes-list-type") == "set":
        closed["uniqueItems"] = True
    if "pattern" in schema:  # Go's $ is the end of the text; Python's is also the place before a final line break
        closed["pattern"] = schema["pattern"].replace("$", r"\Z")
    return closed


def _with_defaults(value: Any, schema: Schema) -> Any:
    """The value without nulls (a null means absent in Kubernetes) and with defaults for absent fields."""
    if isinstance(value, dict):
        known = schema.get("properties", {})
        others = schema.get("additionalProperties") or {}
        given = {key: each for key, each in value.items() if each is not None or not (key in known or others)}
        defaults = {key: each["default"] for key, each in known.items() if "default" in each}
        return {key: _with_defaults(each, known.get(key, others)) for key, each in (defaults | given).items()}
    if isinstance(value, list):
        return [_with_defaults(each, schema.get("items", {})) for each in value]
    if isinstance(value, float) and value.is_integer() and schema.get("type") == "integer":
        return int(value)
    return value


def _field_and_problem(error: ValidationError) -> tuple[str, str]:
    steps = list(error.absolute_path)
    if error.validator in ("additionalProperties", "required"):
        given, wanted = cast("Schema", error.instance), cast("Schema", error.schema)
        unknown, missing = given.keys() - wanted["properties"].keys(), set(wanted.get("required", ())) - given.keys()
        if error.validator == "required":
            return _path([*steps, min(missing)]), "required value"
        return _path([*steps, min(unknown, key=str)]), "unknown field"
    message = error.message.replace(r"\\Z", "$")
    if len(message) > _MAX_MESSAGE:
        message = f"{message[:_MAX_MESSAGE]}..."
    return _path(steps), message


def _path(steps: Iterable[str | int]) -> str:
    shown = (
        f"[{step}]" if isinstance(step, int) else f".{step if step.isprintable() else ascii(step)}" for step in steps
    )
    return "".join(shown).removeprefix(".")
