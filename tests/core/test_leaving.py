"""Whether a round asks at all who could leave for a pod: only if that may help on some node."""

import importlib
import pkgutil

import pytest
from support.leaving import LEAVING_MAY_HELP, OURS

from flowcore.rules import filters
from flowcore.rules.filters.registry import IN_ORDER, NODE_UNREADABLE
from flowcore.rules.reasons.codes import UNRESOLVABLE

CLASSIFIED = {**LEAVING_MAY_HELP, **OURS}
NAMES = tuple(dict.fromkeys(each.name for each in IN_ORDER))
#: Texts that a filter's module defines, by the filter's name.
TEXTS: dict[str, set[str]] = {}
for info in pkgutil.iter_modules(filters.__path__):
    module = importlib.import_module(f"{filters.__name__}.{info.name}")
    if hasattr(module, "NAME"):
        TEXTS[module.NAME] = {
            text for name, text in vars(module).items() if name.startswith(("REASON", "TOO_")) and name.isupper()
        }


def test_every_filter_is_classified() -> None:
    """A filter that is added says for each of its reasons whether others could leave."""
    assert set(CLASSIFIED) == set(NAMES)
    assert set(TEXTS) == set(NAMES) - {NODE_UNREADABLE}


@pytest.mark.parametrize("name", [name for name, texts in TEXTS.items() if texts])
def test_every_reason_of_a_filter_is_classified(name: str) -> None:
    """A reason that is added too."""
    assert set(CLASSIFIED[name]) == TEXTS[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_code_is_unresolvable_only_if_no_node_may_be_resolved(name: str) -> None:
    """A code names the filter that rejects the nodes which pass the most filters: others have rejected nodes before."""
    until = NAMES[: NAMES.index(name) + 1]
    may_unblock = any(may for each in until for may in CLASSIFIED[each].values())
    assert (name in UNRESOLVABLE) is not may_unblock
