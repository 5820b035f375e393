"""Dumps that are broken: whatever is wrong, one sentence says where, and nothing ends with a traceback."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli import Manifest, node, pod, thalweg
from support.profiles import examples
from thalweg.dumps.files import DumpError
from thalweg.dumps.reader import read_dump

from flowcore.questions.scenario import plan_scenario


def _kind(group: str, kind: str, name: str, **fields: Any) -> Manifest:
    return {"apiVersion": group, "kind": kind, "metadata": {"name": name}, **fields}


_OWN = "scheduling.thalweg/v1alpha1"
_DEVICES = "resource.k8s.io/v1"
_SELECTOR = {"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "b", "operator": "In", "values": ["c"]}]}
_EXACTLY = {"deviceClassName": "gpu", "count": 1, "selectors": [{"cel": {"expression": "true"}}]}


def _objects() -> list[Manifest]:
    """One object of each usual kind, with lists, maps, numbers and texts at which something may be wrong."""
    ways = {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": _SELECTOR}]}},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}],
    }  # fmt: skip
    waiting = pod("waiting", resourceClaims=[{"name": "r", "resourceClaimName": "c"}], **ways)
    waiting["metadata"] |= {
        "labels": {"app": "a"},
        "annotations": {"scheduling.thalweg/gang": "g", "scheduling.thalweg/gang-min-member": "1"},
    }
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "g", "attributes": {"model": {"string": "x"}}, "capacity": {"memory": {"value": "1Gi"}}}]
    spec = {"delivery": "Observe", "selects": {"schedulerNames": ["thalweg"], "podSelector": {}}}
    return [
        node("n"), waiting, pod("running", nodeName="n"),
        _kind("v1", "Namespace", "default"),
        _kind(_OWN, "FlowSchedulingPolicy", "p", spec=spec),
        _kind(_OWN, "FlowQueue", "q", spec={"limit": {"cpu": "1"}, "selects": {"namespaceSelector": _SELECTOR}}),
        _kind("scheduling.k8s.io/v1", "PriorityClass", "high", value=5),
        _kind("policy/v1", "PodDisruptionBudget", "b", spec={"minAvailable": 1, "selector": _SELECTOR}),
        _kind(_DEVICES, "DeviceClass", "gpu", spec={"selectors": [{"cel": {"expression": "true"}}]}),
        _kind(_DEVICES, "ResourceSlice", "s", spec={"driver": "d", "nodeName": "n", "pool": pool, "devices": devices}),
        _kind(_DEVICES, "ResourceClaim", "c", spec={"devices": {"requests": [{"name": "r", "exactly": _EXACTLY}]}}),
        _kind("v1", "PersistentVolumeClaim", "v", spec={"accessModes": ["ReadWriteOnce"], "volumeName": "x"}),
        _kind("apps/v1", "Deployment", "d", spec={"replicas": 1}),
    ]  # fmt: skip


def _deep(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


_ODD = [
    None, "", "a", "\0", "é\u202e", 0, -1, 2**63, 10**30, 1.5, 1e300, True, [], {}, [None], {"a": None}, [[]], {"": ""},
    [{"kind": None}], "9" * 50, "-5Gi", "Infinity", "List", "v1", _deep(60), _deep(400),
]  # fmt: skip


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, each in inner for place in _places(each, (*path, key)))]


def _broken(draw: st.DrawFn, objects: list[Any]) -> list[Any]:
    """Some values are replaced, left out, or told twice."""
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from([each for each in _places(objects) if each]))
        outer: Any = objects
        for key in path[:-1]:
            outer = outer[key]
        match draw(st.sampled_from(["replace", "replace", "replace", "drop", "again"])):
            case "drop":
                del outer[path[-1]]
            case "again" if isinstance(outer, list):
                outer.append(copy.deepcopy(outer[path[-1]]))
            case _:
                outer[path[-1]] = copy.deepcopy(draw(st.sampled_from(_ODD)))
        if not objects:
            break
    return objects


@st.composite
def dumps(draw: st.DrawFn) -> str:
    """A List of objects, or Lists in a List, of which some is broken."""
    objects: Any = _broken(draw, copy.deepcopy(_objects()))
    kind = draw(st.sampled_from(["List", "List", "List", "PodList", "NodeList"]))
    document: Any = {"apiVersion": "v1", "kind": kind, "items": objects}
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2, 30]))):
        document = {"apiVersion": "v1", "kind": "List", "items": [document]}
    return json.dumps(document)


def _placed(dump: Path) -> list[str]:
    done = thalweg("plan", "-f", dump, "-o", "json")
    assert done.returncode == 0, done.stderr
    return [each["pod"] for each in json.loads(done.stdout)["placed"]]


def test_what_is_broken_was_whole(tmp_path: Path) -> None:
    """Else every drawn dump would be refused for one reason."""
    (tmp_path / "whole").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": _objects()}))
    assert _placed(tmp_path / "whole") == ["default/waiting"]


@settings(max_examples=examples(300), deadline=None)
@given(dumps())
def test_a_broken_dump_is_planned_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """By a sentence with the file, as far as it can be read."""
    path = tmp_path_factory.getbasetemp() / "broken.json"
    path.write_text(text)
    try:
        scenario = read_dump((str(path),))
    except DumpError as error:
        assert str(path) in str(error)  # noqa: PT017 - either is right
        return
    plan_scenario(scenario, scenario.moment)


_NODE, _THING = '{"kind": "Node", "metadata": {"name": "n"}}', '{"apiVersion": "v1", "metadata": {"name": "x"}}'


def _aliases(of: str, brackets: tuple[str, str] = ("[", "]")) -> str:
    tens = (f"a{at}: &a{at} {brackets[0]}{', '.join([f'*a{at - 1}'] * 10)}{brackets[1]}\n" for at in range(1, 9))
    return "".join((f"a0: &a0 {of}\n", *tens))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f'{{"kind": "List", "items": [{_NODE}, {_THING}]}}', "List: items[1] (x): kind: required value"),
        (f'{{"kind": "List", "items": [{_NODE}, {{}}]}}', "List: items[1]: kind: required value"),
        (f'{{"kind": "List", "items": [{_NODE}, {{"kind": ""}}]}}', "List: items[1]: kind: required value"),
        (f'{{"kind": "List", "items": [{_NODE}, {{"kind": null}}]}}', "List: items[1]: kind: required value"),
        (f'{{"kind": "List", "items": [{_NODE}, {{"kind": 5}}]}}', "List: items[1]: kind: expected a string, got a"),
        (f'{{"kind": "List", "items": [{_NODE}, null]}}', "List: items[1]: expected an object, got nothing"),
        (f'{{"kind": "List", "items": [{{"kind": "List", "items": [{_THING}]}}]}}',
         "List: items[0]: List: items[0] (x): kind: required value"),
        ('{"kind": "List", "items": [' * 30 + "]}" * 30, "a list in so many others is no dump"),
        (_aliases("[0]"), "its aliases stand for more than 1,000,000 values"),
        (_aliases("{a: 1}", ("{<<: [", "]}")), "its aliases stand for more than 1,000,000 values"),
        ("kind: Node\nmetadata: &a {name: n, labels: *a}\n", "a value contains itself by an alias"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(text: str, named: str, tmp_path: Path) -> None:
    """Exit code 2, and one line with the item."""
    (tmp_path / "dump").write_text(text)
    done = thalweg("plan", "-f", tmp_path / "dump")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: {tmp_path / 'dump'}: ")
    assert named in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_lists_in_a_list_are_read(tmp_path: Path) -> None:
    """As those make them who join two answers of kubectl."""
    lists = [{"kind": "NodeList", "apiVersion": "v1", "items": [{"metadata": {"name": "n"}, **_room()}]}]
    lists.append({"kind": "List", "apiVersion": "v1", "items": [pod("p")]})
    (tmp_path / "dump").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": lists}))
    assert _placed(tmp_path / "dump") == ["default/p"]


def _room() -> Manifest:
    return {key: value for key, value in node("n").items() if key in ("spec", "status")}


def test_an_expression_that_is_null_is_its_claims_problem(tmp_path: Path) -> None:
    """No API server gives such an object. Other pods are planned."""
    objects = [each for each in _objects() if each["kind"] in ("Node", "DeviceClass", "ResourceSlice")]
    selectors = [{"cel": {"expression": None}}]
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu", "selectors": selectors}}]
    claim = _kind(_DEVICES, "ResourceClaim", "c", spec={"devices": {"requests": requests}})
    claiming = pod("claiming", resourceClaims=[{"name": "r", "resourceClaimName": "c"}])
    items = [*objects, claim, claiming, pod("other")]
    (tmp_path / "dump").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    done = thalweg("plan", "-f", tmp_path / "dump", "-o", "json")
    plan = json.loads(done.stdout)
    assert [each["pod"] for each in plan["placed"]] == ["default/other"]
    assert "selector #0: CEL compile error" in plan["waiting"][0]["reason"]
