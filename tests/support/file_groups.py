"""Which files one process runs, one after the other: those that want the same control plane; every other file alone."""

import ast
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

_TESTS = Path(__file__).parents[1]


@cache
def group_of(path: Path) -> str:
    """A name for the group of a file of tests, from what the file says of its control plane."""
    if path.relative_to(_TESTS).parts[0] != "e2e":
        return str(path)
    said = {}
    for each in ast.parse(path.read_text()).body:
        if isinstance(each, ast.Assign | ast.AnnAssign) and each.value is not None:
            target = each.targets[0] if isinstance(each, ast.Assign) else each.target
            said[ast.unparse(target)] = ast.unparse(each.value)
    if "BREAKS_PLANE" in said:
        return str(path)
    return f"e2e on {said.get('PLANE', '{}')}{', steered' if 'STEERED' in said else ''}"


class GroupScheduling(LoadScopeScheduling):
    """Hands out a group at a time, in the order in which tests were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(_TESTS.parent / nodeid.partition("::")[0])
