"""The dashboard's file is what its script writes, and it and the alerts name metrics and labels that exist."""

import importlib.util
import json
import re
from types import ModuleType

import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from support.repository import ROOT
from thalweg_operator.metrics import Metrics

CHARTS = ROOT / "charts"
DASHBOARD = CHARTS / "thalweg" / "files" / "dashboard.json"
ALERTS = CHARTS / "thalweg" / "files" / "alerts.yaml"
#: Labels that Prometheus adds, and those of a histogram's buckets.
TARGET_LABELS = {"namespace", "job", "pod", "instance", "le"}


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dashboard", CHARTS / "dashboard.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())] + [
        rule["expr"] for rule in rules
    ]


def exported() -> dict[str, set[str]]:
    """Name of each sample that an operator can export -> its labels."""
    found: dict[str, set[str]] = {}
    for metric in vars(Metrics()).values():
        names = getattr(metric, "_labelnames", None)
        if names is None:
            continue
        for suffix in ("", "_total", "_info", "_bucket", "_sum", "_count"):
            found[metric._name + suffix] = set(names)
    for family in text_string_to_metric_families(generate_latest(Metrics().registry).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_the_file_is_up_to_date() -> None:
    """Else run: python charts/dashboard.py."""
    assert DASHBOARD.read_text() == _script().as_text()


def test_panels_are_complete() -> None:
    """Numbers are unique, no panel lies over another, and each has a query and a unit."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or (panel["targets"] and panel["fieldConfig"]["defaults"]["unit"])


def test_expressions_name_what_is_exported() -> None:
    """Each metric exists, and so does each label that an expression selects or groups by."""
    known = exported()
    for expression in expressions():
        names = set(re.findall(r"\b(?:thalweg|process)_\w+", re.sub(r'"[^"]*"', '""', expression)))
        assert names, expression
        assert names <= known.keys(), f"{expression}: {names - known.keys()}"
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression))
        for group in re.findall(r"\bby \(([^)]*)\)", expression):
            labels |= {label.strip() for label in group.split(",")}
        allowed = TARGET_LABELS.union(*(known[name] for name in names))
        assert labels <= allowed, f"{expression}: {labels - allowed}"


def test_every_metric_of_ours_is_on_the_dashboard() -> None:
    """A metric that nobody looks at would not be missed either."""
    shown = " ".join(expressions())
    for name in (metric._name for metric in vars(Metrics()).values() if hasattr(metric, "_labelnames")):
        assert re.search(rf"\b{name}", shown), name
