"""The leak detector sees what it is to see."""

from collections import Counter, deque
from typing import Any

import numpy as np
from support.leaks import grown_containers, nbytes, tracked_objects

from flowcore.api import Interner
from flowcore.model.generational_cache import GenerationalCache, estimate_bytes


class Kept:
    """Containers of every kind the operator has."""

    def __init__(self) -> None:
        self.dict: dict[str, list[int]] = {}
        self.recent: GenerationalCache[str, str] = GenerationalCache(10_000)
        self.intern = Interner()
        self.deque: deque[str] = deque()
        self.array = np.zeros(0)
        self.listen: Any = self.on_change

    def on_change(self) -> None:
        """Makes the object refer to itself."""


def test_growth_is_found_wherever_it_is() -> None:
    """Each container that grows is named by its path, and bytes rise with it."""
    kept = Kept()
    before, bytes_before = tracked_objects(kept=kept), nbytes(kept=kept)
    assert not grown_containers(before, tracked_objects(kept=kept))
    kept.dict = {f"k{at}": [1, 2] for at in range(10)}
    kept.recent.put("a", "b", 10)
    kept.recent.put("c", "d", 10)
    kept.deque.extend("abc")
    kept.array = np.zeros(5)
    kept.intern("some text")
    kept.intern("another text")
    found = grown_containers(before, tracked_objects(kept=kept))
    assert {path for path in found if path.count(".") == 1} >= {"kept.dict", "kept.recent", "kept.deque", "kept.array"}
    assert "kept.intern._known" in found
    assert found["kept.dict[]"] == (0, 20)
    assert nbytes(kept=kept) > bytes_before + 1000


def test_a_value_goes_after_its_last_user() -> None:
    """Equal values are one object while anybody holds one; values that nobody holds are dropped."""
    intern = Interner(max_new_bytes=10_000)
    held = [intern(("held", str(at))) for at in range(5)]
    for at in range(10_000):
        intern(("passing", str(at)))
    assert len(intern) < 200
    for at, each in enumerate(held):
        assert intern(("held", str(at))) is each
    intern.drop_unused()
    assert len(intern) == 5
    del held, each
    intern.drop_unused()
    assert len(intern) == 0


def test_no_value_is_too_large_to_go() -> None:
    """What is remembered is bounded by bytes: ten values of a megabyte do not stay as ten small ones would."""
    intern = Interner(max_new_bytes=2**20)
    for at in range(10):
        intern(tuple((f"k{at}-{each}", "v") for each in range(10_000)))
    assert len(intern) == 1


def test_what_is_asked_for_is_remembered() -> None:
    """A generation ends by bytes or by age; an entry that is asked for in each generation stays, others go."""
    recent: GenerationalCache[str, int] = GenerationalCache(2_000)
    recent.put("asked for", 1, 0)
    forgotten = Counter[str]()
    for at in range(1_000):
        assert recent.get("asked for") == 1
        forgotten.update(recent.put(f"k{at}", at, 100))
        assert recent.nbytes <= 2 * 2_400
    assert "asked for" not in forgotten
    assert sum(forgotten.values()) == 1_001 - len(recent)
    assert recent.age()
    assert recent.get("asked for") == 1
    assert "asked for" in recent
    recent.age()
    assert "asked for" in recent
    recent.age()  # whether it is there was no question for its value
    assert "asked for" not in recent
    assert (len(recent), recent.nbytes, recent.get("asked for")) == (0, 0, None)


def test_weights_grow_with_values() -> None:
    """A value weighs at least what its texts hold."""
    assert estimate_bytes(tuple((f"k{at}", "v" * 100) for at in range(100))) > 10_000
