"""The worker process has limits of memory and time of its own; what happens at them is told, and nothing else ends."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.model import node, pod
from thalweg_operator.errors import WorkerLost
from thalweg_operator.planning.worker.client import WorkerClient
from thalweg_operator.planning.worker.messages import PendingEntry, RoundRequest
from thalweg_operator.planning.worker.process_limits import (
    LEAST_MEMORY,
    RoundExpired,
    default_memory,
    resident_memory,
    time_limit,
)

from flowcore.cluster.changes import ClusterChanges
from flowcore.model.cost_policy import CostPolicy
from flowcore.model.policies import BUILT_IN, Policy

LIMIT = 400 * 2**20

#: A plug-in whose cost model does what a poison pod makes ours do.
PLUGIN = """
import os, signal, time
import numpy as np
from flowcore.costs import CPUMemory

class Bad(CPUMemory):
    name = "{name}"
    def arc_costs(self, pod_class, size, load, weights):
        if dict(pod_class.requests).get("cpu") == 666:
            {does}
        return super().arc_costs(pod_class, size, load, weights)
"""
DOES = {
    "Hungry": "self.kept = [np.zeros(2**24) for _ in range(100)]",
    "Slow": "[sum(range(1000)) for _ in range(10**9)]",
    "Stuck": "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM]); time.sleep(1000)",
    "Aborts": "os.abort()",
    "Killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "Raises": "raise ValueError('no such thing')",
}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs the plug-ins."""
    entries = ["[thalweg.cost_models]"]
    for name, does in DOES.items():
        (tmp_path / f"bad_{name.lower()}.py").write_text(PLUGIN.format(name=name, does=does))
        entries.append(f"{name} = bad_{name.lower()}:Bad")
    info = tmp_path / "bad-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 1\n")
    (info / "entry_points.txt").write_text("\n".join(entries))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.fixture
async def client(site: None) -> AsyncIterator[WorkerClient]:
    del site
    made = WorkerClient(60, memory=LIMIT)
    await made.start()
    yield made
    await made.stop()


def request(model: str, cpu: int, deadline: float = 0.0) -> RoundRequest:
    waiting = pod("w", cpu)
    policy = Policy("p", cost=CostPolicy(model))
    return RoundRequest(
        number=1,
        generation=1,
        now=0.0,
        reset=True,
        changes=ClusterChanges(nodes=[node("n")]),
        policies=[policy],
        classes=[waiting.pod_class],
        signatures=[waiting.signature],
        pending=[PendingEntry(waiting.key, 0, 0, 0.0, 0)],
        budget=0.1,
        deadline=deadline,
    )


@pytest.mark.parametrize(
    ("model", "cause", "words"),
    [
        ("Hungry", "memory", "the worker reached its memory limit of 400Mi"),
        ("Slow", "timeout", "no plan after 1 s, in "),
        ("Stuck", "timeout", "no plan after 1 s"),
        ("Aborts", "memory", "the worker process ended (SIGABRT); its memory limit is 400Mi"),
        ("Killed", "memory", "the worker process was killed, most likely since memory ran out"),
        ("Raises", "error", "ValueError('no such thing')"),
    ],
)
async def test_a_round_beyond_its_limits_is_lost_and_says_why(
    client: WorkerClient, model: str, cause: str, words: str
) -> None:
    """The real process: the problem is named, and the next worker plans other pods."""
    await client.ask(request(BUILT_IN.cost.model, 100))  # until then it imports what it needs
    with pytest.raises(WorkerLost) as lost:
        await client.ask(request(model, 666, deadline=1.0 if cause == "timeout" else 0.0))
    assert words in str(lost.value)
    assert lost.value.cause == cause
    assert not client.alive
    await client.start()
    reply = await client.ask(request(model, 100))
    assert len(reply.placements) == 1


async def test_the_worker_is_the_first_that_the_kernel_kills(client: WorkerClient) -> None:
    """Its score is the highest there is, its memory is limited, and its size is known."""
    await client.ask(request(BUILT_IN.cost.model, 100))
    process = Path(f"/proc/{client.pid}")
    assert (process / "oom_score_adj").read_text().strip() == "1000"
    limits = (process / "limits").read_text().splitlines()
    assert next(line.split()[3] for line in limits if line.startswith("Max data size")) == str(LIMIT)
    assert 20 * 2**20 < resident_memory(client.pid) < LIMIT
    assert resident_memory(None) == 0


@pytest.mark.parametrize(
    ("text", "limit"),
    [("max", 0), (str(8 * 2**30), 4 * 2**30), ("9223372036854771712", 0), ("1000", LEAST_MEMORY), ("", 0)],
)
def test_the_default_is_half_of_what_the_container_may_use(tmp_path: Path, text: str, limit: int) -> None:
    """Where the container has no limit, or there is none, neither has the worker."""
    path = tmp_path / "memory.max"
    path.write_text(text + "\n")
    assert default_memory((path,)) == limit
    assert default_memory((tmp_path / "absent", path)) == limit
    assert default_memory((tmp_path / "absent",)) == 0


def test_time_is_up_in_the_middle_of_a_step() -> None:
    """Nothing has to look at the clock; afterwards no alarm is left."""

    def for_ever() -> None:
        with time_limit(0.01):
            while True:
                pass

    with pytest.raises(RoundExpired, match="no plan after 0 s"):
        for_ever()
    with time_limit(0.01):
        pass
    with time_limit(0):
        time.sleep(0.02)
