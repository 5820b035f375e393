"""Which cost models are found, and what becomes of those that cannot be used."""

import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from support.cli import node, pod
from support.model import node as model_node
from support.model import pod as model_pod
from thalweg_operator.cost_models import GROUP, find_models, load_models
from thalweg_operator.errors import PolicyError
from thalweg_operator.policies import PolicyStore, parse
from thalweg_operator.wire import RoundRequest, Waiting
from thalweg_operator.worker_client import WorkerClient

from flowcore.costs import MODELS

PLUGIN = """
import numpy as np

print("a plug-in that talks")

class LastLetter:
    name = "LastLetter"

    def arc_costs(self, pod_class, size, load, weights):
        return np.array([ord("z") + 1 - ord(each.name[-1]) for each in load.table.nodes], dtype=np.int64)

    def slot_costs(self, load, size, levels, weights):
        return np.zeros((len(load.taken), len(levels)), dtype=np.int64)

    def slot_floors(self, load, smallest, largest, levels, weights):
        return self.slot_costs(load, smallest, levels, weights)

    def dearest_slot(self, weights):
        print("even while it plans")
        return 0

ready = LastLetter()

class CPUMemory(LastLetter):
    name = "CPUMemory"

class Picky(LastLetter):
    name = "Picky"

    def __init__(self, needed):
        pass
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path with a plug-in's module, installed as far as Python can tell."""
    (tmp_path / "lettered.py").write_text(PLUGIN)
    installed = tmp_path / "lettered-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: lettered\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(f"[{GROUP}]\nLastLetter = lettered:LastLetter\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delitem(sys.modules, "lettered", raising=False)
    return tmp_path


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, GROUP)


def test_the_built_in_ones_are_entry_points_too() -> None:
    """The package's metadata names each of them, and each loads as what it is."""
    found = find_models()
    assert found.problems == {}
    assert set(MODELS) <= set(found.usable)
    assert all(found.usable[name] is MODELS[name] for name in MODELS)


@pytest.mark.parametrize("value", ["lettered:LastLetter", "lettered:ready"])
def test_a_class_or_an_object(site: Path, value: str) -> None:
    """Both are taken; the built-in ones stay beside it."""
    found = load_models([point("LastLetter", value)])
    assert list(found.usable) == [*MODELS, "LastLetter"]
    assert parse("p", {"cost": {"model": "LastLetter"}}, found).cost_model == "LastLetter"


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("Gone", "no_such_module:Model", "cannot be loaded"),
        ("Gone", "lettered:NoSuchClass", "cannot be loaded"),
        ("Picky", "lettered:Picky", "cannot be loaded"),
        ("Odd", "lettered:PLUGIN_IS_NOT_THERE", "cannot be loaded"),
        ("Other", "json:loads", "is not a cost model"),
        ("Alias", "lettered:LastLetter", "calls itself 'LastLetter'"),
        ("CPUMemory", "lettered:CPUMemory", "flowcore.costs.cpu_memory has the name"),
    ],
)
def test_what_cannot_be_used_is_said(site: Path, name: str, value: str, problem: str) -> None:
    """By name, and nothing else suffers: neither the built-in ones nor other plug-ins."""
    found = load_models([point(name, value), point("LastLetter", "lettered:LastLetter")])
    assert list(found.usable) == [*MODELS, "LastLetter"]
    assert all(found.usable[each] is MODELS[each] for each in MODELS)
    assert problem in found.problems[name]
    if name not in MODELS:
        with pytest.raises(PolicyError, match=f'spec.cost.model: "{name}" cannot be used') as caught:
            parse("p", {"cost": {"model": name}}, found)
        assert problem in str(caught.value)
        assert str(caught.value).endswith("known are CPUMemory, LoadSpreading, BinPacking, NetworkAware, LastLetter")


def test_a_store_knows_what_it_was_given(site: Path) -> None:
    """A policy is judged by the models of this operator."""
    spec = {"selects": {"podSelector": {}}, "cost": {"model": "LastLetter"}}
    assert PolicyStore().offer("p", "u", 1, spec).problem == (
        'spec.cost.model: "LastLetter" is not one of CPUMemory, LoadSpreading, BinPacking, NetworkAware'
    )
    assert not PolicyStore(load_models([point("LastLetter", "lettered:LastLetter")])).offer("p", "u", 1, spec).problem


def test_an_installed_plug_in_plans(site: Path) -> None:
    """The real command finds it by its metadata and places by its prices."""
    policy = {
        "apiVersion": "scheduling.thalweg/v1alpha1",
        "kind": "FlowSchedulingPolicy",
        "metadata": {"name": "lettered"},
        "spec": {"selects": {"podSelector": {}}, "cost": {"model": "LastLetter"}},
    }
    dump = site / "dump.json"
    dump.write_text(
        json.dumps(
            {"kind": "List", "items": [node("a"), node("z"), node("m"), pod("p", "1", schedulerName="thalweg"), policy]}
        )
    )
    command = [sys.executable, "-m", "thalweg", "simulate", "-f", str(dump), "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout)["placements"] == {"default/p": "z"}


async def test_the_worker_finds_it_too(site: Path) -> None:
    """The operator's own worker process plans by it, and what the plug-in prints does not garble its replies."""
    policy = parse("p", {"cost": {"model": "LastLetter"}}, load_models([point("LastLetter", "lettered:LastLetter")]))
    nodes = [model_node(name) for name in "amz"]
    waiting = model_pod("w", 1000)
    client = WorkerClient(30)
    await client.start()
    try:
        for number in (1, 2):
            reply = await client.ask(
                RoundRequest(
                    number=number,
                    generation=number,
                    now=0.0,
                    fresh=number == 1,
                    nodes=nodes if number == 1 else [],
                    gone=[],
                    uses=[],
                    namespaces={},
                    kinds=[waiting.kind],
                    neighbours=[],
                    images=[],
                    reports=[],
                    policies=[policy],
                    classes=[waiting.pod_class],
                    waiting=[Waiting(waiting.key, 0, 0, 0.0, 0)],
                    budget=1.0,
                )
            )
            assert [(at, name) for at, name, *_ in reply.placements] == [(0, "z")]
    finally:
        await client.stop()
