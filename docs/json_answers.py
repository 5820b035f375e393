"""What the commands print with `-o json`, key by key, from the types' docstrings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
from thalweg.plans.plan import PlanHere
from thalweg.questions.why import WhyWithNodes
from thalweg_view.pictures.regret import RegretAnswer
from thalweg_view.status import StatusAnswer
from view_operations import rows_of, summary_of

from flowcore.questions.audit.answer_audit import AuditAnswer
from flowcore.questions.audit.apply_plan import ApplyAnswer
from flowcore.questions.diagnosis.answers import WhyAnswer
from flowcore.questions.scenario.alternatives.headroom import HeadroomAnswer
from flowcore.questions.scenario.alternatives.what_if import WhatIfAnswer
from flowcore.questions.scenario.network_flow import NetworkAnswer

#: The keys that stay, one a line.
STORED: Final = Path(__file__).parents[1] / "tests" / "docs" / "json_keys.txt"
#: What a command prints; keys that only an option adds are named as such by their meaning.
ANSWERS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "plan": PlanHere,
    "why": WhyAnswer,
    "why POD --nodes": WhyWithNodes,
    "what-if": WhatIfAnswer,
    "headroom": HeadroomAnswer,
    "network": NetworkAnswer,
    "status": StatusAnswer,
    "audit": AuditAnswer,
    "audit --apply": ApplyAnswer,
    "audit --since": RegretAnswer,
}
#: The same of commands whose output has no type: key, type and meaning.
OTHERS: Final[Mapping[str, tuple[str, tuple[tuple[str, str, str], ...]]]] = {
    "why --nodes": (
        "A list with an entry for each waiting pod that is asked for, or for all.",
        (
            ("[].pod", "text", "`namespace/name`."),
            ("[].nodes", "object by name", "The verdict of each node, by its name."),
            ("[].nodes.NAME.fits", "boolean", "Whether the node takes the pod as things stand."),
            ("[].nodes.NAME.filter", "text", 'The filter that rejects it; "": none.'),
            ("[].nodes.NAME.reason", "text", "Why, in kube-scheduler's words."),
            ("[].gang", "text", "Why its gang cannot be placed whatever room there is. Left out: it can."),
            ("[].evictions", "list of object", "Who would leave if it waited alone, as in `plan`. Left out: nobody."),
            ("[].nobodyLeaves", "text", "Why nobody would. Left out: somebody would, or that would not help."),
            ("[].blocked", "text", "Why no plan may place it. Left out: one may."),
        ),
    ),
    "doctor": (
        "A list with an entry for each check.",
        (
            ("[].check", "text", "Name of the check."),
            ("[].verdict", '"OK", "WARN", "FAIL", "SKIP"', "Its result."),
            ("[].sentence", "text", "What was found."),
            ("[].advice", "text", 'What to do; "": nothing.'),
        ),
    ),
    "replay": (
        "A recorded round, planned again.",
        (
            ("round", "integer", "Its number."),
            ("generation", "integer", "Of the state that it was planned from."),
            ("same", "boolean", "Whether the plan is that of the record."),
            ("differences", "list of text", "In what it is not."),
            ("placements", "text by name", "Pod -> node."),
            ("waiting", "text by name", "Pod -> why it waits."),
            ("cost", "integer", "Of the plan; below 0: it saves that."),
            ("lowerBound", "integer", "No plan costs less."),
            ("leftAtLeast", "object or null", "As in `plan`."),
            ("steps", "integer", "Of the round."),
            ("seconds", "number", "How long it took."),
        ),
    ),
    "uninstall --list": (
        "A list with an entry for each workload, or pod by itself, that names a scheduler of Thalweg.",
        (
            ("[].kind", "text", "Of the workload."),
            ("[].namespace", "text", "Of the workload."),
            ("[].name", "text", "Of the workload."),
            ("[].schedulerName", "text", "The name that its pods have."),
            ("[].template", "boolean", "Whether its template names the scheduler: new pods do so too."),
            ("[].running", "integer", "Its pods with a node."),
            ("[].waiting", "integer", "Its pods without one."),
            ("[].gated", "integer", "Of these, those behind Thalweg's gate."),
        ),
    ),
}


def keys() -> dict[str, list[str]]:
    """Command -> paths of all keys of its output."""
    found = {command: [path for path, _, _ in rows_of(struct, "", ())] for command, struct in ANSWERS.items()}
    return found | {command: [path for path, _, _ in rows] for command, (_, rows) in OTHERS.items()}


def add_new_keys() -> None:
    """Adds new keys to those that stay. No key is taken out of the file here: that is a change for who reads them."""
    stored = STORED.read_text().splitlines()
    STORED.write_text("".join(f"{line}\n" for line in sorted({*stored, *lines()})))


def lines() -> list[str]:
    """A line for each key, as ``STORED`` has them."""
    return [f"{command}: {path}" for command, paths in keys().items() for path in paths]


def json_answers() -> str:
    """Every command with its keys."""
    return "\n\n".join(_parts())


def _parts() -> Iterator[str]:
    texts = {command: (summary_of(struct), (*rows_of(struct, "", ()),)) for command, struct in ANSWERS.items()}
    for command, (summary, rows) in sorted((texts | OTHERS).items()):
        table = "\n".join(f"| `{path}` | {kind} | {meaning} |" for path, kind, meaning in rows)
        yield f"### thalweg {command}\n\n{summary}\n\n| key | type | meaning |\n|---|---|---|\n{table}"
