"""A new leader plans once its snapshot has what was written before it held the lease, of every kind."""

import asyncio
from typing import Any, cast

import pytest
from support import virtual_time
from thalweg_operator.api.client import ApiClient
from thalweg_operator.api.watches.catch_up import CatchUp, OwnPod
from thalweg_operator.errors import ConnectionLost

POD = OwnPod("thalweg-system", "thalweg-0")


class WatchedKind:
    """A reflector whose watch shows changes so late, and whose lists take so long; infinite: never."""

    def __init__(self, lag: float, lists: float = 0.1, *, absent: bool = False) -> None:
        self._lag, self._lists = lag, lists
        self.version, self.listed_at, self.relists, self.absent = 1, float("-inf"), 0, absent
        self._listing = False

    def written(self, version: int) -> None:
        """Somebody changed an object of some kind."""
        if self._lag < float("inf"):
            asyncio.get_running_loop().call_later(self._lag, self._show, version)

    def _show(self, version: int) -> None:
        self.version = max(self.version, version)

    def relist(self) -> None:
        """As Reflector.relist: again and again is once."""
        loop = asyncio.get_running_loop()
        if not self._listing and self._lists < float("inf"):
            self._listing, self.relists = True, self.relists + 1
            loop.call_later(self._lists, self._listed, loop.time())

    def _listed(self, began: float) -> None:
        self.listed_at, self._listing = began, False


class Api:
    """Marks pods. ``seconds``: how long that takes."""

    def __init__(self, kinds: dict[str, WatchedKind], seconds: float = 0.0) -> None:
        self.kinds, self.seconds, self.patches = kinds, seconds, 0

    async def request(self, method: str, path: str, **_: Any) -> bytes:
        assert (method, path) == ("PATCH", "/api/v1/namespaces/thalweg-system/pods/thalweg-0/status")
        self.patches += 1
        await asyncio.sleep(self.seconds)
        if self.seconds > 20:
            raise ConnectionLost("no answer")
        for each in self.kinds.values():
            each.written(100)
        return b'{"metadata": {"name": "thalweg-0", "resourceVersion": "100"}}'


def seconds(kinds: dict[str, WatchedKind], own_pod: OwnPod | None = POD, mark: float = 0.0) -> float:
    """How long it takes; all kinds are then as they were when the lease was acquired, or later."""

    async def run() -> float:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(5.0)
        since = loop.time()
        await CatchUp(cast("ApiClient", Api(kinds, mark)), cast("Any", kinds), own_pod).run(since)
        return loop.time() - since

    return virtual_time.run(run())


def test_the_mark_is_enough_for_kinds_that_show_it() -> None:
    """Watches that show later changes are up to date: nothing is listed again."""
    kinds = {"pods": WatchedKind(0.05), "nodes": WatchedKind(0.1)}
    assert seconds(kinds) < 0.3
    assert [each.relists for each in kinds.values()] == [0, 0]


def test_kinds_without_changes_are_listed_again() -> None:
    """A silent watch does not tell a stale snapshot from one that nothing has changed in."""
    kinds = {
        "pods": WatchedKind(0.05),
        "nodes": WatchedKind(float("inf"), lists=0.4),
        "csidrivers": WatchedKind(float("inf")),
    }
    assert 0.4 < seconds(kinds) < 1.0
    assert [each.relists for each in kinds.values()] == [0, 1, 1]


@pytest.mark.parametrize("own_pod", [None, POD])
def test_a_watch_of_pods_that_lags(own_pod: OwnPod | None) -> None:
    """Outside of a pod, and where the mark is not seen within two seconds, pods are listed again."""
    kinds = {"pods": WatchedKind(60.0), "nodes": WatchedKind(60.0)}
    assert (seconds(kinds, own_pod) < 1.0) is (own_pod is None)
    assert [each.relists for each in kinds.values()] == [1, 1]


def test_a_mark_without_an_answer() -> None:
    """The request, too, has two seconds."""
    kinds = {"pods": WatchedKind(0.05)}
    assert seconds(kinds, mark=30.0) < 3.0
    assert kinds["pods"].relists == 1


def test_what_the_cluster_does_not_serve() -> None:
    """It is not waited for."""
    kinds = {"pods": WatchedKind(0.05), "csinodes": WatchedKind(float("inf"), float("inf"), absent=True)}
    assert seconds(kinds) < 0.5


def test_a_kind_that_cannot_be_listed() -> None:
    """It is waited for, but not for ever: the old leader would have gone on with what it knew, too."""
    kinds = {"pods": WatchedKind(0.05), "nodes": WatchedKind(float("inf"), float("inf"))}
    assert 5.0 < seconds(kinds) < 15.0


def test_what_was_just_listed() -> None:
    """A process that acquired the lease before it read the cluster reads nothing twice."""
    kinds = {"pods": WatchedKind(0.05), "nodes": WatchedKind(0.05)}
    for each in kinds.values():
        each.listed_at = float("inf")
    api = Api(kinds)
    virtual_time.run(CatchUp(cast("ApiClient", api), cast("Any", kinds), POD).run(0.0))
    assert api.patches == 0
