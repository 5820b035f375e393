"""Which files one process runs, one after the other.

Those that want the same control plane, and those that would disturb each other; every other file alone.
"""

import ast
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

_TESTS = Path(__file__).parents[1]
#: Folders and files that either make network interfaces of the machine come and go (containers, builds of images) or
#: load pages in a browser, which gives up all it loads when one does: "net::ERR_NETWORK_CHANGED".
_NETWORK = {"browser", "install", "release", "e2e/test_view_page.py"}


@cache
def group_of(path: Path) -> str:
    """A name for the group of a file of tests, from what the file says of its control plane."""
    name = path.relative_to(_TESTS)
    if name.parts[0] in _NETWORK or name.as_posix() in _NETWORK:
        return "network interfaces"
    if name.parts[0] != "e2e":
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
