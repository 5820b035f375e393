"""``thalweg headroom --write ProvisioningRequest``, the real command, on dumps."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from support.cli import Manifest, node, pod
from thalweg.dumps.reader import read_dump
from thalweg.main import main
from thalweg.questions.provisioning_request import CLASS, MAX_POD_SETS, request_objects

from flowcore.model.errors import ModelError
from flowcore.model.selectors import is_dns_subdomain
from flowcore.questions.scenario.alternatives.new_nodes.gang import GangNodes
from flowcore.questions.scenario.reading.saved import state_of

_SHARE = {"name": "share", "nfs": {"server": "nfs.example.invalid", "path": "/"}}


def member(name: str, cpu: str = "3", size: int = 4, **labels: str) -> Manifest:
    said = {"scheduling.thalweg/gang": "train", "scheduling.thalweg/gang-min-member": str(size)}
    made = pod(name, cpu, metadata={"namespace": "ml", "name": name, "annotations": said, "labels": labels})
    made["spec"]["nodeSelector"] = {"kubernetes.io/os": "linux"}
    made["spec"]["volumes"] = [{"name": "token", "projected": {}}, _SHARE]
    made["spec"]["containers"][0] |= {"command": ["train"], "env": [{"name": "RANK", "value": name}]}
    return made


#: One worker more than three nodes have room for, and a leader.
GANG = [
    member("leader", "1", 5, role="leader"),
    *(member(f"w{at}", "3", 5, role="w", **{"batch.kubernetes.io/job-completion-index": str(at)}) for at in range(4)),
]


def dump(path: Path, *objects: Manifest) -> str:
    nodes = [node(f"n{at}") for at in range(3)]
    for each in nodes:
        each["metadata"]["labels"]["kubernetes.io/os"] = "linux"
    file = path / "now.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*nodes, *objects]}))
    return str(file)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["headroom", *arguments], catch_exceptions=False)


def test_one_request_for_all_pods(tmp_path: Path) -> None:
    """A PodTemplate for each kind of pods, by what decides where they fit; then the request, which names them."""
    file = dump(tmp_path, *GANG)
    done = run("-f", file, "--gang", "ml/train", "--write", "ProvisioningRequest")
    assert done.exit_code == 0, done.stderr
    *templates, request = yaml.safe_load_all(done.stdout)
    assert [each["kind"] for each in templates] == ["PodTemplate"] * 2
    assert [each["template"]["metadata"]["labels"] for each in templates] == [{"role": "leader"}, {"role": "w"}]
    worker = templates[1]["template"]["spec"]
    assert worker["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert worker["volumes"] == [_SHARE]
    (container,) = worker["containers"]
    assert container["resources"]["requests"] == {"cpu": "3"}
    assert container.keys() <= {"name", "image", "resources", "ports"}
    assert {each["metadata"]["namespace"] for each in (*templates, request)} == {"ml"}
    names = [each["metadata"]["name"] for each in templates]
    sets = [{"podTemplateRef": {"name": name}, "count": count} for name, count in zip(names, (1, 4), strict=True)]
    assert (request["apiVersion"], request["kind"]) == ("autoscaling.x-k8s.io/v1", "ProvisioningRequest")
    assert request["spec"] == {"provisioningClassName": CLASS, "podSets": sets}
    witness, annotate = done.stderr.splitlines()
    assert witness.startswith("Note: with 1 new node like n0 a plan places all 5 pods of gang ml/train")
    assert f"consume-provisioning-request={request['metadata']['name']} " in annotate
    as_json = run("-f", file, "-n", "ml", "--gang", "train", "--write", "ProvisioningRequest", "-o", "json")
    assert json.loads(as_json.stdout) == {"apiVersion": "v1", "kind": "List", "items": [*templates, request]}


@pytest.mark.parametrize(
    ("objects", "arguments", "words"),
    [
        (GANG[:2], (), "new nodes would not help pod ml/leader"),
        ([member("only", "1", 1)], (), "it needs no new ones"),
        ([member("huge", "64", 1)], (), "no plan with new nodes like those that are there"),
        ([], (), "the files have no Pod"),
        ([pod("alone", "1")], (), "there is no such gang of which pods wait"),
        (GANG, ("--cpu", "1"), "leave out --like, amounts and --watch"),
    ],
)
def test_no_request(objects: list[Manifest], arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    """Nothing is printed, one line says why, and the exit code is 2."""
    file = dump(tmp_path, *objects)
    done = run("-f", file, "--gang", "ml/train", "--write", "ProvisioningRequest", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("limit", ["", "4"])
def test_a_gang_beside_pods_of_a_daemon_set(limit: str, tmp_path: Path) -> None:
    """A node that comes has the DaemonSet's pod, too. Where a FlowQueue keeps the gang waiting it says so."""
    near = {"labelSelector": {"matchLabels": {"app": "cache"}}, "topologyKey": "kubernetes.io/hostname"}
    gang = [member(f"w{at}", size=2, team="q") for at in range(2)]
    for each in gang:
        each["spec"]["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "cache", "uid": "d", "controller": True}
    metadata = {"namespace": "ml", "name": "cache", "labels": {"app": "cache"}, "ownerReferences": [owner]}
    cache = pod("cache", "1", metadata=metadata, status={"phase": "Running"}, nodeName="n0")
    selects = {"podSelector": {"matchLabels": {"team": "q"}}}
    spec = {"selects": selects, "limit": {"cpu": limit}} if limit else {"selects": selects}
    queue = {"apiVersion": "scheduling.thalweg/v1alpha1", "kind": "FlowQueue", "metadata": {"name": "q"}, "spec": spec}
    done = run("-f", dump(tmp_path, cache, queue, *gang), "--gang", "ml/train", "--write", "ProvisioningRequest")
    assert done.exit_code == (2 if limit else 0), done.stderr
    assert not limit or "new nodes would not help pod ml/w0: The limit of FlowQueue q" in done.stderr


def test_pods_that_cannot_be_read_again(tmp_path: Path) -> None:
    """Of standard input, and of a saved state, which has no objects of the API."""
    file = dump(tmp_path, *GANG)
    piped = CliRunner().invoke(
        main, ["headroom", "-f", "-", "--gang", "ml/train", "--write", "ProvisioningRequest"], Path(file).read_text()
    )
    assert (piped.exit_code, piped.stdout) == (2, "")
    assert "give the dump as a file" in piped.stderr.splitlines()[-1]
    state = tmp_path / "state.jsonl"
    state.write_bytes(b"".join(state_of(read_dump((file,)))))
    done = run("-f", str(state), "--gang", "ml/train", "--write", "ProvisioningRequest")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "is in no file as an object of the API: give the output of thalweg dump" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("given", [("--gang", "train"), ("--write", "ProvisioningRequest")])
def test_options_that_need_each_other(given: tuple[str, ...], tmp_path: Path) -> None:
    """A request is for a gang, and a gang is asked about for a request."""
    done = run("-f", dump(tmp_path), *given)
    assert done.exit_code == 2
    assert "--gang and --write need each other" in done.stderr


def test_names_and_numbers_of_sets() -> None:
    """Names stay within what the API server takes; a gang of more kinds than a request may have is refused."""
    long = "g" * 253
    pods: list[dict[str, Any]] = [{"spec": {"containers": [{"name": str(at)}]}} for at in range(MAX_POD_SETS)]
    gang = GangNodes("gang ml/g", [f"ml/p{at}" for at in range(MAX_POD_SETS)], "n", 1)
    objects = request_objects(long, gang, pods)
    names = [each["metadata"]["name"] for each in objects]
    assert max(map(len, names)) <= 253
    assert len(set(names)) == MAX_POD_SETS + 1
    assert request_objects(f"{long[:-1]}h", gang, pods)[-1]["metadata"]["name"] != names[-1]
    for strange in ("Train_1", "a..b", "-", "\u05de", f"{'a.' * 130}b"):
        assert all(is_dns_subdomain(each["metadata"]["name"]) for each in request_objects(strange, gang, pods))
    assert request_objects("train.v1", gang, pods)[-1]["metadata"]["name"] == "train.v1"
    with pytest.raises(
        ModelError, match="gang ml/g: its pods are of 33 kinds, and a ProvisioningRequest has 32 at most"
    ):
        request_objects("g", gang, [*pods, {"spec": {"containers": [{"name": "more"}]}}])
