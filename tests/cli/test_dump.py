"""Files that are no dump of a cluster, or not a whole one: ``plan`` and ``why --nodes`` say so."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.cli import Manifest, by_pod, node, pod, to_yaml
from thalweg.main import main

from flowcore.questions.scenario.reading.dump_commands import DUMP_COMMAND
from flowcore.questions.scenario.reading.missing_objects import NO_CLAIMS_MESSAGE

COMMANDS = pytest.mark.parametrize("command", ["plan", "why --nodes"])
WORKLOADS = [
    "CronJob",
    "DaemonSet",
    "Deployment",
    "Job",
    "JobSet",
    "ReplicaSet",
    "ReplicationController",
    "StatefulSet",
]


def run(*files: list[Manifest], folder: Path, command: str = "plan", json_output: bool = False) -> Result:
    """The command on files of these objects, named 0.json, 1.json and so on; run in their folder."""
    words = command.split()
    for at, objects in enumerate(files):
        path = folder / f"{at}.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        words += ["-f", str(path)]
    done = CliRunner().invoke(main, [*words, *(["-o", "json"] if json_output else [])])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exc_info
    return done


def refused(done: Result, folder: Path) -> str:
    """The sentence of a command that ended with exit code 2, without the folder."""
    assert (done.exit_code, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    return line.removeprefix("Error: ").replace(f"{folder}/", "")


def warnings_of(done: Result, folder: Path) -> list[str]:
    """The warnings of a plan as JSON has them; standard error has the same."""
    assert done.exit_code == 0, done.stderr
    found: list[str] = json.loads(done.stdout)["warnings"]
    assert done.stderr.splitlines() == [f"Warning: {each}" for each in found]
    return [each.replace(f"{folder}/", "") for each in found]


def named(kind: str, name: str, version: str = "v1", **more: Any) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "shop"}, **more}


# -- what is no dump ---------------------------------------------------------------------------------------------------


@COMMANDS
@pytest.mark.parametrize("kind", WORKLOADS)
def test_a_workload_without_pods_is_an_error(command: str, kind: str, tmp_path: Path) -> None:
    """Only pods are planned: a Deployment is not an empty cluster, beside nodes neither."""
    web = named(kind, "web", {"Job": "batch/v1", "JobSet": "jobset.x-k8s.io/v1alpha2"}.get(kind, "apps/v1"))
    for objects in ([web], [node("a"), web]):
        said = refused(run(objects, folder=tmp_path, command=command), tmp_path)
        assert said == (
            f"{kind} shop/web: only pods are planned, and the files contain no Pod. Create the {kind} in a cluster and "
            f"dump the cluster: {DUMP_COMMAND}"
        )


@COMMANDS
def test_an_answer_that_is_an_error_is_an_error(command: str, tmp_path: Path) -> None:
    """The Status that an API server answers instead of objects, with its message."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "Unauthorized", "code": 401}
    for objects in ([status], [node("a"), pod("p"), status]):
        said = refused(run(objects, folder=tmp_path, command=command), tmp_path)
        assert said == "0.json: Status: this is an error of the API server, not an object: Unauthorized"


@COMMANDS
def test_a_table_is_an_error(command: str, tmp_path: Path) -> None:
    """What the API server answers to those who ask for columns has no specs."""
    table = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "columnDefinitions": [], "rows": []}
    said = refused(run([table], folder=tmp_path, command=command), tmp_path)
    assert said == f"0.json: Table: this is a table of columns; dump whole objects: {DUMP_COMMAND}"


@COMMANDS
@pytest.mark.parametrize("objects", [[], [pod("p")], [{"apiVersion": "v1", "kind": "Config"}], [named("Service", "s")]])
def test_no_nodes_are_an_error(command: str, objects: list[Manifest], tmp_path: Path) -> None:
    """Nothing can be said of a cluster without nodes; the message has the command that dumps a whole one."""
    said = refused(run(objects, folder=tmp_path, command=command), tmp_path)
    assert said == f"0.json: no Node found. Dump the cluster with: {DUMP_COMMAND}"


def test_a_node_of_another_project_is_none(tmp_path: Path) -> None:
    """The API group tells Kubernetes' kinds from those of the same name."""
    longhorn = named("Node", "a", "longhorn.io/v1beta2")
    assert "no Node found" in refused(run([longhorn, pod("p")], folder=tmp_path), tmp_path)
    done = run([longhorn, node("a"), pod("p")], folder=tmp_path, json_output=True)
    said = "1 Node.longhorn.io object ignored, such as Node.longhorn.io shop/a: plans do not depend on this kind"
    assert warnings_of(done, tmp_path) == [said]
    assert by_pod(done.stdout)["placements"] == {"default/p": "a"}


def test_a_composite_pod_group_is_not_said_to_be_without_effect(tmp_path: Path) -> None:
    """Pods below it wait: plans depend on it, but do not read it yet."""
    composite = named("CompositePodGroup", "all", "scheduling.k8s.io/v1alpha3")
    ignored = "1 CompositePodGroup object ignored, such as CompositePodGroup shop/all"
    said = f"{ignored}: Thalweg does not plan this kind yet, and pods below one wait"
    done = run([composite, node("a"), pod("p")], folder=tmp_path, json_output=True)
    assert warnings_of(done, tmp_path) == [said]
    others = [named("Secret", "s"), {"kind": "Odd"}]
    done = run([composite, *others, node("a"), pod("p")], folder=tmp_path, json_output=True)
    assert warnings_of(done, tmp_path) == [
        said,
        "2 kinds ignored, since plans do not depend on them: Odd (1), Secret (1)",
    ]


# -- what is not read --------------------------------------------------------------------------------------------------


def test_kinds_that_are_not_read_are_counted(tmp_path: Path) -> None:
    """In one line, and the plan is certified all the same."""
    others = [named("Secret", "s"), named("Secret", "t"), named("Deployment", "web", "apps/v1"), {"kind": "Odd"}]
    done = run([node("a"), pod("p"), *others], folder=tmp_path, json_output=True)
    said = "3 kinds ignored, since plans do not depend on them: Deployment (1), Odd (1), Secret (2); of workloads only"
    assert warnings_of(done, tmp_path) == [f"{said} existing pods are planned"]
    done = run([node("a"), pod("p"), *others[:2], {"kind": "Odd"}], folder=tmp_path, json_output=True)
    said = "2 kinds ignored, since plans do not depend on them: Odd (1), Secret (2)"
    assert warnings_of(done, tmp_path) == [said]
    done = run([node("a"), pod("p"), others[2]], folder=tmp_path, json_output=True)
    said = "1 Deployment object ignored, such as Deployment shop/web: only existing pods are planned"
    assert warnings_of(done, tmp_path) == [said]
    assert json.loads(done.stdout)["certified"] is True


# -- objects that come twice -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [node("a", "2"), pod("p", "2"), {**pod("p"), "status": {"phase": "Failed"}}])
def test_an_object_twice_in_a_file_with_different_content_is_an_error(other: Manifest, tmp_path: Path) -> None:
    """Nobody can say which one is meant; a pod's other uid is such a difference."""
    said = refused(run([node("a"), pod("p"), other], folder=tmp_path), tmp_path)
    name = "Node a" if other["kind"] == "Node" else "Pod default/p"
    assert said == f"0.json: {name}: the file contains it twice, with different content"
    ids = [pod("p", metadata={"uid": uid}) for uid in "xy"]
    assert "Pod default/p: the file contains it twice" in refused(run([node("a"), *ids], folder=tmp_path), tmp_path)


def test_the_same_object_twice_in_a_file_is_one(tmp_path: Path) -> None:
    """As are objects of one name in different namespaces, kinds or API groups two."""
    group = {"spec": {"minMember": 1}}
    groups = [
        named("PodGroup", "g", f"{each}/v1", **group) for each in ("scheduling.x-k8s.io", "scheduling.volcano.sh")
    ]
    elsewhere = {**pod("a"), "metadata": {"name": "a", "namespace": "shop"}}
    done = run([node("a"), node("a"), pod("a"), pod("a"), elsewhere, *groups], folder=tmp_path, json_output=True)
    assert warnings_of(done, tmp_path) == []
    assert by_pod(done.stdout)["bound"] == 2


def test_a_later_file_replaces_objects_of_an_earlier_one(tmp_path: Path) -> None:
    """And says so, once for each kind; an object that is new replaces nothing."""
    later = [node("a", "2"), pod("p", "2"), pod("q", "2"), pod("r")]
    done = run([node("a"), pod("p"), pod("q")], later, folder=tmp_path, json_output=True)
    assert warnings_of(done, tmp_path) == [
        "1.json: Node a replaces the version of an earlier file",
        "1.json: 2 Pod objects replace the version of an earlier file",
    ]
    assert by_pod(done.stdout)["bound"] == 1


# -- what is missing ---------------------------------------------------------------------------------------------------

TEAM = {"namespaceSelector": {"matchLabels": {"team": "ml"}}}


def policy(**spec: Any) -> Manifest:
    return {
        "apiVersion": "scheduling.thalweg/v1alpha1",
        "kind": "FlowSchedulingPolicy",
        "metadata": {"name": "team"},
        "spec": spec,
    }


def ours(name: str, **spec: Any) -> Manifest:
    return pod(name, **{"schedulerName": "thalweg", **spec})


CONSTRAINTS = [{"name": "az", "conflict": {"pods": {}, "topologyKey": "zone"}}]


@COMMANDS
@pytest.mark.parametrize(
    ("given", "objects"),
    [
        (policy(selects=TEAM), [ours("p")]),
        (policy(selects=TEAM, constraints=CONSTRAINTS), [pod("r", nodeName="a")]),
    ],
    ids=["a waiting pod", "a running pod that constraints may count"],
)
def test_namespaces_that_a_policy_reads_must_be_there(
    command: str, given: Manifest, objects: list[Manifest], tmp_path: Path
) -> None:
    """Without them nobody can say which policy governs a pod: an error with the policy, the field and the command."""
    said = refused(run([node("a"), given, *objects], folder=tmp_path, command=command), tmp_path)
    assert said == (
        "FlowSchedulingPolicy team: spec.selects.namespaceSelector: the files do not contain Namespace default, "
        "whose labels it reads. Add the namespaces: kubectl get namespaces -o json"
    )
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
    assert run([node("a"), given, *objects, namespace], folder=tmp_path, command=command).exit_code == 0


@pytest.mark.parametrize(
    ("given", "objects"),
    [
        (policy(selects={"namespaceSelector": {}}), [ours("p")]),
        (policy(selects={"podSelector": {}}), [ours("p")]),
        (policy(selects=TEAM), [pod("p"), ours("r", nodeName="a"), ours("over", status={"phase": "Failed"})]),
        (policy(selects={**TEAM, "podSelector": {"matchLabels": {"a": "b"}}}), [ours("p")]),
    ],
    ids=["selects all namespaces", "selects pods only", "no pod that it may govern waits", "other pods wait"],
)
def test_namespaces_that_no_policy_reads_may_be_missing(
    given: Manifest, objects: list[Manifest], tmp_path: Path
) -> None:
    """What is not read is not missed. A policy that governs no pod is told as such."""
    found = warnings_of(run([node("a"), given, *objects], folder=tmp_path, json_output=True), tmp_path)
    assert [each for each in found if "it governs no pod" not in each] == []


@COMMANDS
def test_affinity_that_selects_unknown_namespaces_is_not_certified(command: str, tmp_path: Path) -> None:
    """A warning names the pod and the command; the plan is made and called not certified."""
    term = {"topologyKey": "zone", "labelSelector": {}, **TEAM}
    shy = pod("shy", affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
    said = (
        "Pod default/shy: affinity rules select namespaces by label, but the files do not contain Namespace default. "
        "Add the namespaces: kubectl get namespaces -o json"
    )
    done = run([node("a"), shy], folder=tmp_path, command=command)
    assert done.stderr == f"Warning: {said}\n"
    if command == "plan":
        assert "not certified: objects that the plan needs are missing" in " ".join(done.stdout.split())
        done = run([node("a"), shy], folder=tmp_path, json_output=True)
        assert warnings_of(done, tmp_path) == [said]
        assert json.loads(done.stdout)["certified"] is False


def claiming(name: str, **more: Any) -> Manifest:
    return pod(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}], **more)


def claim(**spec: Any) -> Manifest:
    metadata = {"name": "data", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(("delivery", "scheduler"), [("Extender", "thalweg-steered"), ("Binder", "thalweg")])
def test_claims_that_were_not_dumped(delivery: str, scheduler: str, tmp_path: Path) -> None:
    """Such pods are planned in each delivery, so the claims are missed; the reason has the command."""
    governed = policy(selects={"podSelector": {}}, delivery=delivery)
    done = run(
        [node("a"), governed, claiming("p", schedulerName=scheduler), pod("r")], folder=tmp_path, json_output=True
    )
    answer = by_pod(done.stdout)
    assert answer["placements"] == {"default/r": "a"}
    assert answer["pending"]["default/p"]["reason"] == f"its volume claims (data) cannot be judged: {NO_CLAIMS_MESSAGE}"
    assert answer["certified"] is False
    assert warnings_of(done, tmp_path) == [f"Pod default/p: volume claims are not judged: {NO_CLAIMS_MESSAGE}"]


@pytest.mark.parametrize(
    ("spec", "kind"), [({"volumeName": "v"}, "PersistentVolume"), ({"storageClassName": "fast"}, "StorageClass")]
)
def test_what_claims_name_and_was_not_dumped(spec: Manifest, kind: str, tmp_path: Path) -> None:
    """A kind of which the files have none, though a claim of a waiting pod names one."""
    steered = policy(selects={"podSelector": {}}, delivery="Extender")
    objects = [node("a"), steered, claim(**spec), claiming("p", schedulerName="thalweg-steered")]
    (said,) = warnings_of(run(objects, folder=tmp_path, json_output=True), tmp_path)
    assert said.startswith(
        f"PersistentVolumeClaim default/data: it names a {kind}, but the files contain none. Add them"
    )


def test_pods_that_cannot_be_planned_are_not_certified(tmp_path: Path) -> None:
    """A plan of nothing is no proof."""
    gated = pod("p", schedulingGates=[{"name": "example.com/wait"}])
    done = run([node("a"), gated], folder=tmp_path)
    assert "1 node; 1 pod waits: it is behind gates; no pending pod can be planned" in " ".join(done.stdout.split())


# -- policies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"spec": {"deliveri": "Observe"}}, "FlowSchedulingPolicy team: spec.deliveri: unknown field"),
        (
            {"spec": {"cost": {"weights": {"foo": 3}}}},
            "FlowSchedulingPolicy team: spec.cost.weights.foo: unknown field",
        ),
        ({"specc": {}}, "FlowSchedulingPolicy team: specc: unknown field"),
        ({"apiVersion": "scheduling.thalweg/v2"}, "apiVersion: 'scheduling.thalweg/v2' is not one of"),
        (
            {"spec": {"selects": {"schedulerNames": ["a", "a"]}}},
            "spec.selects.schedulerNames: ['a', 'a'] has non-unique elements",
        ),
        ({"spec": {"gangs": {"timeout": "10m\n"}}}, "spec.gangs.timeout: '10m\\n' does not match '^("),
    ],
)
def test_a_policy_that_the_api_server_refuses_is_refused(change: Manifest, said: str, tmp_path: Path) -> None:
    """With the file, the object and the field. That both refuse the same: tests/e2e/test_dumps.py."""
    refusal = refused(run([node("a"), {**policy(), **change}], folder=tmp_path), tmp_path)
    assert refusal.startswith("0.json: FlowSchedulingPolicy team: ")
    assert said in refusal


def test_fields_of_earlier_versions_are_named_and_do_not_count(tmp_path: Path) -> None:
    """With file, object and field, and what holds now; the plan is that of a policy without them."""
    selects = {"podSelector": {}}
    kinds = [{"name": "web", "pods": {}}]
    interference, machines = {"default": 300}, {"label": "gen"}
    earlier = policy(
        selects=selects,
        cost={
            "dataLocality": {"zoneLabel": "site"},
            "kinds": kinds,
            "interference": {**interference, "weight": 0},
            "machines": {**machines, "weight": 2},
        },
    )
    now = policy(
        selects=selects, cost={"dataLocality": {}, "kinds": kinds, "interference": interference, "machines": machines}
    )
    objects = [node("a", cpu="4"), node("b", cpu="2"), ours("p"), ours("q")]
    done = run([*objects, earlier], folder=tmp_path, json_output=True)
    of = "0.json: FlowSchedulingPolicy team: spec.cost."
    assert warnings_of(done, tmp_path) == [
        f"{of}dataLocality.zoneLabel is ignored since 0.1.0: zones are values of the label topology.kubernetes.io/zone",
        f"{of}interference.weight is ignored since 0.1.0: each penalty counts as it is stated",
        f"{of}machines.weight is ignored since 0.1.0: each slowdown counts as it is stated",
    ]
    plans = [by_pod(each.stdout) for each in (done, run([*objects, now], folder=tmp_path, json_output=True))]
    for part in ("cost", "placements", "pending"):
        assert plans[0][part] == plans[1][part]


def test_fields_of_earlier_versions_with_their_defaults_go_in_silence(tmp_path: Path) -> None:
    """The API server wrote these into every policy, and they mean what holds now. A null is an absent field."""
    cost = {
        "dataLocality": {"zoneLabel": "topology.kubernetes.io/zone"},
        "kinds": [{"name": "web", "pods": {}}],
        "interference": {"default": 300, "weight": 1},
        "machines": {"label": "gen", "weight": None},
    }
    earlier = policy(selects={"podSelector": {}}, cost=cost)
    done = run([node("a"), ours("p"), earlier], folder=tmp_path, json_output=True)
    assert warnings_of(done, tmp_path) == []


def test_a_policy_as_the_api_server_gives_it_back_is_taken(tmp_path: Path) -> None:
    """With its status and all that the API server adds to metadata; nulls stand for nothing."""
    metadata = {"name": "team", "uid": "u", "generation": 2, "managedFields": [{"manager": "kubectl"}]}
    stored = {**policy(delivery=None, selects={"podSelector": None}), "metadata": metadata, "status": {"odd": 1}}
    found = warnings_of(run([node("a"), pod("p"), stored], folder=tmp_path, json_output=True), tmp_path)
    assert found == ["policy team: spec.selects is empty: it governs no pod"]


def test_a_policy_that_contains_itself_is_refused(tmp_path: Path) -> None:
    """YAML can say that; the reader ends in words."""
    text = "&a {apiVersion: scheduling.thalweg/v1alpha1, kind: FlowSchedulingPolicy, metadata: {name: p}, spec: *a}"
    (tmp_path / "dump.yaml").write_text(to_yaml(node("a")) + f"---\n{text}\n")
    done = CliRunner().invoke(main, ["plan", "-f", str(tmp_path / "dump.yaml")])
    assert refused(done, tmp_path) == "dump.yaml: a value contains itself by an alias"
