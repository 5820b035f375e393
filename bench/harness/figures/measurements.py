"""Every command whose figures the page shows, with the arguments of these figures and of a quick trial."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

#: In arguments: the folder of the openb trace.
OPENB = "OPENB"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One command of bench/.

    Attributes:
        name: of the folder that keeps its results.
        arguments: after the script's name.
        trial: arguments of a run that only shows that it works.
        repeats: whether figures vary between runs, so that the page shows medians.
    """

    name: str
    script: str
    arguments: tuple[str, ...] = ()
    trial: tuple[str, ...] = ()
    repeats: bool = True

    @property
    def needs_openb(self) -> bool:
        """Whether it reads the trace."""
        return OPENB in self.arguments

    def command(self, openb: Path | None, arguments: Sequence[str]) -> list[str]:
        """The script and its arguments, with the trace's folder filled in."""
        return [self.script, *(str(openb) if each == OPENB else each for each in arguments), "-o", "json"]


_MIXES = "plain,mixed,affinity,apart,spread,rack,gangs"


def _rates(name: str, nodes: str, *more: str, arrivals: str = "backlog,burst") -> Measurement:
    """Each trial with another mix: together they have what each run has of its own."""
    trial = ("--mix", "plain", "--arrival", "backlog", *more) if more else ("--mix", "spread")
    return Measurement(
        name,
        "schedulers.py",
        ("--nodes", nodes, "--pods", "1500", "--mix", _MIXES, "--arrival", arrivals, *more),
        ("--nodes", "50", "--pods", "100", "--warm-up", "100", *trial),
    )


MEASUREMENTS: tuple[Measurement, ...] = (
    _rates("rates, 1000 nodes", "1000"),
    _rates("rates, 5000 nodes", "5000"),
    _rates("rates, 1000 nodes, a core each", "1000", "--pin", arrivals="burst"),
    _rates("rates, 5000 nodes, a core each", "5000", "--pin", arrivals="burst"),
    Measurement("binding rate", "schedulers.py", ("--nodes", "5000", "--pods", "3000", "--arrival", "backlog",
                "--schedulers", "raw,thalweg", "--mix", _MIXES),
                ("--nodes", "50", "--pods", "100", "--warm-up", "100", "--mix", "plain",
                 "--schedulers", "raw,thalweg")),
    Measurement("lone pods", "lone_pods.py", (), ("--nodes", "50", "--pods", "20", "--warm-up", "100")),
    Measurement("beside waiting pods", "schedulers.py", ("--nodes", "1000", "--pods", "1000", "--waiting", "1000"),
                ("--nodes", "50", "--pods", "100", "--waiting", "50", "--mix", "mixed", "--warm-up", "100")),
    Measurement("API calls", "api_calls.py", (), ("--nodes", "50", "--pods", "50")),
    Measurement("extender answers", "extender_answers.py", (), ("--names", "100", "--requests", "50")),
    Measurement("faults", "faults.py", (), ("--only", "lost")),
    Measurement("take-over", "takeover.py", ("--times", "5"), ("--nodes", "20", "--times", "1", "--faults", "SIGTERM")),
    Measurement("memory", "memory.py", (), ("--nodes", "50", "--running", "100", "--pods", "20"), repeats=False),
    Measurement("a large cluster", "scale.py", ("--prepared",),
                ("--prepared", "--nodes", "500", "--running", "5000", "--pods", "100")),
    Measurement("preemption", "preemption.py", (), ("--nodes", "20", "--urgent", "20", "--warm-up", "100")),
    Measurement("gangs on a cluster", "cluster_gangs.py", (), ("--gangs", "6", "--size", "4", "--fit", "4")),
    Measurement("whole gangs", "schedulers.py",
                ("--nodes", "1000,5000", "--pods", "3000", "--mix", "plain,gangs-of-10", "--arrival", "backlog",
                 "--schedulers", "kube-scheduler,thalweg"),
                ("--nodes", "50", "--pods", "100", "--mix", "gangs-of-10", "--arrival", "backlog",
                 "--schedulers", "kube-scheduler,thalweg", "--warm-up", "100")),
    Measurement("openb on a cluster", "place_openb.py",
                (OPENB, "--kube-scheduler", "--arrival", "start,minute,ends"), (OPENB, "--limit", "100"),
                repeats=False),
    Measurement("openb on a cluster, other lists", "place_openb.py",
                (OPENB, "--list", "gpuspec33,multigpu50"),
                (OPENB, "--list", "multigpu50", "--arrival", "ends", "--limit", "100"), repeats=False),
    Measurement("engine", "engine.py", ("--sizes", "--rules", "--growth", "--classes", "--quality", "-n", "3"),
                ("--growth", "--limit", "60")),
    Measurement("bounds", "engine.py", ("--bounds",), ("--bounds", "--only", "12,500 / 100 /")),
    Measurement("engine, openb", "engine.py", ("--openb", OPENB, "--only", "openb"),
                ("--openb", OPENB, "--only", "all at once"), repeats=False),
    Measurement("gangs", "gangs.py", (), ("--gangs", "20", "--exact-seconds", "1"), repeats=False),
    Measurement("gangs in racks", "gang_levels.py", (),
                ("--blocks", "1", "--loads", "1", "--before", "0", "--hours", "1"), repeats=False),
    Measurement("running pods", "running_pods.py", (), ("--nodes", "100", "--seeds", "1", "--rounds", "10", "-n", "1")),
    Measurement("openb day", "openb_day.py", (OPENB,), (OPENB, "--nodes-kept", "40"), repeats=False),
    Measurement("questions", "questions.py", (), ("--nodes", "50", "--waiting", "200")),
)  # fmt: skip


def chosen(only: Sequence[str]) -> Iterator[Measurement]:
    """Those of these names; all of them without any."""
    yield from (each for each in MEASUREMENTS if not only or each.name in only)
