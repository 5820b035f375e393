"""Fields that left: stored objects stay valid, nothing reads the field, and the schema says what to write instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from thalweg.crds import custom_resource_definitions

from flowcore.api.ignored_fields import IGNORED_FIELDS, IgnoredField, ignored_in, without_ignored_fields
from flowcore.api.policies import parse_policy
from flowcore.costs import BUILT_IN_MODELS

#: A policy that has the parents of all fields that are ignored.
SPEC: dict[str, Any] = {
    "selects": {"podSelector": {}},
    "cost": {
        "dataLocality": {},
        "kinds": [{"name": "web", "pods": {}}],
        "interference": {"default": 300},
        "machines": {"label": "gen"},
    },
    "rescheduling": {},
}


def with_field(spec: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The spec with a field at a path below it."""
    key, *rest = path
    return {**spec, key: with_field(spec.get(key, {}), tuple(rest), value) if rest else value}


def fields_of(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """All fields of objects in objects, each with its schema."""
    for name, field in schema.get("properties", {}).items():
        yield (*path, name), field
        yield from fields_of(field, (*path, name))


@pytest.mark.parametrize("definition", custom_resource_definitions(), ids=lambda crd: crd["spec"]["names"]["kind"])
def test_the_schema_says_which_fields_are_ignored(definition: dict[str, Any]) -> None:
    """Each of them with the release and what to write, and without a default that would be written into objects."""
    (version,) = definition["spec"]["versions"]
    fields = dict(fields_of(version["schema"]["openAPIV3Schema"]))
    said = {path: field for path, field in fields.items() if str(field.get("description")).startswith("Ignored since")}
    ignored = {each.path: each for each in IGNORED_FIELDS if each.kind == definition["spec"]["names"]["kind"]}
    assert said.keys() == ignored.keys() & fields.keys()
    for path, field in said.items():
        assert field["description"] == f"Ignored since {ignored[path].since}: {ignored[path].instead}."
        assert "default" not in field


@pytest.mark.parametrize("field", IGNORED_FIELDS, ids=lambda field: field.shown)
def test_a_field_that_is_ignored_changes_nothing(field: IgnoredField) -> None:
    """Whatever it says; a default, which the API server once wrote into every object, is not even told."""
    plain = parse_policy("p", SPEC, BUILT_IN_MODELS)
    for value, told in ((7, True), ({"a": "b"}, True), (field.default, False), (None, False)):
        spec = with_field(SPEC, field.path[1:], value)
        assert parse_policy("p", spec, BUILT_IN_MODELS) == plain
        assert [each.split(" is ignored since ")[0] for each in ignored_in(field.kind, spec)] == [field.shown] * told
        manifest = {"kind": field.kind, "spec": spec}
        assert without_ignored_fields(manifest)[0] == {"kind": field.kind, "spec": SPEC}
        assert manifest["spec"] is spec == with_field(SPEC, field.path[1:], value)
