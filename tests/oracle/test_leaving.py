"""Our table of what others' leaving may resolve, against the status codes of kube-scheduler's plugins."""

from support.leaving import LEAVING_MAY_HELP
from support.recorded_verdicts import read
from support.verdicts import judged
from thalweg_controlplane import Oracle


def test_every_reason_has_kube_schedulers_code(oracle: Oracle) -> None:
    """For each recorded case, asked again: the records have no codes."""
    differing, seen = set[tuple[str, str, str]](), set[str]()
    for record in read():
        for nodes in judged(oracle, record.case, record.only).values():
            for verdict in nodes.values():
                may_help = LEAVING_MAY_HELP.get(verdict.filter, {}).get(verdict.reason)
                if may_help is None:
                    continue
                seen.add(verdict.reason)
                if (verdict.code == "Unschedulable") is not may_help:
                    differing.add((verdict.filter, verdict.reason, verdict.code))
    assert not differing
    assert len(seen) >= 15
