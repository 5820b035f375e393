"""Cases with kube-scheduler's verdicts, in a file: what the oracle said is compared without it.

`python tests/record_verdicts.py` writes the file anew. tests/oracle asks the oracle the same again.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.draw import Case
from support.verdicts import Judged
from thalweg_controlplane import OracleVerdict

PATH = Path(__file__).parents[1] / "core/verdicts.json"


@dataclass(frozen=True)
class RecordedCase:
    """A case and what kube-scheduler says.

    Attributes:
        only: the plugin that was asked; "" for the whole default profile.
    """

    case: Case
    only: str
    theirs: Judged

    def to_json(self) -> dict[str, Any]:
        """The plugin that rejects and its words, for each pod and node; both empty where the pod fits."""
        verdicts = {
            pod: {node: [verdict.filter, verdict.reason] for node, verdict in nodes.items()}
            for pod, nodes in self.theirs.items()
        }
        case = {name: part for name, part in self.case.to_json().items() if part}
        return {"filter": self.only, **case, "verdicts": verdicts}


def read() -> list[RecordedCase]:
    """All of the file."""
    return [_from_json(each) for each in json.loads(PATH.read_text())]


def write(records: Iterable[RecordedCase]) -> None:
    """A line a case."""
    lines = (json.dumps(each.to_json(), separators=(",", ":"), ensure_ascii=False) for each in records)
    PATH.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def _from_json(kept: dict[str, Any]) -> RecordedCase:
    only, verdicts = kept.pop("filter"), kept.pop("verdicts")
    theirs = {
        pod: {node: OracleVerdict(not name, name, reason) for node, (name, reason) in nodes.items()}
        for pod, nodes in verdicts.items()
    }
    return RecordedCase(Case(**{"nodes": [], "pods": [], "pending": []} | kept), only, theirs)
