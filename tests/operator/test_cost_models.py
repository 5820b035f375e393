"""Which cost models are found, and what becomes of those that cannot be used."""

import json
import subprocess
import sys
import time
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from support.cli import by_pod, node, pod
from support.model import node as model_node
from support.model import pod as model_pod
from support.operator import free_address
from thalweg_operator.errors import WorkerLost
from thalweg_operator.planning.worker.client import WorkerClient
from thalweg_operator.planning.worker.messages import PendingEntry, RoundRequest
from thalweg_operator.policies.store import PolicyStore

from flowcore.api.policies import parse_policy
from flowcore.cluster.changes import ClusterChanges
from flowcore.costs import MODELS
from flowcore.model.errors import PolicyError
from flowcore.model.inter_pod_constraints import HOSTNAME
from flowcore.model.pod_index import PodSignature
from thalweg_cost_models import ENTRY_POINT_GROUP, find_models, load_models

PLUGIN = """
import numpy as np

print("a plug-in that talks")

class LastLetter:
    name = "LastLetter"

    def arc_costs(self, pod_class, size, load, weights):
        return np.array([ord("z") + 1 - ord(each.name[-1]) for each in load.table.nodes], dtype=np.int64)

    def potential(self, load, unit, weights):
        print("even while it plans")
        return np.zeros(load.pods.shape)

    def gradient(self, load, unit, weights):
        return np.zeros((*load.pods.shape, 4))

    curvature = steepest = gradient

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
    (installed / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\nLastLetter = lettered:LastLetter\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delitem(sys.modules, "lettered", raising=False)
    return tmp_path


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, ENTRY_POINT_GROUP)


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
    assert parse_policy("p", {"cost": {"model": "LastLetter"}}, found.known).cost.model == "LastLetter"


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
            parse_policy("p", {"cost": {"model": name}}, found.known)
        assert problem in str(caught.value)
        assert str(caught.value).endswith("known are CPUMemory, LoadSpreading, BinPacking, NetworkAware, LastLetter")


def test_a_store_knows_what_it_was_given(site: Path) -> None:
    """A policy is judged by the models of this operator."""
    spec = {"selects": {"podSelector": {}}, "cost": {"model": "LastLetter"}}
    assert PolicyStore().offer("p", "u", 1, spec).problem == (
        'spec.cost.model: "LastLetter" is not one of CPUMemory, LoadSpreading, BinPacking, NetworkAware'
    )
    known = load_models([point("LastLetter", "lettered:LastLetter")]).known
    assert not PolicyStore(known).offer("p", "u", 1, spec).problem


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
    command = [sys.executable, "-m", "thalweg", "plan", "-f", str(dump), "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert by_pod(done.stdout)["placements"] == {"default/p": "z"}


async def test_the_worker_finds_it_too(site: Path) -> None:
    """The operator's own worker process plans by it, and what the plug-in prints does not garble its replies."""
    nodes = [model_node(name) for name in "amz"]
    waiting = model_pod("w", 1000)
    client = WorkerClient(30)
    try:
        known = await client.start()
        assert known.names == (*MODELS, "LastLetter")
        policy = parse_policy("p", {"cost": {"model": "LastLetter"}}, known)
        for number in (1, 2):
            reply = await client.ask(
                RoundRequest(
                    number=number,
                    generation=number,
                    now=0.0,
                    reset=number == 1,
                    changes=ClusterChanges(nodes=nodes if number == 1 else []),
                    policies=[policy],
                    classes=[waiting.pod_class],
                    signatures=[waiting.signature],
                    pending=[PendingEntry(waiting.key, 0, 0, 0.0, 0)],
                    budget=1.0,
                )
            )
            assert [(each.pod, each.node) for each in reply.placements] == [(0, "z")]
    finally:
        await client.stop()


NETWORKS = """
from flowcore.costs.network_model import NetworkCostModel, arc_to, from_pods
from flowcore.model.networks import NODES, UNSCHEDULED, Aggregator, NetworkSpec

class Twins(NetworkCostModel):
    name = "Twins"

    def network(self, view):
        if len(view.nodes) > 1:
            raise RuntimeError("one node is enough")
        ends = arc_to(UNSCHEDULED, minimum=1, maximum=1), arc_to(NODES, maximum=1, gain=2)
        return NetworkSpec((Aggregator("both", arcs=ends),), (from_pods({}, arc_to("both")),))
"""


async def test_the_worker_solves_the_network_of_a_model(site: Path) -> None:
    """Its placements are one group; where it fails, its policy is told, and the pods of others are placed as always."""
    (site / "lettered.py").write_text(NETWORKS)
    (site / "lettered-1.dist-info" / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\nTwins = lettered:Twins\n")
    waiting = [model_pod("one", 1000), model_pod("two", 1000), model_pod("other", 1000)]
    client = WorkerClient(30)
    try:
        known = await client.start()
        of_twins = {"selects": {"podSelector": {"matchLabels": {"app": "twin"}}}, "cost": {"model": "Twins"}}
        policies = [parse_policy("twins", of_twins, known), parse_policy("other", {}, known)]
        replies = []
        for number, added in ((1, "a"), (2, "b")):
            request = RoundRequest(
                number=number,
                generation=number,
                now=0.0,
                reset=number == 1,
                changes=ClusterChanges(nodes=[model_node(added, 4000, labels=((HOSTNAME, added),))]),
                policies=policies,
                classes=[waiting[0].pod_class],
                signatures=[PodSignature("default", (("app", "twin"),)), waiting[2].signature],
                pending=[PendingEntry(each.key, 0, int(at == 2), 0.0, int(at == 2)) for at, each in enumerate(waiting)],
                budget=1.0,
            )
            replies.append(await client.ask(request))
    finally:
        await client.stop()
    assert known.networks == {"Twins"}
    first, second = replies
    groups = {each.pod: (*first.atomic_groups, "")[each.atomic_group] for each in first.placements}
    assert groups == {0: groups[1], 1: "2 pods with default/one of the network of policy twins", 2: ""}
    assert first.contradictions == []
    assert [each.pod for each in second.placements] == [2]
    sentence = (
        "the network of policy twins is refused: "
        "method network of cost model Twins raised RuntimeError('one node is enough')"
    )
    assert second.contradictions == [(0, sentence)]
    assert {second.codes[reason] for _, reason in second.unplaced} == {"NetworkRefused"}


async def test_problems_come_from_the_worker(site: Path) -> None:
    """One that cannot be loaded is told to the operator by its worker, with what a policy that names it is told."""
    (site / "lettered-1.dist-info" / "entry_points.txt").write_text(
        f"[{ENTRY_POINT_GROUP}]\nGone = no_such_module:Model\n"
    )
    client = WorkerClient(30)
    try:
        known = await client.start()
    finally:
        await client.stop()
    assert known.names == tuple(MODELS)
    assert "no_such_module:Model cannot be loaded" in known.problems["Gone"]


async def test_a_worker_that_ends_at_once(site: Path) -> None:
    """A plug-in that ends the process is a lost worker, not a hang."""
    (site / "lettered.py").write_text("import os\nos._exit(3)\n")
    client = WorkerClient(30)
    with pytest.raises(WorkerLost, match="ended before it was ready"):
        await client.start()
    assert not client.alive


def test_the_operators_process_loads_no_plug_in(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`thalweg run` holds the token: code of others runs in its worker alone, without the operator's environment."""
    seen = site / "seen.json"
    (site / "lettered.py").write_text(
        "import json, os\n"
        "line = json.dumps([os.getpid(), os.getppid(), dict(os.environ)])\n"
        f"open({str(seen)!r}, 'a').write(line + chr(10))\n"
    )
    kubeconfig = site / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
        )
    )
    monkeypatch.setenv("SOME_TOKEN", "secret")
    command = [sys.executable, "-m", "thalweg", "run", "--kubeconfig", str(kubeconfig), "--listen", free_address()]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as operator:
        try:
            deadline = time.monotonic() + 60
            while not (seen.exists() and seen.read_text().endswith("\n")):
                assert time.monotonic() < deadline
                assert operator.poll() is None
                time.sleep(0.05)
            operator.terminate()
            assert operator.wait(40) == 0
        finally:
            operator.kill()
    ((pid, parent, environment),) = [json.loads(line) for line in seen.read_text().splitlines()]
    assert pid != operator.pid
    assert parent == operator.pid
    assert "SOME_TOKEN" not in environment
