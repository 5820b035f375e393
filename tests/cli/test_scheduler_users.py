"""Who names a scheduler of Thalweg: found by templates and pods, told what becomes of them, given another scheduler."""

import json
import shlex
from typing import Any

import msgspec
import pytest
from thalweg.doctor.before_uninstall import before_uninstall
from thalweg.doctor.findings import Verdict
from thalweg.scheduler_users.printing import warn
from thalweg.scheduler_users.reading import SchedulerUsers
from thalweg.scheduler_users.users import SchedulerUser, scheduler_users, schedulers_of, what_becomes
from thalweg.uninstall.patches import patches
from thalweg.wire_objects import Pod, Workload

from flowcore.api.policies import parse_policy
from flowcore.model.cost_policy import KnownModels
from flowcore.model.policies import BUILT_IN, GATE

OURS, STEERED = "thalweg", "thalweg-steered"
SERVED = {OURS: False, STEERED: True}


def workload(name: str, scheduler: str = OURS, owner: str = "", conditions: tuple[str, ...] = ()) -> Workload:
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "shop", "ownerReferences": owners(owner)},
            "spec": {"template": {"spec": {"schedulerName": scheduler}}},
            "status": {"conditions": [{"type": each, "status": "True"} for each in conditions]},
        },
        Workload,
    )


def cron_job(name: str) -> Workload:
    job = {"spec": {"template": {"spec": {"schedulerName": OURS}}}}
    return msgspec.convert({"metadata": {"name": name, "namespace": "shop"}, "spec": {"jobTemplate": job}}, Workload)


def owners(owner: str) -> list[dict[str, Any]]:
    kind, _, name = owner.partition("/")
    return [{"kind": kind, "name": name, "controller": True}] if owner else []


def pod(name: str, owner: str = "", node: str = "", scheduler: str = OURS, phase: str = "", **more: Any) -> Pod:
    metadata = {"name": name, "namespace": "shop", "ownerReferences": owners(owner), "labels": more.pop("labels", {})}
    spec = {"schedulerName": scheduler, "nodeName": node, **more}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": phase}}, Pod)


HASH = {"labels": {"pod-template-hash": "5d9f8"}}
WORKLOADS = {
    "Deployment": [workload("cart"), workload("other", "default-scheduler"), workload("idle")],
    "StatefulSet": [workload("db")],
    "CronJob": [cron_job("nightly")],
    "Job": [
        workload("nightly-1", owner="CronJob/nightly"),
        workload("train", owner="JobSet/llm"),
        workload("done", conditions=("Complete",)),
    ],
}
PODS = [
    pod("cart-5d9f8-a", "ReplicaSet/cart-5d9f8", "n", **HASH),
    pod("cart-5d9f8-b", "ReplicaSet/cart-5d9f8", **HASH),
    pod("db-0", "StatefulSet/db", "n"),
    pod("db-1", "StatefulSet/db", schedulingGates=[{"name": GATE}]),
    pod("nightly-1-x", "Job/nightly-1"),
    pod("ring-0", "RayCluster/ring"),
    pod("alone"),
    pod("runs", node="n"),
    pod("ended", node="n", phase="Succeeded"),
    pod("steered", scheduler=STEERED),
    pod("theirs", scheduler="default-scheduler"),
]


def found() -> dict[str, SchedulerUser]:
    return {str(each): each for each in scheduler_users(SERVED, WORKLOADS, PODS)}


def test_they_are_found_by_their_templates_and_by_their_pods() -> None:
    """A workload without pods counts by its template, a controller of another kind by its pods."""
    counts = {name: (each.template, each.running, each.waiting, each.gated) for name, each in found().items()}
    assert counts == {
        "Deployment shop/cart": (True, 1, 1, 0),
        "Deployment shop/idle": (True, 0, 0, 0),
        "StatefulSet shop/db": (True, 1, 1, 1),
        "CronJob shop/nightly": (True, 0, 1, 0),
        "Job shop/train": (True, 0, 0, 0),
        "RayCluster shop/ring": (False, 0, 1, 0),
        "Pod shop/alone": (False, 0, 1, 0),
        "Pod shop/runs": (False, 1, 0, 0),
        "Pod shop/steered": (False, 0, 1, 0),
    }


def test_which_schedulers_are_ours() -> None:
    """The two names, and those of policies that act; never kube-scheduler's own."""
    specs: list[dict[str, Any]] = [
        {"selects": {"schedulerNames": ["batch"], "podSelector": {}}},
        {"selects": {"schedulerNames": ["default-scheduler", "profile"], "podSelector": {}}, "delivery": "Extender"},
        {"selects": {"schedulerNames": ["watched"], "podSelector": {}}, "delivery": "Observe"},
        {},
    ]
    known = KnownModels((BUILT_IN.cost.model,))
    policies = [parse_policy(f"p{number}", spec, known) for number, spec in enumerate(specs)]
    assert schedulers_of(policies) == {OURS: False, STEERED: True, "batch": False, "profile": True}


def test_what_becomes_of_them() -> None:
    """A sentence for each scheduler that is named, with the number of pods that wait for ever."""
    ours, steered = what_becomes(found().values(), {**SERVED, "unused": False})
    assert ours.startswith("8 objects name the scheduler thalweg, with 3 running pods and 5 waiting pods.")
    assert ours.endswith("Without Thalweg waiting, new and restarted pods wait for ever, without an Event.")
    assert steered.startswith("1 object names the scheduler thalweg-steered, with 0 running pods and 1 waiting pod.")
    assert "a kube-scheduler with a profile thalweg-steered" in steered


def test_the_commands_that_give_them_another_scheduler() -> None:
    """Templates that can change are patched; a StatefulSet's waiting pod is deleted; the rest is said in a comment."""
    lines = list(patches(found().values(), "default-scheduler"))
    commands = [shlex.split(line) for line in lines if not line.startswith("#")]
    template = {"template": {"spec": {"schedulerName": "default-scheduler"}}}
    patched = {tuple(words[4:6]): json.loads(words[7]) for words in commands if words[3] == "patch"}
    assert patched == {
        ("deployment", "cart"): {"spec": template},
        ("deployment", "idle"): {"spec": template},
        ("statefulset", "db"): {"spec": template},
        ("cronjob", "nightly"): {"spec": {"jobTemplate": {"spec": template}}},
    }
    assert [words[3:] for words in commands if words[3] == "delete"] == [
        ["delete", "pod", "db-1", "--ignore-not-found", "--wait=false"]
    ]
    comments = "\n".join(line for line in lines if line.startswith("#"))
    for user in (
        "CronJob shop/nightly",
        "Job shop/train",
        "RayCluster shop/ring",
        "Pod shop/alone",
        "Pod shop/steered",
    ):
        assert comments.count(f"# {user}: ") == 1
    assert "Pod shop/runs" not in comments, "it runs on, and nothing restarts it"


@pytest.mark.parametrize("owner", ["Job/a\ntouch robbed", "Ring\ntouch robbed/a", "Ring/$(touch robbed)", "Ring/a b"])
def test_owners_that_are_no_names_write_no_commands(owner: str) -> None:
    """Who makes a pod writes any text into its owner references. Such a pod counts as one without a controller."""
    (user,) = scheduler_users(SERVED, {}, [pod("alone", owner)])
    assert str(user) == "Pod shop/alone"
    (line,) = patches([user], "default-scheduler")
    assert line.startswith("# Pod shop/alone: ")
    assert "robbed" not in line
    assert "\n" not in line


def test_the_warning_is_short() -> None:
    """It names the first twenty, and says how many more there are and what to read."""
    users = tuple(SchedulerUser("Deployment", "shop", f"w{number}", OURS, True) for number in range(25))
    said: list[str] = []
    warn(SchedulerUsers(users, SERVED, ("Jobs are not read",)), said.append)
    assert said[0] == "Jobs are not read"
    assert len([line for line in said if line.startswith("  Deployment")]) == 20
    assert any("and 5 more" in line for line in said)
    assert "docs/how-to/remove-thalweg.md" in said[-1]


def test_the_doctors_check() -> None:
    """It warns of each scheduler and of gates, skips what could not be read, and says where nothing is named."""
    users = tuple(found().values())
    findings = list(before_uninstall(SchedulerUsers(users, SERVED, ("Jobs are not read",))))
    assert [each.verdict for each in findings] == [Verdict.SKIP, Verdict.WARN, Verdict.WARN, Verdict.WARN]
    assert findings[-1].sentence == "1 pod is behind Thalweg's scheduling gate."
    (nothing,) = before_uninstall(SchedulerUsers((), SERVED, ()))
    assert (nothing.verdict, nothing.sentence) == (
        Verdict.OK,
        "Nothing names a scheduler of Thalweg (thalweg, thalweg-steered).",
    )
