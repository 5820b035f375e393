"""A planner in an environment of its own, asked by `thalweg plan -f DUMP -o json`."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self

from harness.recorded.rounds import Object, RecordedRound

_RUNNER = Path(__file__).parent / "run_plans.py"
#: Fields of policies that came after the rounds were recorded, with the value under which plans are what they were.
_LATER: Sequence[tuple[str, str, str]] = (
    ("cost", "preferences", "Points"),
    ("cost", "defaultSpread", "None"),
    ("unscheduled", "per", "Pod"),
)
_POLICY = "FlowSchedulingPolicy"


class PlannerFailed(Exception):
    """A planner did not answer."""


@dataclass(frozen=True, slots=True)
class Leaver:
    """A running pod that leaves.

    Attributes:
        kind: Preemption, Migration, Reclaim or Rule.
        beneficiaries: keys of the pods that it leaves for.
        to: the node where room for its replacement is reserved; "": none.
        gain: of a move for gain.
        after: keys of pods that leave before; the replacement takes their room.
    """

    pod: str
    kind: str
    beneficiaries: tuple[str, ...] = ()
    to: str = ""
    gain: int = 0
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What a planner answered.

    Attributes:
        placed: node of each pod that gets one.
        victims: keys of those that must leave before a placed pod comes.
        waiting: keys of the others.
        cost, bound: as the planner states them.
    """

    placed: Mapping[str, str]
    victims: Mapping[str, tuple[str, ...]]
    waiting: tuple[str, ...]
    leavers: tuple[Leaver, ...]
    cost: int = 0
    bound: int = 0

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Plan:
        """The plan that a document says."""
        return cls(
            {each["pod"]: each["node"] for each in answer["placed"]},
            {each["pod"]: tuple(each["victims"]) for each in answer["placed"]},
            tuple(each["pod"] for each in answer["waiting"]),
            tuple(
                Leaver(each["pod"], each["kind"], tuple(each["for"]), each["to"], each["gain"],
                       tuple(each.get("after", ())))
                for each in answer["evictions"]
            ),
            answer["cost"],
            answer["lowerBound"],
        )  # fmt: skip


class PlannerProcess:
    """One process that plans many rounds.

    Args:
        python: path of an interpreter in whose environment thalweg is installed.
    """

    def __init__(self, python: str) -> None:
        self._python = python
        self._scratch = TemporaryDirectory()
        #: Below a folder without packages: what lies beside a command must not be imported in place of the planner.
        self._process = subprocess.Popen(
            [str(Path(python).absolute()), "-P", str(_RUNNER)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=self._scratch.name, text=True,
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
        )  # fmt: skip
        self._stated: list[tuple[str, str, str]] = []

    def __enter__(self) -> Self:
        """Asks which of the later fields its policies have."""
        self._stated = [field for field in _LATER if self._knows(field)]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._scratch.cleanup()

    def plan(self, this: RecordedRound) -> Plan:
        """The plan for a round.

        Raises:
            PlannerFailed: the command did not end well.
        """
        objects = [self._completed(each) if each["kind"] == _POLICY else each for each in this.objects]
        answer = self._ask(objects, this.moment)
        if answer["code"]:
            raise PlannerFailed(f"{self._python}: {this.name}: {answer['errors'] or answer['output']}")
        return Plan.of(json.loads(answer["output"]))

    def _completed(self, policy: Object) -> Object:
        policy = copy.deepcopy(policy)
        for part, name, value in self._stated:
            policy["spec"].setdefault(part, {}).setdefault(name, value)
        return policy

    def _knows(self, field: tuple[str, str, str]) -> bool:
        """Whether a policy with the field is accepted."""
        part, name, value = field
        policy = {
            "apiVersion": "scheduling.thalweg/v1alpha1",
            "kind": _POLICY,
            "metadata": {"name": "asked"},
            "spec": {part: {name: value}},
        }
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "1"}}}
        return not self._ask([policy, node], "2026-01-01T00:00:00Z")["code"]

    def _ask(self, objects: Sequence[Object], moment: str) -> dict[str, Any]:
        dump = Path(self._scratch.name) / "dump.json"
        dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(["plan", "-f", str(dump), "-o", "json", "--now", moment]) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise PlannerFailed(f"{self._python}: the process has ended") from error
        line = self._process.stdout.readline()
        if not line:
            raise PlannerFailed(f"{self._python}: the process has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer
