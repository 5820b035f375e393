"""The request of a round: what is sent in parts, and what makes a request worth sending."""

import asyncio
from collections.abc import Collection, Mapping
from types import NoneType
from typing import Any, get_args, get_origin

import msgspec
import pytest
from support.model import node, pod, snapshot
from support.recorded_rounds import request_of
from thalweg_operator.planning.inputs.round_facts import PersistentUsageTracker
from thalweg_operator.planning.round_request import has_changes
from thalweg_operator.planning.worker import messages
from thalweg_operator.planning.worker.messages import RoundRequest
from thalweg_operator.yielding import BURST

from flowcore.cluster.changes import ClusterChanges
from flowcore.model.gangs import Gang, PodsToCome
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import BUILT_IN
from flowcore.planning.round_input import GovernedPod


def _empty_fields(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """What is empty for each field that holds a list, a map, or something that may be absent."""
    return {
        field.name: None if NoneType in get_args(field.type) else get_origin(field.type)()
        for field in msgspec.structs.fields(kind)
        if get_origin(field.type) in (list, dict) or NoneType in get_args(field.type)
    }


EMPTY, EMPTY_CHANGES = _empty_fields(RoundRequest), _empty_fields(ClusterChanges)
#: Fields that are no work by themselves, and why.
NO_WORK = {
    "signatures": "other fields point to it",
    "classes": "other fields point to it",
    "images": "other fields point to it",
    "policies": "each request has all of them",
    "pending": "the round counts these pods itself",
    "gangs": "those of the pending pods",
    "persistent_usage": "it is usage of the pending pods",
    "queue_usage": "there is none without queues",
    "running": "they come with running_state",
    "removed_running": "they come with running_state",
    "measured": "it comes where pods wait or run",
}


def _filled(empty: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    entries = {name: [f"{name} {at}" for at in range(3)] for name in names if name in empty}
    values = {name: (found if empty[name] == [] else dict.fromkeys(found, 1)) for name, found in entries.items()}
    return {**empty, **values}


def request(*filled: str) -> RoundRequest:
    """A request with three entries in each of these fields, and nothing in the others."""
    whole = request_of(snapshot([node("a")], [pod("p")]))
    changes = ClusterChanges(**_filled(EMPTY_CHANGES, filled))
    return msgspec.structs.replace(whole, **_filled(EMPTY, filled), changes=changes)


@pytest.mark.parametrize("name", [*EMPTY, *EMPTY_CHANGES])
def test_a_request_is_sent_for_each_field_that_is_work(name: str) -> None:
    """A new field counts as a change, or the list above says why it does not."""
    assert has_changes(request(name)) == (name not in NO_WORK)


def test_a_request_without_changes_is_not_sent() -> None:
    assert not has_changes(request())
    assert {*EMPTY, *EMPTY_CHANGES} > NO_WORK.keys()
    assert EMPTY.keys().isdisjoint(EMPTY_CHANGES)


def test_nothing_is_sent_twice_in_parts() -> None:
    """Lists are cut, and the first part alone has the rest, whatever fields there will be."""
    whole = request(*EMPTY, *EMPTY_CHANGES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "_CHUNK_SIZE", 2)
        first, second = messages.split_request(whole)
    for fields, parts in (
        (EMPTY, (whole, first, second)),
        (EMPTY_CHANGES, (whole.changes, first.changes, second.changes)),
    ):
        for name, empty in fields.items():
            value, begin, rest = (getattr(part, name) for part in parts)
            assert (begin, rest) == ((value[:2], value[2:]) if empty == [] else (value, empty))
    assert messages.join_request([first, second]) == whole


@pytest.mark.parametrize("fresh", [False, True])
async def test_other_tasks_have_their_turn_while_old_gangs_are_looked_for(fresh: bool) -> None:  # noqa: FBT001
    """One after each burst of pods, also where none of them is in a gang."""
    turns, bursts = 0, 5

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    waiting = [GovernedPod(Pod("ns", f"p{number}", "u", PodClass()), BUILT_IN, BUILT_IN.delivery)
               for number in range(bursts * BURST)]  # fmt: skip
    counting = asyncio.create_task(count_turns())
    assert await PersistentUsageTracker(lambda: 0.0).due(waiting, 1e9, fresh=fresh) is None
    counting.cancel()
    assert turns >= bursts


def test_pods_to_come_reach_the_worker() -> None:
    """With their class, which no pending pod has."""
    gang = Gang("leader", 1, to_come=(PodsToCome(PodClass(requests=(("cpu", 1000),)), 2, 1),))
    sent = messages.request_encoder.encode(msgspec.structs.replace(request(), gangs=[gang]))
    assert messages.request_decoder.decode(sent).gangs == [gang]


def test_a_list_of_changes_alone_makes_parts() -> None:
    """However short the lists beside it are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "_CHUNK_SIZE", 1)
        parts = list(messages.split_request(request("usage")))
    assert [len(part.changes.usage) for part in parts] == [1, 1, 1]
    assert [part.has_more for part in parts] == [True, True, False]


def test_that_no_pod_takes_devices_any_more_is_told() -> None:
    """An empty list says something, unlike none."""
    whole = request()
    whole.changes.takers = []
    assert has_changes(whole)
