"""Groups of gangs cost a round no more than they have gangs, and the annotations that name them are bounded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import msgspec
import pytest

from flowcore.api import Interner, WirePod, to_pod
from flowcore.cluster.indexes.gang_registry import GangRegistry
from flowcore.cluster.indexes.round_gangs import gangs_for
from flowcore.model.gang_spec import GANG, GANG_GROUP, GANG_MIN_MEMBER, GangKey, GangRef, GangSource, GangSpec
from flowcore.model.gangs import Gang
from flowcore.model.pods import Pod, PodClass
from flowcore.model.policies import Delivery


def annotated(name: str, group: str, **fields: Any) -> Pod:
    """A pod of a gang of one, decoded from JSON."""
    said = {GANG: name, GANG_MIN_MEMBER: "1", GANG_GROUP: group}
    raw = msgspec.json.encode({"metadata": {"name": name, "namespace": "ml", "annotations": said}, "spec": fields})
    return to_pod(msgspec.json.decode(raw, type=WirePod), Interner())


def gang_of_one(name: str, group: tuple[GangKey, ...]) -> Pod:
    """A pod whose gang names a group."""
    gang = GangRef(GangKey(GangSource.THALWEG, "ml", name), GangSpec(min_member=1, group=group))
    return Pod("ml", name, name, PodClass(), gang=gang)


def keys(count: int, first: int = 0) -> tuple[GangKey, ...]:
    """Of so many gangs, in order."""
    return tuple(GangKey(GangSource.THALWEG, "ml", f"g{number:05}") for number in range(first, first + count))


def told(pods: list[Pod]) -> list[Gang]:
    """What a round is told of the gangs of these pods, all of which wait."""
    book = GangRegistry()
    for pod in pods:
        book.put(pod)
    return gangs_for(book, [(pod, Delivery.BINDER) for pod in pods], {}, lambda _node, _label: "")[1]


def calls(work: Callable[[], object]) -> int:
    """How many calls of functions a piece of work takes, in Python and in C."""
    count = 0

    def called(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("size", [8, 32])
def test_the_work_for_a_group_grows_with_its_gangs(size: int) -> None:
    """Twice as many gangs that name each other take about twice the work: each is looked at once."""
    small, large = ([gang_of_one(key.name, keys(count)) for key in keys(count)] for count in (size, 2 * size))
    assert not any(gang.unschedulable_reason for gang in told(large))
    assert calls(lambda: told(large)) < 2.5 * calls(lambda: told(small))


def test_the_work_for_gangs_that_run_grows_with_them() -> None:
    """Whether gangs are there in part is asked of each once, however many of a group they are."""

    def running(count: int) -> GangRegistry:
        book = GangRegistry()
        for key in keys(count):
            pod = gang_of_one(key.name, keys(count))
            book.put(msgspec.structs.replace(pod, node_name="n"))
            book.put(msgspec.structs.replace(pod, name=f"{key.name}-more"))
        assert book.partial_gangs({}) == []
        return book

    small, large = running(32), running(64)
    assert calls(lambda: large.partial_gangs({})) < 2.5 * calls(lambda: small.partial_gangs({}))
    lacking = GangRef(keys(1)[0], GangSpec(min_member=2, group=keys(32)))
    small.put(Pod("ml", "g00000", "g00000", PodClass(), gang=lacking))
    assert len(small.partial_gangs({})) == 31
    assert all(small.partial_gang(each.key, {}) == each for each in small.partial_gangs({}))


def test_many_gangs_that_all_name_each_other() -> None:
    """More than a group may have: all of them wait with the reason, after work that grows with their number."""
    small, large = ([gang_of_one(key.name, keys(count)) for key in keys(count)] for count in (100, 200))
    reason = "gang ml/g00000: its pods name a group of 200 gangs, 64 are allowed"
    assert told(large)[0].unschedulable_reason == reason
    assert calls(lambda: told(large)) < 2.5 * calls(lambda: told(small))


def test_groups_that_differ_by_one_gang() -> None:
    """Each gang names 63 others and no two name the same group: each is told so, and the work stays linear."""

    def pods(count: int) -> list[Pod]:
        return [gang_of_one(key.name, keys(64, first=at)) for at, key in enumerate(keys(count))]

    gangs = told(pods(400))
    assert gangs[0].unschedulable_reason == "gang ml/g00000: gang ml/g00001 does not name the same group"
    small, large = pods(200), pods(400)
    assert calls(lambda: told(large)) < 2.5 * calls(lambda: told(small))


def test_the_name_of_a_unit_does_not_list_a_large_group() -> None:
    """Names stay short however many gangs belong together; they tell groups from each other all the same."""
    group, other = keys(64), keys(64, first=100)
    gangs = told([gang_of_one(key.name, of) for of in (group, other) for key in of])
    assert {gang.atomic_group for gang in gangs} == {
        "gang ml/g00000 and 63 others of its group",
        "gang ml/g00100 and 63 others of its group",
    }


def test_a_gang_that_names_a_group_is_no_part_of_its_unit() -> None:
    """The name of a large group is the same with and without a gang that joins uninvited: it must not be its unit."""
    group = keys(4)
    uninvited = gang_of_one("g00004", (*group[:3], *keys(1, first=4)))
    gangs = {gang.name: gang for gang in told([*(gang_of_one(key.name, group) for key in group), uninvited])}
    assert gangs["gang ml/g00000"].atomic_group == "gang ml/g00000 and 3 others of its group"
    assert not gangs["gang ml/g00000"].unschedulable_reason
    assert (gangs["gang ml/g00004"].atomic_group, bool(gangs["gang ml/g00004"].unschedulable_reason)) == ("", True)


def test_an_annotation_that_is_too_long_or_names_too_many() -> None:
    """It is told on that pod, by its name and without its text; nothing of the text is kept."""
    many = annotated("p", ",".join(f"g{number}" for number in range(65)))
    assert many.blocked_reason == "annotation scheduling.thalweg/gang-group: the group has 66 gangs, 64 are allowed"
    long = annotated("p", ",".join(["g"] * 2049))
    assert long.blocked_reason == "annotation scheduling.thalweg/gang-group: it is longer than 4 KiB"
    assert long.bad_annotation == "annotation scheduling.thalweg/gang-group"
    for pod in (many, long):
        assert pod.gang == GangRef(GangKey(GangSource.THALWEG, "ml", "p"), GangSpec(min_member=1))
    most = annotated("g0", ",".join(f"g{number}" for number in range(64)))
    assert not most.blocked_reason
    assert most.gang is not None
    assert len(most.gang.spec.group) == 64
    assert not annotated("p", ",".join(["g"] * 2048)).blocked_reason


def test_long_texts_are_neither_kept_nor_shown_whole() -> None:
    """What an author writes into an annotation does not come back as a reason or a name of the same size."""
    text = "x!" * 100_000
    said = {GANG: text, GANG_MIN_MEMBER: text, "scheduling.thalweg/replaces": text}
    raw = msgspec.json.encode({"metadata": {"name": "p", "annotations": said}, "spec": {}})
    pod = to_pod(msgspec.json.decode(raw, type=WirePod), Interner())
    assert pod.gang is not None
    assert (len(pod.gang.key.name), len(pod.replaces or "")) == (254, 254)
    assert len(pod.blocked_reason) < 500


def test_gangs_of_one_group_share_its_value() -> None:
    """A thousand pods that name the same gangs keep one list of them."""
    intern = Interner()
    found = set()
    for name in ("a", "b", "c"):
        said = {GANG: name, GANG_MIN_MEMBER: "1", GANG_GROUP: "a,b,c"}
        raw = msgspec.json.encode({"metadata": {"name": name, "annotations": said}, "spec": {}})
        pod = to_pod(msgspec.json.decode(raw, type=WirePod), intern)
        assert pod.gang is not None
        found.add(id(pod.gang.spec.group))
    assert len(found) == 1


def test_a_group_goes_by_its_first_gang_only_where_that_one_names_it_too() -> None:
    """Who names the gang of another, in whatever namespace, is not tied to it."""
    group, own = keys(3), GangKey(GangSource.THALWEG, "ml", "own")
    mixed = (group[0], own)
    book = GangRegistry()
    for pod in (*(gang_of_one(key.name, group) for key in group), gang_of_one("own", mixed)):
        book.put(pod)
    assert [book.first_in_group(key) for key in (*group, own)] == [group[0]] * 3 + [own]
    assert book.first_in_group(GangKey(GangSource.THALWEG, "ml", "nobody")) == GangKey(
        GangSource.THALWEG, "ml", "nobody"
    )
