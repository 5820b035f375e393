"""Habits of kubectl's users: names with typing errors, pipes that close."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from support.cli import Manifest, node, pod, thalweg
from thalweg.main import main
from thalweg.questions.why import first_lines


def owned(name: str, kind: str, owner: str, namespace: str, **spec: object) -> Manifest:
    """A pod of a controller."""
    made = pod(name, "1", metadata={"name": name, "namespace": namespace}, **spec)
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": owner, "controller": True}
    made["metadata"]["ownerReferences"] = [reference]
    return made


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three nodes, one of them with a taint; pods of workloads of several kinds, some waiting."""
    tainted = node("worker-3")
    tainted["spec"] = {"taints": [{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]}
    frontend = owned("frontend-5d9f8-aaaaa", "ReplicaSet", "frontend-5d9f8", "shop", nodeName="worker-1")
    frontend["metadata"]["labels"] = {"pod-template-hash": "5d9f8"}
    gang = {"scheduling.thalweg/gang": "train", "scheduling.thalweg/gang-min-member": "9"}
    policy: Manifest = {"apiVersion": "scheduling.thalweg/v1alpha1", "kind": "FlowSchedulingPolicy"}
    policy |= {"metadata": {"name": "batch-jobs"}, "spec": {"selects": {"podSelector": {"matchLabels": {"x": "y"}}}}}
    objects = [
        node("worker-1"),
        node("worker-2"),
        tainted,
        frontend,
        owned("nightly-0", "Job", "nightly", "batch", nodeSelector={"no": "node"}),
        pod("train-0", "1", metadata={"name": "train-0", "namespace": "ml", "annotations": gang}),
        policy,
    ]
    path = tmp_path_factory.mktemp("dump") / "now.json"
    path.write_text(json.dumps({"kind": "List", "items": objects}))
    return path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("what-if", "--drain", "wroker-3"), "there is no node wroker-3; did you mean worker-3?"),
        (("what-if", "--uncordon", "worker3"), "there is no node worker3; did you mean worker-3?"),
        (("what-if", "--add-nodes", "1", "--like", "worker-33"), "did you mean worker-3?"),
        (
            ("what-if", "--priority", "batch/nigthly-0=5"),
            "there is no pod batch/nigthly-0; did you mean batch/nightly-0?",
        ),
        (("headroom", "--like", "batch/nightly-1"), "there is no pod batch/nightly-1; did you mean batch/nightly-0?"),
        (("plan", "--policy", "batch-job"), "no FlowSchedulingPolicy has this name; did you mean batch-jobs?"),
        (("plan", "-n", "bacth"), 'there is no namespace "bacth", or none whose pods you may see; did you mean batch?'),
        (("why", "batch/nighly-0"), "there is no such pod; did you mean batch/nightly-0?"),
        (("why", "job/batch/nighlty"), "no pod belongs to it; did you mean job/batch/nightly?"),
        (("why", "gagn/ml/train"), "did you mean gang?"),
        (("why", "gang/ml/trian"), "no pod belongs to it; did you mean gang/ml/train?"),
        (
            ("why", "shop/frontend"),
            "there is no such pod, but a Deployment has this name: why deployment/shop/frontend",
        ),
        (("why", "batch/nightly"), "there is no such pod, but a Job has this name: why job/batch/nightly"),
        (("why", "ml/train"), "there is no such pod, but a gang has this name: why gang/ml/train"),
        (("what-if", "--drain", "zzz"), "there is no node zzz\n"),
    ],
)
def test_near_names_are_proposed(words: tuple[str, ...], said: str, dump: Path) -> None:
    """Of nodes, pods, workloads, policies and namespaces; nothing where none is near."""
    assert said in thalweg(*words, "-f", dump).stderr


def test_near_commands_are_proposed() -> None:
    """Not the old names, which no help lists."""
    for word, said in (
        ("pln", "Error: there is no command pln; did you mean plan?\n"),
        ("simulat", "Error: there is no command simulat\n"),
        ("whatif", "Error: there is no command whatif; did you mean what-if?\n"),
        ("zzz", "Error: there is no command zzz\n"),
    ):
        done = thalweg(word)
        assert done.returncode == 2
        assert done.stderr.endswith(said)


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "-o", "json"),
        ("status",),
        ("audit", "--fail-above", "WaitingPods=0"),
    ],
    ids=" ".join,
)
def test_a_pipe_that_closes_ends_quietly(words: tuple[str, ...], dump: Path) -> None:
    """As of any program that writes into it, which is no finding, no error and no traceback."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "thalweg", *words, "-f", str(dump)]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False, timeout=120)
    os.close(writing)
    assert done.returncode == 141
    assert all(line.startswith(("Note: ", "Warning: ")) for line in done.stderr.splitlines()), done.stderr


@pytest.mark.parametrize(
    ("words", "last", "proposed"),
    [
        ("what-if -f DUMP --drain", "worker-", ["worker-1", "worker-2", "worker-3"]),
        ("what-if -f DUMP --add-nodes 1 --like", "worker-3", ["worker-3"]),
        ("headroom -f DUMP --like", "sh", ["shop/frontend-5d9f8-aaaaa"]),
        ("headroom -f DUMP -n batch --like", "", ["nightly-0"]),
        ("why -f DUMP", "ba", ["batch/nightly-0"]),
        ("why -f DUMP", "job/", ["job/batch/nightly"]),
        ("why -f DUMP -n batch", "", ["job/nightly", "nightly-0"]),
        ("why -f DUMP", "gang", ["gang/ml/train"]),
        ("plan -f DUMP -n", "b", ["batch"]),
        ("plan -f NOTHING -n", "b", []),
        ("what-if --kubeconfig NOTHING --drain", "w", []),
        ("plan --kubeconfig KUBECONFIG --context", "st", ["staging"]),
        ("what-if --kubeconfig KUBECONFIG --drain", "w", []),
        ("plan --kubeconfig DUMP --context", "", []),
        ("", "ex", []),
    ],
)
def test_the_shell_completes_names(words: str, last: str, proposed: list[str], dump: Path, tmp_path: Path) -> None:
    """Nodes, pods, workloads of those that wait, namespaces, contexts; nothing where they cannot be had."""
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    contexts = [{"name": name, "context": {"cluster": "c", "user": ""}} for name in ("production", "staging")]
    config = {"kind": "Config", "clusters": [cluster], "contexts": contexts, "current-context": "staging", "users": []}
    (tmp_path / "config").write_text(json.dumps(config))
    files = {"DUMP": str(dump), "KUBECONFIG": str(tmp_path / "config"), "NOTHING": str(tmp_path / "none")}
    given = [files.get(word, word) for word in words.split()]
    completions = ShellComplete(main, {}, "thalweg", "").get_completions(given, last)
    assert [each.value for each in completions] == proposed


def test_nothing_is_cut_without_a_word(tmp_path: Path) -> None:
    """`status` has all workloads that were placed, not the first twenty, and says how many there are."""
    path = tmp_path / "now.json"
    pods = [owned(f"j{at}-0", "Job", f"j{at}", "shop") for at in range(30)]
    path.write_text(json.dumps({"kind": "List", "items": [node("a", "100"), *pods]}))
    answer = json.loads(thalweg("status", "-f", path, "-o", "json").stdout)
    assert (len(answer["placed"]), answer["placedCount"]) == (30, 30)
    assert thalweg("status", "-f", path).stdout.count("job/shop/j") == 30


def test_why_says_how_many_more_remedies_there_are() -> None:
    """The last line of what is shown says what is left out."""
    assert list(first_lines(["a", "b", "c"], 2)) == ["a", "b (1 more: -o json)"]
    assert list(first_lines(["a", "b"], 2)) == ["a", "b"]
    assert list(first_lines([], 2)) == []


def test_a_queue_with_a_mistake_says_which() -> None:
    """``status`` has no zeros for a queue that has no share, and what is wrong beside it."""
    queue: Manifest = {"apiVersion": "scheduling.thalweg/v1alpha1", "kind": "FlowQueue"}
    good = queue | {"metadata": {"name": "good"}, "spec": {"guarantee": {"cpu": "1"}}}
    orphan = queue | {"metadata": {"name": "orphan"}, "spec": {"parent": "nowhere"}}

    def lines(*queues: Manifest) -> list[str]:
        objects = {"apiVersion": "v1", "kind": "List", "items": [node("a"), pod("p", "1", nodeName="a"), *queues]}
        done = thalweg("status", "-f", "-", stdin=json.dumps(objects))
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    (row,) = [line for line in lines(good, orphan) if line.startswith("orphan ")]
    assert row.split()[1:5] == ["-", "-", "-", "0"]
    assert row.endswith("spec.parent: there is no FlowQueue nowhere; create it")
    assert not any("MISTAKE" in line for line in lines(good))


def test_names_alone_and_all_pods(dump: Path) -> None:
    """``-o name`` is a name a line, as ``why`` takes it; ``-o wide`` is the table with all pods."""

    def told(*words: str) -> list[str]:
        done = thalweg(*words, "-f", str(dump))
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    names = told("status", "-o", "name")
    assert "job/batch/nightly" in names
    assert set(names) <= set(told("plan", "-o", "name"))
    assert told("why", names[0])
    pods = told("status", "--pods", "-o", "name")
    assert "pod/batch/nightly-0" in pods
    assert set(pods) <= set(told("plan", "--pods", "-o", "name"))
    assert told("why", "pod/batch/nightly-0")[0].startswith("batch/nightly-0: ")
    for command in ("plan", "status"):
        assert told(command, "-o", "wide") == told(command, "--pods")
    assert "leave out -o name" in thalweg("plan", "--compare", "-o", "name", "-f", str(dump)).stderr
