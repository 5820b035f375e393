"""The reference pages agree with the code: generated parts, names, limits, values of metrics' labels."""

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import beside_kube_scheduler
import pytest
from support.faults import FAULTS

from flowcore.api import pod_limits
from flowcore.model import gang_spec

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
#: Prefixes of names that users see in objects.
PREFIXES = r"(?:[\w-]+\.)*(?:thalweg|scheduling\.x-k8s\.io|scheduling\.volcano\.sh|koordinator\.sh|sigs\.k8s\.io)"
API_VERSION = "scheduling.thalweg/v1alpha1"
PACKAGES = ("flowcore", "operator", "extender", "view", "cli")


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATE = _generator()


@pytest.mark.parametrize(
    ("page", "name", "make"), GENERATE.PARTS, ids=[f"{page}-{name}" for page, name, _ in GENERATE.PARTS]
)
def test_generated_parts_are_up_to_date(page: str, name: str, make: object) -> None:
    """Else run: python docs/generate.py."""
    assert callable(make)
    text = (ROOT / "docs" / page).read_text()
    assert GENERATE.with_part(text, name, make()) == text, "run: python docs/generate.py"


def test_every_field_is_described() -> None:
    """`kubectl explain` has words for each field of both kinds, also for one that only holds others."""
    for plural in (GENERATE.POLICY, GENERATE.QUEUE):
        schema = GENERATE.schema(plural)
        assert schema["description"]
        described = {path: bool(field.get("description")) for path, field, _ in GENERATE.fields(schema, plural)}
        # The API server itself describes the metadata.
        assert [path for path, words in described.items() if not words] == [f"{plural}.metadata"]


def strings() -> set[str]:
    """All strings of the packages."""
    found = set()
    for folder in PACKAGES:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(node.value)
    return found


def test_annotations_labels_and_gates() -> None:
    """Every prefixed name of the code is in names.md, and every prefixed name there is in the code or a manifest."""
    page = (REFERENCE / "names.md").read_text()
    # Koordinator's names are put together of two strings.
    known = strings() | {value for value in vars(gang_spec).values() if isinstance(value, str)}
    names = {text for text in known if re.fullmatch(rf"{PREFIXES}/[a-z][\w./-]*", text)} - {API_VERSION}
    assert len(names) > 15
    for name in names:
        assert f"`{name}`" in page, name
    manifests = "".join(path.read_text() for folder in ("crds", "rights") for path in (ROOT / folder).glob("*.yaml"))
    for name in re.findall(rf"`({PREFIXES}/[\w./-]+)`", page):
        assert name in names or name in manifests, name


def test_manifests() -> None:
    """Every object of rights/ is named in names.md."""
    page = (REFERENCE / "names.md").read_text()
    for path in sorted((ROOT / "rights").glob("*.yaml")):
        for name in re.findall(r"^  name: ([\w.-]+)$", path.read_text(), re.MULTILINE):
            assert name in page, f"{path.name}: {name}"


def test_limits() -> None:
    """limits.md has each limit of a pod by its constant's value."""
    page = (REFERENCE / "limits.md").read_text()
    rows = dict(re.findall(r"^\| `(MAX_\w+)` \| [^|]+ \| ([\d,]+) \|", page, re.MULTILINE))
    limits = {name: value for name, value in vars(pod_limits).items() if name.startswith("MAX_")}
    assert {name: int(value.replace(",", "")) for name, value in rows.items()} == limits


def test_every_default_of_kube_scheduler_has_a_row() -> None:
    """What its list has and the table does not name is an error; so is what the table names and no list has."""
    listed = beside_kube_scheduler.stored()
    assert set(listed) == {"1.36", "1.37"}
    newest = listed["1.37"]
    for part, more in (
        ("plugins", [*newest["plugins"], {"name": "NewPlugin", "weight": 1}]),
        ("arguments", {**newest["arguments"], "NodeAffinity": {"newField": True}}),
        ("configuration", {**newest["configuration"], "newField": 1}),
        ("gates", {**newest["gates"], "NewGate": {"enabled": False, "stage": "ALPHA"}}),
    ):
        with pytest.raises(KeyError, match=r"NewPlugin|newField|NewGate"):
            beside_kube_scheduler.things({**listed, "1.37": {**newest, part: more}})
    gone = {version: {**of, "plugins": of["plugins"][1:]} for version, of in listed.items()}
    with pytest.raises(ValueError, match=listed["1.36"]["plugins"][0]["name"]):
        beside_kube_scheduler.things(gone)


def test_what_differs_from_kube_scheduler_is_set_by_something_that_exists() -> None:
    """Each field of a policy and each option that the table names."""
    fields = {path for path, _, _ in GENERATE.fields(GENERATE.schema(GENERATE.POLICY)["properties"]["spec"], "spec")}
    options = (REFERENCE / "command-line.md").read_text().partition("### thalweg run\n")[2].partition("\n### ")[0]
    rows = [
        each.row for found in beside_kube_scheduler.things(beside_kube_scheduler.stored()).values() for each in found
    ]
    named = {name for row in rows for name in row.field.split(", ") if name}
    assert len(named) > 10
    for name in named:
        assert name in fields or f"`{name}`" in options, name


def test_faults() -> None:
    """failures.md has a row for each fault that is tested, with its limit in seconds."""
    page = (REFERENCE / "failures.md").read_text().partition("## Faults that are tested")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| (\d+) \|", page, re.MULTILINE)
    assert rows == [(fault.name, f"{fault.within:g}") for fault in FAULTS]


def test_label_values_of_metrics() -> None:
    """A constant that the code gives to a metric's label is in metrics.md."""
    page = (REFERENCE / "metrics.md").read_text()
    found = set()
    for folder in ("operator", "extender"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "labels":
                    found |= {each.value for each in node.args if isinstance(each, ast.Constant)}
    assert found, "nothing was found"
    for value in found:
        assert f"`{value}`" in page, value


def test_every_key_of_an_answer_is_explained() -> None:
    """Of commands and of the view's API: for who does not read the code, so no meaning is the name of a class."""
    pages = {name: (REFERENCE / name).read_text() for name in ("json-output.md", "view-api.md")}
    unexplained = [
        f"{name}: {key}"
        for name, page in pages.items()
        for key, meaning in re.findall(r"^\| `([^`]+)` \| [^|]* \| (.*) \|$", page, re.MULTILINE)
        if not re.sub(r"Default: .*$", "", meaning).strip() or meaning.startswith("See `")
    ]
    assert not unexplained
