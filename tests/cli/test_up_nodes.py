"""The nodes of ``thalweg up``: made up with zones, racks and GPUs, or those of a dump."""

import json
from collections import Counter
from pathlib import Path

import pytest
import yaml
from support.cli import Manifest, node, thalweg
from thalweg.dumps.files import DumpError
from thalweg.up.up_devices import CLAIMING_PODS, nodes_with_devices
from thalweg.up.up_nodes import made_up_nodes, nodes_of_dump

ZONE, RACK = "topology.kubernetes.io/zone", "topology.kubernetes.io/rack"


def dump(folder: Path, *nodes: Manifest) -> str:
    """The path of a dump of these nodes."""
    path = folder / "nodes.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes}))
    return str(path)


@pytest.mark.parametrize("count", [1, 2, 4, 5, 6, 50, 1000])
def test_zones_racks_and_gpus(count: int) -> None:
    """As even as can be: racks lie within a zone, and from one node on there is a GPU."""
    nodes = made_up_nodes(count)
    assert len({each["metadata"]["name"] for each in nodes}) == count
    labels = [each["metadata"]["labels"] for each in nodes]
    zones = Counter(each[ZONE] for each in labels)
    assert max(zones.values()) - min(zones.values()) <= 1 or count == 1
    assert all(each[RACK].startswith(each[ZONE]) for each in labels)
    racks = Counter(each[RACK] for each in labels)
    assert max(racks.values()) <= 20
    assert max(racks.values()) - min(racks.values()) <= 1
    with_gpus = [each for each in nodes if "nvidia.com/gpu" in each["status"]["allocatable"]]
    assert with_gpus == [each for each in nodes if each["metadata"]["labels"].get("gpu") == "true"]
    assert len(with_gpus) == max(1, count // 5)


@pytest.mark.parametrize("count", [1, 5, 12])
def test_there_and_back(count: int, tmp_path: Path) -> None:
    """A dump of simulated nodes gives the same nodes again."""
    made = made_up_nodes(count)
    again = nodes_of_dump((dump(tmp_path, *made),))
    for each in made:
        each["status"]["allocatable"]["cpu"] = each["status"]["capacity"]["cpu"] = "4000m"
        each["status"]["allocatable"]["memory"] = each["status"]["capacity"]["memory"] = str(16 * 2**30)
    assert again == made


def test_what_scheduling_reads_is_kept(tmp_path: Path) -> None:
    """Taints and cordons too. What follows from a condition of the real node is not: this one is ready."""
    taints = [
        {"key": "dedicated", "value": "ml", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "value": "", "effect": "NoExecute"},
    ]
    real = node("real", "3920m", taints=taints, unschedulable=True)
    real["status"]["allocatable"] |= {"ephemeral-storage": "10Gi", "hugepages-2Mi": "0", "nvidia.com/gpu": "8"}
    real["metadata"]["labels"]["pool"] = "ml"
    (made,) = nodes_of_dump((dump(tmp_path, real),))
    assert made["spec"] == {"taints": taints[:1], "unschedulable": True}
    assert made["metadata"]["labels"] == {"kubernetes.io/hostname": "real", "pool": "ml"}
    assert made["status"]["allocatable"] == {
        "cpu": "3920m", "memory": str(16 * 2**30), "pods": "110", "ephemeral-storage": str(10 * 2**30),
        "nvidia.com/gpu": "8",
    }  # fmt: skip


def test_a_dump_that_cannot_be_simulated(tmp_path: Path) -> None:
    """One sentence and exit code 2, before anything is started."""
    with pytest.raises(DumpError, match=r"^Node bad: node's status\.allocatable\.cpu: "):
        nodes_of_dump((dump(tmp_path, node("bad", "four")),))
    with pytest.raises(DumpError, match="contains 5,001 nodes: at most 5,000 are simulated"):
        nodes_of_dump((dump(tmp_path, *(node(f"n{number}") for number in range(5001))),))
    done = thalweg("up", "--nodes-from", tmp_path / "none.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: ")
    assert len(done.stderr.splitlines()) == 1
    assert thalweg("up", "--nodes", "3", "--nodes-from", "x").returncode == 2


def claiming_pods(number: int) -> list[Manifest]:
    """The example's pods with their claims, as the controllers make them of the Deployment and the template."""
    template, deployment = yaml.safe_load_all(CLAIMING_PODS)
    made = []
    for name in (f"p-{place}" for place in range(number)):
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": True}
        metadata = {"name": name, "namespace": "default", "uid": name}
        status = {"resourceClaimStatuses": [{"name": "gpus", "resourceClaimName": name}]}
        spec = deployment["spec"]["template"]["spec"]
        made.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status})
        claim = {"apiVersion": template["apiVersion"], "kind": "ResourceClaim", "spec": template["spec"]["spec"]}
        made.append(claim | {"metadata": metadata | {"ownerReferences": [owner]}})
    return made


@pytest.mark.parametrize(("number", "placed"), [(1, 4), (2, 4), (3, 8)])
def test_nodes_with_devices(number: int, placed: int, tmp_path: Path) -> None:
    """Every second one has H100, as the example claims: four pods get two on one NVLink domain there."""
    made = nodes_with_devices(number, {"node-0", "gpu-1"})
    names = [each["metadata"]["name"] for each in made.nodes]
    assert names == ["gpu-0", "gpu-2", "gpu-3"][:number]
    path = dump(tmp_path, *made.nodes, *made.objects, *claiming_pods(9))
    placed_pods = json.loads(thalweg("plan", "-f", path, "-o", "json").stdout)["placed"]
    assert Counter(each["node"] for each in placed_pods) == dict.fromkeys(names[::2], 4)
    assert len(placed_pods) == placed


def test_no_devices_unless_they_are_asked_for() -> None:
    """Nothing is installed of devices."""
    assert nodes_with_devices(0, ()).objects == nodes_with_devices(0, ()).nodes == []
