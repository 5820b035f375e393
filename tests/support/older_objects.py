"""Policies and queues of an older version, as the API server has stored them."""

from typing import Any

import yaml
from support.repository import ROOT
from thalweg.crds import custom_resource_definitions

from flowcore.api.ignored_fields import IGNORED_FIELDS, ignored_in

OLDER_OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all((ROOT / "tests/support/older_objects.yaml").read_text()))


def told_of(name: str) -> list[str]:
    """What is said of fields that left, of one of the objects."""
    (found,) = (each for each in OLDER_OBJECTS if each["metadata"]["name"] == name)
    return ignored_in(found["kind"], found["spec"])


def kept_fields() -> list[str]:
    """The fields that left and that the schemas have for one release more."""
    schemas = {
        each["spec"]["names"]["kind"]: each["spec"]["versions"][0]["schema"] for each in custom_resource_definitions()
    }
    return [each.shown for each in IGNORED_FIELDS if _has(schemas[each.kind]["openAPIV3Schema"], each.path)]


def _has(schema: dict[str, Any], path: tuple[str, ...]) -> bool:
    for key in path:
        schema = schema.get("properties", {}).get(key, {})
    return bool(schema)
