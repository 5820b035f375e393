"""Writes the generated parts of the reference pages: `python docs/generate.py`.

A generated part stands between two marks in a page. The truth is the CRD, the command line's own help, the metrics'
registry, the chart's values and alerts, the codes of reasons, the table of what makes a cached verdict stale, the
phases of a reservation, the comments of the roles, the types of the view's answers, and kube-scheduler's own list of
its defaults. tests/docs/test_reference.py fails when a page is behind.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import yaml
from beside_kube_scheduler import what_differs, whole_table
from json_answers import add_new_keys, json_answers
from prometheus_client import Counter, Info
from prometheus_client.metrics import MetricWrapperBase
from thalweg.main import main
from thalweg_operator.metrics import Metrics
from thalweg_operator.reservations.ledger.transitions import phases_table, transitions_table
from thalweg_operator.reservations.waiting_codes import ALL_CODES
from view_operations import operations

from flowcore.rules.verdicts.invalidation import INVALIDATES

DOCS = Path(__file__).parent
RIGHTS = DOCS.parent / "rights"
ALERTS = DOCS.parent / "charts" / "thalweg" / "files" / "alerts.yaml"
CRDS = DOCS.parent / "crds"
POLICY, QUEUE, NEW_POD_RULES = "flowschedulingpolicies", "flowqueues", "newpodrules"
VALUES = DOCS.parent / "charts" / "thalweg" / "values.yaml"
#: Keywords of the schema that limit a value, and what the page calls them.
_BOUNDS = {
    "minimum": "at least", "maximum": "at most", "minLength": "characters at least", "maxLength": "characters at most",
    "minItems": "entries at least", "maxItems": "entries at most", "maxProperties": "entries at most",
}  # fmt: skip

_EVERY_OBJECT = frozenset({".apiVersion", ".kind", ".metadata"})


def schema(plural: str) -> Mapping[str, Any]:
    """The schema of a kind."""
    crd = yaml.safe_load((CRDS / f"{plural}.scheduling.thalweg.yaml").read_text())
    (version,) = crd["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]


def fields(of: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """Path, schema and whether it is required, for each field below one; label selectors are one field."""
    for name, field in of.get("properties", {}).items():
        here = f"{path}.{name}"
        yield here, field, name in of.get("required", ())
        if "matchLabels" in field.get("properties", {}):
            continue
        items = field.get("items")
        if items is not None and "matchLabels" not in items.get("properties", {}):
            yield from fields(items, f"{here}[]")
        yield from fields(field, here)


def _type(field: Mapping[str, Any]) -> str:
    if "matchLabels" in field.get("properties", {}):
        return "label selector"
    if "additionalProperties" in field:
        return "amounts of resources"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if "type" not in field:
        return "see its description"
    if field["type"] == "array":
        return f"list of {_type(field['items'])}"
    return str(field.get("format", field["type"]) if field["type"] == "string" else field["type"])


def _bounds(field: Mapping[str, Any]) -> str:
    return ", ".join(f"{text} {field[key]:,}" for key, text in _BOUNDS.items() if key in field)


def fields_of(plural: str, part: str) -> Callable[[], str]:
    """The table of all fields below ``spec`` or ``status``; with "" all but what every object has."""

    def table() -> str:
        rows = ["| field | type | default | limits | meaning |", "|---|---|---|---|---|"]
        of = schema(plural)
        for path, field, required in fields(of["properties"][part], part) if part else fields(of, ""):
            if path in _EVERY_OBJECT:
                continue
            default = "required" if required else _default(field)
            text = " ".join(str(field.get("description", "")).split())
            rows.append(f"| `{path.removeprefix('.')}` | {_type(field)} | {default} | {_bounds(field)} | {text} |")
        return "\n".join(rows)

    return table


def _default(field: Mapping[str, Any]) -> str:
    value = field.get("default")
    if value is None or value == {}:
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def rules_of(plural: str) -> Callable[[], str]:
    """The messages of a schema's rules, in the order of the schema."""

    def found(of: Any) -> Iterator[str]:
        if isinstance(of, dict):
            for rule in of.get("x-kubernetes-validations", ()):
                yield rule["message"]
            for value in of.values():
                yield from found(value)

    return lambda: "\n".join(f"- `{message}`" for message in dict.fromkeys(found(schema(plural))))


def commands() -> str:
    """Every command with its arguments, options and examples, as its help says them."""
    parts = []
    for name, command in sorted(main.commands.items()):
        if command.hidden:  # an old name
            continue
        context = click.Context(command, info_name=f"thalweg {name}")
        prose, _, examples = inspect.cleandoc(command.help or "").partition("\b\nExamples:\n")
        rows = ["| option | default | meaning |", "|---|---|---|"]
        rows += [_option(each, context) for each in command.params if isinstance(each, click.Option)]
        usage = command.get_usage(context).removeprefix("Usage: ")
        parts.append(f"### thalweg {name}\n\n```sh\n{usage}\n```\n\n{_prose(prose)}")
        if len(rows) > 2:
            parts.append("\n".join(rows))
        if examples:
            parts.append("```sh\n" + "\n".join(line.strip() for line in examples.strip().splitlines()) + "\n```")
    return "\n\n".join(parts)


def _prose(text: str) -> str:
    """Paragraphs of a help text; those that click leaves as they are become code."""
    out = []
    for paragraph in text.strip().split("\n\n"):
        if paragraph.startswith("\b\n"):
            lines = paragraph.removeprefix("\b\n").splitlines()
            out.append("```sh\n" + "\n".join(line.removeprefix("  ") for line in lines) + "\n```")
        else:
            out.append(textwrap.fill(" ".join(paragraph.split()), 120))
    return "\n\n".join(out)


def _option(option: click.Option, context: click.Context) -> str:
    name = ", ".join(f"`{each}`" for each in option.opts)
    choices = option.type.choices if isinstance(option.type, click.Choice) else ()
    value = " or ".join(f"`{each}`" for each in choices) or ("" if option.is_flag else option.make_metavar(context))
    default = option.default
    if isinstance(option.show_default, str):  # the default in words
        default = option.show_default
    shown = default if option.show_default and not option.is_flag else ""
    text = (option.help or "").replace("|", "\\|")
    more = " May be given several times." if option.multiple and "several times" not in text else ""
    limits = option.type._describe_range() if isinstance(option.type, click.IntRange | click.FloatRange) else ""  # noqa: SLF001
    needed = "required" if option.required else f"`{shown}`" if shown not in ("", None) else ""
    return f"| {f'{name} {value}'.strip()} | {needed} | {text}{more}{f' ({limits})' if limits else ''} |"


#: What the exposition adds to the name of a metric.
_SUFFIXES: dict[type, str] = {Counter: "_total", Info: "_info"}


def metrics() -> str:
    """Every metric of the operator."""
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for metric in vars(Metrics()).values():
        if isinstance(metric, MetricWrapperBase):
            name = metric._name + _SUFFIXES.get(type(metric), "")  # noqa: SLF001
            labels = ", ".join(f"`{label}`" for label in metric._labelnames)  # noqa: SLF001
            rows.append(f"| `{name}` | {metric._type} | {labels} | {metric._documentation} |")  # noqa: SLF001
    return "\n".join(rows)


def invalidations() -> str:
    """The table of what makes a cached verdict stale."""
    rows = ["| event | filter | stale | why |", "|---|---|---|---|"]
    rows += [f"| {row.event.value} | {row.filter} | {row.scope.value} | {row.reason} |" for row in INVALIDATES]
    return "\n".join(rows)


def chart_values() -> str:
    """Every value of the chart with its default and the comment above it, or that of its group."""
    rows = ["| value | default | meaning |", "|---|---|---|"]
    path: list[str] = []
    comment: list[str] = []
    for line in VALUES.read_text().splitlines():
        words = line.strip()
        if words.startswith("#"):
            comment.append(words.removeprefix("#").strip())
        elif words:
            name, _, default = words.partition(":")
            path[(len(line) - len(words)) // 2 :] = [name]
            if default or comment:
                shown = f"`{default.strip()}`" if default else ""
                rows.append(f"| `{'.'.join(path)}` | {shown} | {' '.join(comment)} |")
            comment = []
    return "\n".join(rows)


def rights() -> str:
    """Every rule of the roles in rights/, with the comment above it as the reason."""
    rows = ["| file | API group | resources | verbs | why |", "|---|---|---|---|---|"]
    for path in sorted(RIGHTS.glob("*.yaml")):
        for document in path.read_text().split("\n---\n"):
            rules = yaml.safe_load(document).get("rules", ())
            for rule, reason in zip(rules, _reasons(document) if rules else (), strict=True):
                groups = ", ".join(f"`{group}`" if group else "core" for group in rule["apiGroups"])
                resources = ", ".join(f"`{each}`" for each in rule["resources"])
                if "resourceNames" in rule:
                    resources += " named " + ", ".join(f"`{name}`" for name in rule["resourceNames"])
                rows.append(f"| `{path.name}` | {groups} | {resources} | {', '.join(rule['verbs'])} | {reason} |")
    return "\n".join(rows)


def _reasons(role: str) -> Iterator[str]:
    """The comment above each rule."""
    comment: list[str] = []
    for line in role.partition("\nrules:\n")[2].splitlines():
        if line.startswith("  # "):
            comment.append(line.removeprefix("  # "))
        elif line.startswith("  - "):
            yield " ".join(comment)
            comment = []


def alerts() -> str:
    """Every alert of the chart."""
    rows = ["| alert | severity | after | meaning |", "|---|---|---|---|"]
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            name, summary = rule["alert"], rule["annotations"]["summary"]
            text = re.sub(r"{{ \$labels\.(\w+) }}", r"`<\1>`", summary)
            link = f"[{name}](../runbooks/{name}.md)"
            rows.append(f"| {link} | {rule['labels']['severity']} | {rule.get('for', 'at once')} | {text} |")
    return "\n".join(rows)


def reason_codes() -> str:
    """All codes of reasons."""
    return ", ".join(f"`{code}`" for code in sorted(ALL_CODES))


#: Each generated part: its page, its name in the marks, and what makes it.
PARTS: tuple[tuple[str, str, Callable[[], str]], ...] = (
    ("reference/policy-fields.md", "spec", fields_of(POLICY, "spec")),
    ("reference/policy-fields.md", "status", fields_of(POLICY, "status")),
    ("reference/policy-fields.md", "rules", rules_of(POLICY)),
    ("reference/queue-fields.md", "spec", fields_of(QUEUE, "spec")),
    ("reference/new-pod-rules-fields.md", "fields", fields_of(NEW_POD_RULES, "")),
    ("reference/queue-fields.md", "status", fields_of(QUEUE, "status")),
    ("reference/queue-fields.md", "rules", rules_of(QUEUE)),
    ("reference/command-line.md", "commands", commands),
    ("reference/metrics.md", "metrics", metrics),
    ("reference/chart-values.md", "values", chart_values),
    ("reference/reasons.md", "codes", reason_codes),
    ("how-to/watch-thalweg.md", "alerts", alerts),
    ("reference/cached-verdicts.md", "invalidations", invalidations),
    ("reference/reservations.md", "phases", phases_table),
    ("reference/reservations.md", "transitions", transitions_table),
    ("reference/rights.md", "rights", rights),
    ("reference/view-api.md", "operations", operations),
    ("reference/json-output.md", "answers", json_answers),
    ("reference/limits.md", "defaults", whole_table),
    ("how-to/come-from-kube-scheduler.md", "differences", what_differs),
)


def with_part(text: str, name: str, made: str) -> str:
    """A page's text with the generated part of that name."""
    begin, end = f"<!-- generated by docs/generate.py: {name} -->", "<!-- end -->"
    before, mark, rest = text.partition(begin)
    if not mark:
        message = f"the mark {begin} is missing"
        raise ValueError(message)
    return f"{before}{begin}\n{made}\n{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    for page, name, make in PARTS:
        path = DOCS / page
        path.write_text(with_part(path.read_text(), name, re.sub(r"[ ]+$", "", make(), flags=re.MULTILINE)))
    add_new_keys()
