"""The operator learns from pods that are done, and sends what it knows with the policies that ask for it."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from thalweg_operator.planning.inputs.learnt_costs import LearntCosts

from flowcore.api.base import Interner
from flowcore.api.pods import WirePod, to_pod
from flowcore.api.policies import parse_policy
from flowcore.cluster.cluster import Cluster
from flowcore.cluster.learning import learnt_costs, work_of
from flowcore.costs import BUILT_IN_MODELS
from flowcore.model.nodes import Node
from flowcore.model.pods import Pod
from flowcore.model.policies import Policy

BEGIN = 1_700_000_000
KINDS = [{"name": name, "pods": {"matchLabels": {"kind": name}}} for name in ("web", "noisy")]
SPEC: dict[str, Any] = {
    "selects": {"podSelector": {}},
    "cost": {
        "kinds": KINDS,
        "learn": True,
        "interference": {"default": 0},
        "machines": {"label": "gen", "slowdowns": [{"kind": "noisy", "machine": "old", "slowdown": "1.5"}]},
    },
}


def policy(**cost: Any) -> Policy:
    return parse_policy("p", {**SPEC, "cost": {**SPEC["cost"], **cost}}, BUILT_IN_MODELS)


def time_at(seconds: float) -> str:
    return datetime.fromtimestamp(BEGIN + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(name: str, kind: str, node: str, seconds: float = 0.0, phase: str = "Succeeded") -> Pod:
    """A pod of the controller ``job`` that began at 0 and ran for so long, if it succeeded."""
    ended = {"startedAt": time_at(0), "finishedAt": time_at(seconds)}
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "job", "controller": True}
    manifest = {
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "labels": {"kind": kind},
            "ownerReferences": [job],
        },
        "spec": {"nodeName": node, "schedulerName": "thalweg", "containers": [{"name": "main"}]},
        "status": {
            "phase": phase, "startTime": time_at(0),
            "containerStatuses": [{"name": "main", "state": {"terminated": ended} if phase != "Running" else {}}],
        },
    }  # fmt: skip
    return to_pod(msgspec.convert(manifest, WirePod), Interner())


class Scene:
    """Forty nodes of two generations; a noisy pod on half of them, which makes pods of one Job take longer by half."""

    def __init__(self, phase: str = "Succeeded") -> None:
        self.seconds, self.cluster = 5_000.0, Cluster()
        self.learnt = LearntCosts(self.cluster, lambda: self.seconds, lambda: BEGIN + self.seconds)
        for at in range(40):
            name, old, noisy = f"n{at}", at % 2, at % 4 < 2
            self.cluster.put_node(Node(name, labels=(("gen", "old" if old else "new"),)))
            took = 1000.0 * (1.5 if noisy else 1.0) * (1.2 if old else 1.0)
            self.cluster.put_pod(pod(f"web{at}", "web", name, took, phase))
            if noisy:
                self.cluster.put_pod(pod(f"noisy{at}", "noisy", name, phase="Running"))

    def costs(self, asked: Policy) -> Any:
        """Of the policy as the worker is sent it."""
        (found,) = asyncio.run(self.learnt.applied([asked]))
        assert msgspec.structs.replace(found, cost=asked.cost) == asked
        return found.cost


def test_finished_pods_tell_of_neighbours_and_machines() -> None:
    """From the times in their status; what they do not tell stays as the policy states it."""
    found = Scene().costs(policy())
    assert found.interference.penalties[0] == (0, pytest.approx(500, abs=30))
    assert found.interference.penalties[1] == (0, 0)
    slowdowns = {(kind, machine): slowdown for kind, machine, slowdown in found.machines.slowdowns}
    assert slowdowns == {("noisy", "old"): 1500, ("web", "new"): 1000, ("web", "old"): pytest.approx(1200, abs=30)}


def test_a_dump_tells_the_same() -> None:
    """What ``plan`` learns from all pods at once is what the operator knows after its first look."""
    scene, asked = Scene(), policy()
    cluster = scene.cluster
    assert learnt_costs(asked.cost, cluster.pods.values(), cluster.nodes, BEGIN + 5_000.0) == scene.costs(asked)


@pytest.mark.parametrize("phase", ["Failed", "Running"])
def test_only_pods_that_succeeded_tell_anything(phase: str) -> None:
    """A pod that failed did not do its work, and one that runs has not done it yet."""
    asked = policy()
    assert Scene(phase).costs(asked) == asked.cost


def test_a_policy_that_does_not_learn_is_sent_as_it_is() -> None:
    """The same object: nothing is looked at for it."""
    scene, asked = Scene(), policy(learn=False)
    (found,) = asyncio.run(scene.learnt.applied([asked]))
    assert found is asked


def test_what_was_learnt_outlives_the_pods_and_a_change_of_the_policy() -> None:
    """But not a change of its kinds: then it begins again."""
    scene = Scene()
    learnt = scene.costs(policy())
    for key in list(scene.cluster.pods):
        scene.cluster.remove_pod(key)
    scene.seconds += 3600
    assert scene.costs(policy()) == learnt
    stated = policy(interference={"default": 7})
    assert scene.costs(stated).interference.penalties == ((7, learnt.interference.penalties[0][1]), (7, 7))
    other = policy(kinds=[*KINDS[::-1]])
    assert scene.costs(other) == other.cost


def test_jobs_of_a_cron_job_do_the_same_work() -> None:
    """Though each has another controller; pods without one do work of their own."""
    of_job = [pod(name, "web", "n0") for name in ("report-29384120-abcde", "report-29384180-x7z9k")]
    assert len({work_of(each) for each in of_job}) == 1
    assert work_of(pod("train-3-abcde", "web", "n0")) == "job"
