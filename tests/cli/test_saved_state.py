"""The state that an operator writes: read again it is the same cluster, with the same plan."""

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from support.cli import by_pod, node, pod
from support.draw import Case, crowded_cases
from support.profiles import examples
from support.verdicts import read_pods
from thalweg.dumps.reader import read_dump
from thalweg.main import main
from thalweg.plans.local_plan import plan

from flowcore.api import Interner, WireNamespace, WireNode, to_labels, to_node, to_storage_object
from flowcore.api.kinds import KINDS
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.saved_state import VERSION, AwaitedRoom, BesideCluster, put_lines, to_lines
from flowcore.model.disruption_budgets import DisruptionBudget
from flowcore.model.policies import Policy
from flowcore.model.regret import ClosedRoom, ClosingReason, RegretFigure, RegretRecord
from flowcore.model.selectors import LabelSelector
from flowcore.model.usage import MeasuredLoad, UsageSample
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.reading.saved import read_state, state_of

#: Plural, as drawn cases name them -> kind.
STORAGE = {kind.plural.casefold(): kind.kind for kind in KINDS}


def cluster_of(case: Case) -> Cluster:
    cluster = Cluster()
    for manifest in case.nodes:
        cluster.put_node(to_node(msgspec.convert(manifest, WireNode), Interner()))
    for manifest in case.namespaces:
        wire = msgspec.convert(manifest, WireNamespace)
        cluster.set_namespace(wire.metadata.name, to_labels(wire.metadata.labels))
    for plural, manifests in case.storage.items():
        for manifest in manifests:
            stored = to_storage_object(STORAGE[plural.casefold()], manifest)
            if stored is not None:
                cluster.put_storage(stored)
    for each_pod in read_pods([*case.pods, *case.pending]):
        cluster.put_pod(each_pod)
    return cluster


def read_again(cluster: Cluster) -> tuple[Cluster, list[Policy]]:
    again = Cluster()
    return again, put_lines([line.decode() for line in to_lines(cluster, BesideCluster(), 0.0)], again).policies


def test_budgets_are_read_again() -> None:
    """A dump of the operator says who may be evicted."""
    cluster = Cluster()
    budget = DisruptionBudget("shop", "web", LabelSelector(), 2, ("web-1",))
    cluster.set_disruption_budget(budget.key, budget)
    assert read_again(cluster)[0].budgets.objects == {"shop/web": budget}


@settings(max_examples=examples(60))
@given(crowded_cases())
def test_a_state_read_again_is_the_same(case: Case) -> None:
    """Every object of any drawn cluster comes back as it was, and so does the plan for it."""
    cluster = cluster_of(case)
    again, policies = read_again(cluster)
    assert policies == []
    assert (again.nodes, again.pods, again.namespaces) == (cluster.nodes, cluster.pods, cluster.namespaces)
    assert again.storage.objects == cluster.storage.objects
    plans = [plan(Scenario(each), 0.0) for each in (cluster, again)]
    assert plans[0].result.placements == plans[1].result.placements
    assert plans[0].result.unplaced == plans[1].result.unplaced


def test_policies_and_groups_come_back(tmp_path: Path) -> None:
    """Policies with all they can say, PodGroups and DeviceClasses too; also texts with odd line breaks in them."""
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "spec": {"minMember": 2},
             "metadata": {"name": "eval", "namespace": "default"}}  # fmt: skip
    device_class = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"},
                    "spec": {"extendedResourceName": "example.com/gpu"}}  # fmt: skip
    web = {"matchLabels": {"app": "web"}}
    spec = {
        "precedence": 5,
        "selects": {"schedulerNames": ["thalweg"], "podSelector": web, "namespaceSelector": web},
        "cost": {"model": "BinPacking", "weights": {"leastRequested": 3}},
        "gangs": {"timeout": "1h30m", "onPartialBind": "Evict", "holdRoomAfter": "0s"},
        "constraints": [
            {"name": "az", "conflict": {"pods": web, "topologyKey": "zone", "maxPerDomain": 2}},
            {"name": "xor", "exclusive": {"groups": [web, {}], "topologyKey": "zone"}},
            {"name": "agent", "global": {"pods": web, "nodes": {"matchLabels": {"gpu": "yes"}}}},
        ],
    }
    policy = {"apiVersion": "scheduling.thalweg/v1alpha1", "kind": "FlowSchedulingPolicy", "spec": spec,
              "metadata": {"name": "web"}}  # fmt: skip
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "a\u2028b\x85c\x0cd\ne"}
    waits = pod("p", status={"phase": "Pending", "conditions": [told]})
    dump = tmp_path / "dump.json"
    objects = [node("n"), waits, namespace, group, device_class, policy]
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    before = read_dump((str(dump),))
    before.cluster.policies.replace(before.policies.values())
    file = tmp_path / "state.jsonl"
    file.write_bytes(b"".join(to_lines(before.cluster, BesideCluster(), 0.0)))
    after = read_dump((str(file),))
    assert after.policies == before.policies
    assert after.cluster.pods == before.cluster.pods
    assert after.cluster.gangs.groups == before.cluster.gangs.groups
    assert after.cluster.devices.classes == before.cluster.devices.classes
    assert before.policies
    assert before.cluster.gangs.groups
    assert before.cluster.devices.classes


def state(folder: Path, *manifests: dict[str, object], planned: dict[str, str] | None = None) -> Path:
    """The state of the cluster with these objects, in a file."""
    dump = folder / "dump.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))
    file = folder / "state.jsonl"
    file.write_bytes(b"".join(to_lines(read_dump((str(dump),)).cluster, BesideCluster(planned=planned or {}), 0.0)))
    return file


def test_pods_on_their_way_have_their_room(tmp_path: Path) -> None:
    """A pod that is expected on a node counts there: the next one does not get its room. Others than ours are left."""
    pods = [pod(name, "3", schedulerName=scheduler) for name, scheduler in (("a", "thalweg"), ("b", "thalweg"))]
    other = pod("c", "1", schedulerName="default-scheduler")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    file = state(tmp_path, node("n"), namespace, *pods, other, planned={"default/a": "n"})
    done = CliRunner().invoke(main, ["plan", "-f", str(file), "-o", "json"])
    assert done.exit_code == 0, done.stderr
    answer = by_pod(done.stdout)
    assert answer["placements"] == {}
    assert answer["pending"]["default/b"]["reason"] == "0/1 nodes are available: 1 Insufficient cpu."
    assert answer["pending"]["default/c"]["reason"] == "no policy governs it"
    assert "default/a" not in answer["pending"]
    assert answer["warnings"] == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda text: text.replace(f'"version":{VERSION}', '"version":99'), "line 1: version 99 of the format"),
        (lambda text: text.replace('"saved":"Node"', '"saved":"Moon"'), "line 2: Invalid value 'Moon'"),
        (lambda text: text[:-20], "line 3: Input data was truncated"),
    ],
)
def test_a_state_that_cannot_be_read(tmp_path: Path, change: object, problem: str) -> None:
    """Exit code 2 and a line that names the file, the line and the problem."""
    file = state(tmp_path, node("n"), pod("p"))
    assert callable(change)
    file.write_text(change(file.read_text()))
    done = CliRunner().invoke(main, ["plan", "-f", str(file)])
    assert done.exit_code == 2
    assert f"{file}: {problem}" in done.stderr


def test_what_is_beside_the_cluster_is_read_again() -> None:
    """Measured loads, foreseen use, who waits for whom to leave, and what audits said; also of a dump's samples."""
    before = Scenario(
        read_scenario().cluster,
        complete=False,
        node_samples={"n1": UsageSample(1.0, 30.0, 100, 2**20)},
        pod_samples={"default/p": UsageSample(2.0, 30.0, 50, 2**10)},
        awaiting={"default/p": AwaitedRoom("n1", ("default/victim",))},
        loads={"n1": MeasuredLoad("n1", 500, None, 7)},
        foreseen={"default/p": (100, 200)},
        regret=[
            RegretRecord(
                1.5,
                (RegretFigure("WaitingPods", "", 3, 1, 2),),
                0,
                (ClosedRoom(waiting="a/w", pods=2, reason=ClosingReason.FRAGMENTATION, pod="a/p", placed=1.0),),
            )
        ],
    )
    again = read_state(line.decode() for line in state_of(before))
    for name in ("complete", "node_samples", "pod_samples", "awaiting", "loads", "foreseen", "policies", "regret"):
        assert getattr(again, name) == getattr(before, name), name
    assert list(again.cluster.pods) == list(before.cluster.pods)


def read_scenario() -> Scenario:
    """One pod that waits."""
    cluster = Cluster()
    for each in read_pods([pod("p", "1")]):
        cluster.put_pod(each)
    return Scenario(cluster)
