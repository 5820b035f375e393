"""Dumps of clusters: what ``plan`` takes for a policy is what the API server takes, and it serves what is dumped.

The API server validates fields strictly, as kubectl asks it to. Drawn mistakes in valid policies go to both; the API
server is asked for a dry run, so nothing is stored.
"""

import json
import random
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from support.cluster_scenario import POLICIES, policy
from thalweg.dumps.files import DumpError
from thalweg.dumps.policy_schema import checked_spec
from thalweg.dumps.reader import read_dump
from thalweg_controlplane import Api, ApiError, ControlPlane

pytestmark = pytest.mark.asyncio(loop_scope="module")

CASES = 600
WEB = {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}]}
FULL: dict[str, dict[str, Any]] = {
    "bound": {
        "precedence": 5,
        "selects": {"schedulerNames": ["thalweg", "mine"], "podSelector": WEB, "namespaceSelector": WEB},
        "delivery": "Binder",
        "cost": {"model": "BinPacking", "weights": {"leastRequested": 3, "balance": 0, "spread": 100}},
        "unscheduled": {"base": 0, "perPriority": 10, "perWaitingSecond": 5},
        "gangs": {"timeout": "1h30m", "onPartialBind": "Evict", "holdRoomAfter": "0s", "waiting": "Hold"},
        "duringExecution": {"rules": "Replace"},
        "preemption": {"mode": "Never", "after": "30s"},
        "rescheduling": {"mode": "Act", "minAge": "1h", "limits": {"perRound": 0, "perNode": 3}},
        "constraints": [
            {"name": "az", "conflict": {"pods": WEB, "topologyKey": "zone", "maxPerDomain": 2}},
            {"name": "xor", "exclusive": {"groups": [WEB, {}], "topologyKey": "zone", "maxPlaced": 5}},
            {"name": "pair", "together": {"pods": WEB, "topologyKey": "example.com/rack"}},
            {
                "name": "agent",
                "global": {"pods": WEB, "nodes": {"matchLabels": {"gpu": "yes"}}, "require": "AllOrNone"},
            },
        ],
    },
    "steered": {
        "selects": {"schedulerNames": ["thalweg-steered", "default-scheduler"], "podSelector": {}},
        "delivery": "Extender",
        "steering": "Prefer",
        "waiting": "Gate",
    },
    "empty": {},
}
#: Values that fit somewhere, nearly fit, or fit nowhere.
VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    100,
    101,
    64,
    1.0,
    1.5,
    1e3,
    10**9,
    -(10**9),
    10**9 + 1,
    10**12,
    10**12 + 1,
    2**31,
    2**53,
    2**63 - 1,
    "",
    "a",
    "1",
    "x" * 63,
    "x" * 64,
    "x" * 317,
    "x" * 318,
    "ü" * 63,
    "a b",
    "10m",
    "10m\n",
    "1m1h",
    "0s",
    "m",
    "thalweg",
    "thalweg-steered",
    "default-scheduler",
    "Binder",
    "Extender",
    "Observe",
    "Require",
    "Prefer",
    "Gate",
    "Hold",
    "In",
    "NotIn",
    "Exists",
    "DoesNotExist",
    "Gt",
    "AllOrNone",
    "Evict",
    "CPUMemory",
    "-",
    "a-",
    "Zone",
    [],
    {},
    [None],
    [""],
    ["a"],
    ["a", "a"],
    ["a"] * 17,
    [{}],
    [{}, {}],
    [WEB] * 17,
    {"a": None},
    {"a": "b"},
    {"a": 5},
    {"matchLabels": {"a": "b"}},
    {"matchLabels": None},
    {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
    {"pods": {}, "topologyKey": "zone"},
]
FIELDS = ["constraints", "waiting", "matchLabels", "maxPerDomain", "name", "values", "global", "model", "foo"]
#: What no schema says: the operator's own words, which it says in the condition Accepted.
OPERATORS = ("is not a label key", "is not a label value", "is not one of CPUMemory, ")


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything inside a JSON value."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for step, each in steps for found in [(*path, step), *places(each, (*path, step))]]


def mistaken(drawn: random.Random) -> dict[str, Any]:
    """A policy with one or two changes, each of which may be a mistake."""
    manifest = policy("drawn", **deepcopy(FULL[drawn.choice(["bound", "bound", "steered", "empty"])]))
    for _ in range(drawn.choice([1, 1, 2])):
        found = [path for path in places(manifest) if path[0] == "spec"]
        path = drawn.choice(found)
        parent: Any = manifest
        for step in path[:-1]:
            parent = parent[step]
        last = path[-1]
        change = drawn.choice(["value"] * 4 + ["drop"] * 3 + ["misspell", "add", "twice"])
        if change == "value":
            alike = [each for each in VALUES if type(each) is type(parent[last])]
            parent[last] = deepcopy(drawn.choice(alike if drawn.random() < 0.7 else VALUES))
        elif change == "drop":
            del parent[last]
        elif isinstance(parent, list):
            parent.append(deepcopy(parent[drawn.randrange(len(parent))] if change == "twice" else drawn.choice(VALUES)))
        elif change == "misspell":
            parent[last[:-1] or "x"] = parent.pop(last)
        elif change == "add":
            where = parent[last] if isinstance(parent[last], dict) else parent
            known = [
                "constraints",
                "waiting",
                "matchLabels",
                "maxPerDomain",
                "name",
                "values",
                "global",
                "model",
                "foo",
            ]
            where[drawn.choice(known)] = deepcopy(drawn.choice(VALUES))
        else:
            parent[last] = [parent[last], parent[last]]
        if "spec" not in manifest:
            return manifest
    return manifest


async def answer(api: Api, manifest: dict[str, Any]) -> dict[str, Any] | str:
    """The object as the API server would store it, or why it refuses."""
    try:
        found: dict[str, Any] = await api.request(
            "POST", POLICIES, manifest, params={"dryRun": "All", "fieldValidation": "Strict"}
        )
    except ApiError as error:
        if error.status not in (400, 422):
            raise
        return str(error)
    return found


def problem_of(manifest: dict[str, Any], folder: Path) -> str:
    """Why ``plan`` refuses the policy, "" where it takes it."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
    (folder / "dump.json").write_text(json.dumps({"kind": "List", "items": [node, manifest]}))
    try:
        read_dump((str(folder / "dump.json"),))
    except DumpError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("seed", range(3))
async def test_drawn_mistakes(plane: tuple[ControlPlane, Api], tmp_path: Path, seed: int) -> None:
    """Each policy is taken by both or refused by both, and what is taken has the same defaults."""
    drawn, taken = random.Random(seed), 0
    for _ in range(CASES // 3):
        manifest = mistaken(drawn)
        said, problem = await answer(plane[1], manifest), problem_of(manifest, tmp_path)
        if isinstance(said, str):
            assert problem, (manifest, said)
            continue
        taken += 1
        assert not problem or any(words in problem for words in OPERATORS), (manifest, problem)
        assert checked_spec(manifest) == said["spec"], manifest
    assert CASES // 30 < taken < CASES // 3 - CASES // 30, taken


@pytest.mark.parametrize("which", sorted(FULL))
async def test_what_is_stored_is_taken(plane: tuple[ControlPlane, Api], tmp_path: Path, which: str) -> None:
    """A policy as a list has it, with all that the API server adds, is the policy that was created."""
    api = plane[1]
    await api.create(policy("stored", **FULL[which]))
    try:
        listed = await api.get(POLICIES)
    finally:
        await api.delete(f"{POLICIES}/stored")
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
    for name, found in (("stored", listed), ("said", {"kind": "List", "items": [policy("stored", **FULL[which])]})):
        (tmp_path / name).write_text(json.dumps(found))
    (tmp_path / "nodes").write_text(json.dumps(node))
    stored, said = (read_dump((str(tmp_path / name), str(tmp_path / "nodes"))).policies for name in ("stored", "said"))
    assert stored == said
    assert list(stored) == ["stored"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"spec": {"deliveri": "Observe"}}, "spec.deliveri"),
        ({"spec": {"cost": {"weights": {"foo": 3}}}}, "spec.cost.weights.foo"),
        ({"metadata": {"name": "p", "lables": {}}}, "metadata.lables"),
        ({"metadata": {"name": "Not_A_Name"}}, "metadata.name"),
        ({"specc": {}}, "specc"),
        ({"apiVersion": "scheduling.thalweg/v1"}, "apiVersion"),
    ],
)
async def test_both_name_the_field(
    plane: tuple[ControlPlane, Api], tmp_path: Path, change: dict[str, Any], field: str
) -> None:
    """A misspelt field is refused with its path, wherever in the object it is."""
    manifest = {**policy("p"), **change}
    assert isinstance(await answer(plane[1], manifest), str)
    assert f": {field}: " in problem_of(manifest, tmp_path)


async def test_the_kubectl_line_that_dumps_a_cluster_names_served_kinds(plane: tuple[ControlPlane, Api]) -> None:
    """By their names or short names, each of them; kubectl fails as a whole where one is not served."""
    served: set[str] = set()
    for path in ("/api/v1", "/apis/policy/v1", "/apis/scheduling.k8s.io/v1", "/apis/storage.k8s.io/v1"):
        for kind in (await plane[1].get(path))["resources"]:
            served |= {kind["name"], *kind.get("shortNames", ())}
    page = (Path(__file__).parents[2] / "docs/how-to/plan-a-dump.md").read_text()
    asked = page.partition("   kubectl get ")[2].split()[0].split(",")
    assert len(asked) > 5
    assert set(asked) <= served
