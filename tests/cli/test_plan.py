"""`thalweg plan` and `status` on a dump: what people read."""

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from rich.console import Console
from support.cli import Manifest, node, pod, thalweg
from thalweg.questions.status import SORTS, age, of_dump, show, tables_of
from thalweg.questions.status_run import screen_of
from thalweg_view.rounds import RoundRow
from thalweg_view.status import StatusEviction, StatusQuery

from flowcore.model.policies import Delivery, Policy
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.context import AnswerContext
from flowcore.questions.scenario.planned_workloads import PlannedWorkload
from flowcore.questions.scenario.reading.saved import read_state, state_of

_OBSERVING: Manifest = {
    "apiVersion": "scheduling.thalweg/v1alpha1",
    "kind": "FlowSchedulingPolicy",
    "metadata": {"name": "watching"},
    "spec": {"delivery": "Observe", "selects": {"schedulerNames": ["other"], "podSelector": {}}},
}


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two waiting pods, one that only a policy observes, and one that another scheduler put beside a full node."""
    wanted = {"kubernetes.io/hostname": "b"}
    objects = [
        node("a"),
        node("b"),
        _OBSERVING,
        pod("small", "1", schedulerName="thalweg"),
        pod("large", "9", schedulerName="thalweg"),
        pod("told", "1", schedulerName="other"),
        pod("misplaced", "1", schedulerName="other", nodeName="a", nodeSelector=wanted),
    ]
    path = tmp_path_factory.mktemp("dump") / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return path


def test_the_plan_for_people(dump: Path) -> None:
    """Nodes, reasons, what is not carried out, and what differs from another scheduler's choice."""
    done = thalweg("plan", "-f", dump, "--pods")
    assert done.returncode == 0, done.stderr
    lines = {words[0]: words for line in done.stdout.splitlines() if (words := line.split())}
    assert lines["default/small"][1] in ("a", "b")
    assert lines["default/told"][3:] == ["not", "carried", "out", "(Observe)"]
    assert "Insufficient cpu" in " ".join(lines["default/large"])
    assert lines["default/misplaced"] == ["default/misplaced", "watching", "a", "b"]
    assert "policy watching (Observe): 1 of 1 running pod would be elsewhere" in done.stdout
    assert done.stdout.splitlines()[0].startswith("2 nodes; 3 pods wait: 2 get a node, 1 has none")
    assert "no plan costs less than 0" not in done.stdout
    done = thalweg("plan", "-f", dump)
    assert "pod/default/large  waits: cpu (best node lacks 6)" in done.stdout


def test_one_namespace_of_a_dump(dump: Path) -> None:
    """A dump lists all namespaces unless one is named."""
    done = thalweg("plan", "-f", dump, "-n", "other", "-o", "json")
    answer: dict[str, Any] = json.loads(done.stdout)
    assert (answer["placed"], answer["waiting"], answer["nodes"]) == ([], [], 2)


def test_a_namespace_that_is_not_there_is_named(dump: Path) -> None:
    """By each command that lists pods of a namespace: it may be a typing error."""
    warning = 'Warning: there is no namespace "shopp", or none whose pods you may see\n'
    for words, said in (
        (("plan",), "2 nodes; no pod of namespace shopp waits\n"),
        (("status",), "2 nodes, 1 running pod; no pod of namespace shopp waits\n"),
        (("why", "--nodes"), "no pod of namespace shopp waits"),
    ):
        done = thalweg(*words, "-f", dump, "-n", "shopp")
        assert (done.returncode, done.stderr) == (0, warning)
        assert done.stdout.startswith(said)
    assert thalweg("plan", "-f", dump, "-n", "default").stderr == ""
    done = thalweg("plan", "-f", dump, "-n", "shopp", "--policy", "watching")
    assert done.stdout.startswith("2 nodes; no pod of policy watching in namespace shopp waits")


def test_what_is_listed_is_of_the_namespace(tmp_path: Path) -> None:
    """By status and why, as by plan; -A lists all, as for kubectl."""
    of_shop = {"namespace": "shop"}
    low = pod("low", "3", nodeName="a", priority=1, status={"phase": "Running"}, metadata=of_shop)
    objects = [node("a"), low, pod("p", "3", priority=2), pod("q", "9"), pod("cart", "9", metadata=of_shop)]
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"kind": "List", "items": objects}))
    names = {"default/p", "default/q", "shop/cart"}
    for words, shown in (((), names), (("-n", "default"), names - {"shop/cart"}), (("-n", "shop"), {"shop/cart"}),
                         (("-n", "shop", "-A"), names)):  # fmt: skip
        verdicts = json.loads(thalweg("why", "--nodes", "-f", path, *words, "-o", "json").stdout)
        assert {each["pod"] for each in verdicts} == shown
        status = json.loads(thalweg("status", "-f", path, *words, "--pods", "-o", "json").stdout)
        assert {each["pod"] for each in status["pods"]} == shown - {"default/p"}
        assert {each["workload"] for each in status["workloads"]} == {f"pod/{name}" for name in shown}
        assert [each["workload"] for each in status["placed"]] == (["pod/default/p"] if "default/p" in shown else [])
        assert (status["waiting"], status["planned"]) == (len(shown), int("default/p" in shown))
        assert sum(status["overview"]["codes"].values()) == len(shown - {"default/p"})
    # Who leaves concerns the namespace of who leaves, and of whom it leaves for.
    for namespace, evicted in (("default", 1), ("shop", 1), ("other", 0)):
        status = json.loads(thalweg("status", "-f", path, "-n", namespace, "-o", "json").stdout)
        assert (len(status["evictions"]), status["evictionCount"]) == (evicted, evicted)


@pytest.mark.parametrize(
    "words",
    [("plan",), ("status",), ("why", "large"), ("why", "--nodes"), ("headroom", "--cpu", "1"), ("plan", "--nodes")],
)
def test_yaml_has_what_json_has(words: tuple[str, ...], dump: Path) -> None:
    """For who reads it, and for tools that take YAML."""
    as_yaml, as_json = (thalweg(*words, "-f", dump, "-o", output) for output in ("yaml", "json"))
    assert (as_yaml.returncode, as_yaml.stdout.count("\n") > 1, as_json.stdout.count("\n")) == (0, True, 1)
    found, expected = yaml.safe_load(as_yaml.stdout), json.loads(as_json.stdout)
    if "seconds" in expected:
        found["seconds"] = expected["seconds"]
    assert found == expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("plan", "--nodes"),
            "--nodes is for -o json and yaml; a table of the nodes of one pod: thalweg why POD",
        ),
        (("plan", "--compare", "--pods"), "leave out --pods"),
        (("plan", "--compare", "--policy", "watching"), "--compare is of the whole cluster: leave out --policy"),
        (("headroom", "--scale-ups", "-1"), "-1 is not in the range x>=0"),
        (("why", "p", "-A"), "-A lists all waiting pods: leave out -A, or the targets"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(words: tuple[str, ...], said: str, dump: Path) -> None:
    """In one sentence that says what to do."""
    done = thalweg(*words, "-f", dump)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_the_status_for_people(dump: Path) -> None:
    """Counts, workloads, policies and reasons; a dump is planned as `thalweg plan` does."""
    done = thalweg("status", "-f", dump)
    assert done.stdout.splitlines()[:2] == [
        "2 nodes, 1 running pod; 3 pods wait: 2 get a node, 1 has none",
        "1 pod has no node; no plan leaves fewer",
    ]
    (row,) = [line.split() for line in done.stdout.splitlines() if line.startswith("pod/default/large")]
    assert row[2:] == ["1", "of", "1", "-", "cpu", "(best", "node", "lacks", "6)"]
    (row,) = [line.split() for line in done.stdout.splitlines() if line.startswith("watching")]
    assert row == ["watching", "Observe", "1", "0", "1"]
    assert "(observed)" not in done.stdout  # no pod is without a policy
    assert "WAIT FOR  PODS\ncpu       1" in done.stdout


def test_the_status_pod_by_pod(dump: Path) -> None:
    """With --pods: each waiting pod with its reason, and no line of a workload."""
    done = thalweg("status", "-f", dump, "--pods")
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("default/large")]
    assert "Insufficient cpu" in row
    assert "pod/default/large" not in done.stdout
    assert json.loads(thalweg("status", "-f", dump, "-o", "json").stdout)["pods"] == []


def test_who_leaves_by_workload(tmp_path: Path) -> None:
    """Two pods of a ReplicaSet that leave for one pod are one line; --pods names both."""
    owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": True, "uid": "u"}]
    low = [
        pod(name, "2", schedulerName="thalweg", nodeName="a", priority=0, metadata={"ownerReferences": owner})
        for name in ("web-1", "web-2")
    ]
    objects = [node("a"), *low, pod("urgent", "4", schedulerName="thalweg", priority=1000)]
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    plan = thalweg("plan", "-f", path).stdout
    (row,) = [line for line in plan.splitlines() if line.startswith("replicaset/default/web  2")]
    assert "pod/default/urgent" in row
    lines = thalweg("plan", "-f", path, "--pods").stdout.splitlines()
    leaving = [words[0] for line in lines if "Preemption:" in (words := line.split())]
    assert leaving == ["default/web-1", "default/web-2"]
    answer = json.loads(thalweg("plan", "-f", path, "-o", "json").stdout)
    alike = {
        "node": "a",
        "kind": "Preemption",
        "for": ["default/urgent"],
        "to": "",
        "reason": "",
        "gain": 0,
        "price": 750,
        "acts": True,
    }
    assert answer["evictions"] == [{"pod": name, **alike} for name in leaving]
    assert answer["evictionsByWorkload"] == [
        {"workload": "replicaset/default/web", "kind": "Preemption", "for": ["pod/default/urgent"], "pods": 2,
         "moved": 0, "gain": 0, "acts": True}
    ]  # fmt: skip
    assert answer["proposals"] == answer["proposalsByWorkload"] == []
    assert {each["workload"]: each["evicted"] for each in answer["workloads"]} == {
        "pod/default/urgent": 0, "replicaset/default/web": 2
    }  # fmt: skip


def test_the_status_has_what_waits_longest(dump: Path) -> None:
    """What waits longest, for how long and why; and what the plan places."""
    done = thalweg("status", "-f", dump)
    lines = done.stdout.splitlines()
    waits = next(at for at, line in enumerate(lines) if line.startswith("WAITS LONGEST"))
    assert lines[waits + 1].split()[0] == "pod/default/large"
    assert lines[waits + 1].endswith("cpu (best node lacks 6)")
    assert "PLACED             PODS" in lines
    assert not any(line.startswith("ROUND") for line in lines)


def test_the_key_s_sorts_what_waits() -> None:
    """By age the oldest is first; by pods the one of which most wait."""
    rows = [PlannedWorkload("job/b/few", 2, 0, 2, {"X": 2}, since=10.0, short={"cpu": 2}),
            PlannedWorkload("job/a/many", 9, 1, 8, {"Y": 8}, since=50.0, short={"volumes": 8})]  # fmt: skip
    answer = msgspec.structs.replace(of_dump(Scenario(), StatusQuery(), AnswerContext(110.0)), workloads=rows)
    first = {sort: tables_of(answer, sort)[0][1][0] for sort in SORTS}
    assert first["age"] == ("job/b/few", "1m", "2 of 2", "-", "cpu")
    assert [first[sort][0] for sort in ("pods", "namespace", "reason")] == ["job/a/many", "job/a/many", "job/b/few"]
    assert [age(seconds) for seconds in (5, 60, 119, 7199, 7200, 172_800)] == ["5s", "1m", "1m", "119m", "2h", "2d"]


def test_the_status_says_what_auto_decided(capsys: pytest.CaptureFixture[str]) -> None:
    """Where new pods wait and why, as an operator's saved state has it."""
    scenario = Scenario(policies={"p": Policy("p", delivery=Delivery.EXTENDER)}, held={"p": "New pods get the gate."})
    again = read_state(line.decode() for line in state_of(scenario))
    show(of_dump(again, StatusQuery(), AnswerContext(0.0)))
    assert "p: waiting Auto. New pods get the gate." in capsys.readouterr().out


def test_the_screen_of_watch() -> None:
    """Rounds, leaving pods and the newest round's proof are drawn; names that look like markup are text."""
    answer = of_dump(Scenario(), StatusQuery(), AnswerContext(0.0))
    answer = msgspec.structs.replace(
        answer, overview=msgspec.structs.replace(answer.overview, source="live"), rounds=[]
    )
    answer.rounds.append(RoundRow(7, 0.0, 0.25, 3, 2, 1, 200, 150, 0.25, certified=False, method="flow"))
    answer.evictions.append(StatusEviction("shop/[red]x", "a", "Preemption", ""))
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(screen_of(answer, SORTS[0]))
    text = console.export_text()
    assert "round 7 at 00:00:00Z: 3 placed, 2 left, 0.25 s" in text
    assert "gap <= 25.0 %" in text
    assert "q: quit" in text
    assert "shop/[red]x" in text


def test_pods_that_no_policy_governs(tmp_path: Path) -> None:
    """Each command says that another scheduler binds them, and that who would leave for them stays."""
    low = pod("low", "4", nodeName="a", priority=0, status={"phase": "Running"})
    path = tmp_path / "dump.json"
    ours = pod("ours", "9", schedulerName="thalweg")
    path.write_text(json.dumps({"kind": "List", "items": [node("a"), low, pod("urgent", "4", priority=1), ours]}))
    whose = "No policy governs 1 of these pods: default-scheduler binds it. Thalweg changes nothing for it."
    leaves = "1 running pod would leave, without a new node"
    for words in (("plan",), ("plan", "--pods"), ("plan", "--compare"), ("status",)):
        lines = thalweg(*words, "-f", path).stdout.splitlines()
        assert lines[0].endswith("2 pods wait: 1 gets a node, 1 has none")
        assert lines[1:3] == [leaves, whose]
        assert not any(line.startswith("LEAVES") for line in lines)
    policies = {words[0]: words[1:] for line in lines if len(words := line.split()) == 5}
    assert policies["(built-in)"] == ["Binder", "0", "1", "0"]
    assert policies["(observed)"] == ["Observe", "1", "0", "1"]
    answer = json.loads(thalweg("plan", "-f", path, "-o", "json").stdout)
    assert [(each["policy"], each["acts"]) for each in answer["placed"]] == [("(observed)", False)]
    assert [each["policy"] for each in answer["waiting"]] == ["(built-in)"]
    assert [each["acts"] for each in (*answer["evictions"], *answer["evictionsByWorkload"])] == [False, False]
    assert answer["ungoverned"] == {"pods": 1, "schedulers": ["default-scheduler"], "sentence": whose}
