"""The request of a round: what is sent in parts, and what makes a request worth sending."""

import asyncio
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

from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import BUILT_IN
from flowcore.planning.round_input import GovernedPod

#: What is empty for each field that holds a list, a map, or something that may be absent.
EMPTY: dict[str, Any] = {
    field.name: None if NoneType in get_args(field.type) else get_origin(field.type)()
    for field in msgspec.structs.fields(RoundRequest)
    if get_origin(field.type) in (list, dict) or NoneType in get_args(field.type)
}
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


def request(*filled: str) -> RoundRequest:
    """A request with three entries in each of these fields, and nothing in the others."""
    entries = {name: [f"{name} {at}" for at in range(3)] for name in filled}
    values = {name: (found if EMPTY[name] == [] else dict.fromkeys(found, 1)) for name, found in entries.items()}
    return msgspec.structs.replace(request_of(snapshot([node("a")], [pod("p")])), **{**EMPTY, **values})


@pytest.mark.parametrize("name", EMPTY)
def test_a_request_is_sent_for_each_field_that_is_work(name: str) -> None:
    """A new field counts as a change, or the list above says why it does not."""
    assert has_changes(request(name)) == (name not in NO_WORK)


def test_a_request_without_changes_is_not_sent() -> None:
    assert not has_changes(request())
    assert EMPTY.keys() > NO_WORK.keys()


def test_nothing_is_sent_twice_in_parts() -> None:
    """Lists are cut, and the first part alone has the rest, whatever fields there will be."""
    whole = request(*EMPTY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "_CHUNK_SIZE", 2)
        first, second = messages.split_request(whole)
    for name, empty in EMPTY.items():
        value = getattr(whole, name)
        expected = (value[:2], value[2:]) if empty == [] else (value, empty)
        assert (getattr(first, name), getattr(second, name)) == expected
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
