"""What becomes of gangs on a real control plane, whichever way plans are delivered: the same claims for both."""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

from support.cluster_scenario import ClusterScenario
from support.operator import until
from support.steering import count

GANG = "scheduling.thalweg/gang"
LEAST = "scheduling.thalweg/gang-min-member"
GROUP = "scheduling.thalweg/gang-group"
Scenario = Callable[[ClusterScenario], Awaitable[None]]
#: Seconds that a gang may be there in part, as the scenes' policies say.
TIMEOUT = 10


def members(
    scene: ClusterScenario, gang: str, count: int, cpu: str = "1", first: int = 0, **options: Any
) -> list[dict[str, Any]]:
    """Pods of a gang, not created yet; ``least`` and ``group`` as its annotations say."""
    terms = {GANG: gang, LEAST: str(options.pop("least", count))}
    if "group" in options:
        terms[GROUP] = options.pop("group")
    return [scene.pod(f"{gang}-{number}", cpu, annotations=terms, **options) for number in range(first, first + count)]


async def bound(scene: ClusterScenario) -> dict[str, int]:
    """How many pods of each gang have a node."""
    found: dict[str, int] = defaultdict(int)
    for each in await scene.pods():
        gang = each["metadata"].get("annotations", {}).get(GANG)
        if gang and each["spec"].get("nodeName"):
            found[gang] += 1
    return found


async def whole(scene: ClusterScenario, *gangs: str, size: int) -> None:
    """Waits until these gangs, and no other pods of any gang, have their nodes."""
    last: dict[str, int] = {}

    async def there() -> bool:
        nonlocal last
        last = await bound(scene)
        return last == dict.fromkeys(gangs, size)

    await until(there, 90, lambda: f"{len(gangs)} gangs of {size} to be whole and none in part: {dict(last)}")


async def more_gangs_than_fit(scene: ClusterScenario) -> None:
    """30 gangs of 8 where 20 fit: only whole gangs at rest, all the dear ones among them, none in part for long."""
    await scene.priority_class("dear", 1000)
    pods = [
        member
        for number in range(30)
        for member in members(scene, f"g{number:02}", 8, **({"priorityClassName": "dear"} if number % 3 == 0 else {}))
    ]
    # The first of each gang, then the second of each: as jobs do that start at the same time. The nodes come last, once
    # a round has found that all wait: those that the operator happened to see complete first would have them.
    await scene.api.create_many(sorted(pods, key=lambda pod: pod["metadata"]["name"].rpartition("-")[2]), 32)

    async def all_wait() -> bool:
        return await count(scene.operator, "thalweg_waiting_pods") == len(pods)

    await until(all_wait, 60, lambda: "a round without nodes")
    await scene.nodes(*(f"n{number:02}" for number in range(20)), cpu="8")
    last: dict[str, int] = {}

    async def at_rest() -> bool:
        nonlocal last
        last = await bound(scene)
        return sum(last.values()) == 160

    await until(at_rest, 60, lambda: f"160 pods to be bound: {dict(last)}")
    assert set(last.values()) == {8}, "a gang in part"
    assert {f"g{number:02}" for number in range(0, 30, 3)} <= last.keys(), "a dear gang waits for a cheaper one"
    waiting = next(f"g{number:02}-0" for number in range(30) if f"g{number:02}" not in last)
    assert f"{scene.namespace}/{waiting.rpartition('-')[0]}" in await scene.reason_of(waiting, "8 pods at once")
    check_never_in_part_for_long(scene)


def check_never_in_part_for_long(scene: ClusterScenario) -> None:
    """No gang that is whole took longer from its first pod to its last than its policy says."""
    times: dict[str, list[float]] = defaultdict(list)
    for uid, when in scene.history.bound_at.items():
        times[scene.history.seen[uid].rpartition("-")[0]].append(when)
    late = {gang: max(each) - min(each) for gang, each in times.items() if max(each) - min(each) > TIMEOUT}
    assert not late, f"in part for longer than {TIMEOUT} s: {late}"


async def a_gang_that_comes_bit_by_bit(scene: ClusterScenario) -> None:
    """It waits until all that it needs are there, and says so; what comes late joins it as long as there is room."""
    await scene.nodes("a", "b", cpu="4")
    pods = members(scene, "late", 8, least=5)
    await scene.api.create_many(pods[:4])
    assert "4 of 5" in await scene.reason_of("late-3", "late", "4 of 5")
    await scene.create("alone", "1")
    await scene.node_of("alone")
    assert await bound(scene) == {}
    await scene.api.create(pods[4])
    await whole(scene, "late", size=5)
    await scene.api.create_many(pods[5:])
    await whole(scene, "late", size=7)
    # Whichever of the three came last.
    (left,) = (each["metadata"]["name"] for each in await scene.pods() if not each["spec"].get("nodeName"))
    await scene.reason_of(left, "Insufficient cpu")


async def a_gang_that_loses_a_pod(scene: ClusterScenario) -> None:
    """Its replacement comes before pods that waited longer: until then what is left of the gang is no use."""
    await scene.nodes("a", cpu="4")
    await scene.api.create_many(members(scene, "job", 4))
    await whole(scene, "job", size=4)
    await scene.api.create_many([scene.pod(f"other-{n}", "1") for n in range(3)])
    for n in range(3):
        await scene.reason_of(f"other-{n}", "Insufficient cpu")
    # The replacement is there before the room is: both want it.
    (again,) = members(scene, "job", 1, first=4, least=4)
    await scene.api.create(again)
    await scene.reason_of("job-4")
    await scene.delete("job-0")
    await scene.node_of("job-4")
    assert (await bound(scene))["job"] == 4


async def gangs_that_need_each_other(scene: ClusterScenario) -> None:
    """A group of gangs: both or none, though there is room for one; a gang that fits beside comes first."""
    await scene.nodes("a", cpu="5")
    await scene.api.create_many(members(scene, "server", 3, group="server, client"))
    await scene.reason_of("server-0", "client")
    await scene.api.create_many(members(scene, "client", 3, group="server, client"))
    await scene.reason_of("client-0", "at once")
    await scene.api.create_many(members(scene, "small", 4))
    await whole(scene, "small", size=4)
    await scene.nodes("b", cpu="5")

    async def all_there() -> bool:
        return await bound(scene) == {"small": 4, "server": 3, "client": 3}

    await until(all_there, 90, lambda: "the group to be whole")


async def a_gang_in_slices(scene: ClusterScenario) -> None:
    """Each slice goes to one rack of the block that holds them all, and a pod that comes again to that of its slice."""
    racks = {"narrow": (1, 1, 1, 1), "wide": (3, 3)}
    for block, sizes in racks.items():
        for number, cores in enumerate(sizes):
            labels = {"example.com/block": block, "example.com/rack": f"{block}-{number}"}
            await scene.nodes(f"{block}-{number}", cpu=str(cores), labels=labels)
    terms = {
        "scheduling.thalweg/gang-topology": "example.com/block",
        "scheduling.thalweg/gang-slice-topology": "example.com/rack",
        "scheduling.thalweg/gang-slice-size": "2",
    }
    pods = members(scene, "cut", 5, least=4)
    for rank, pod in zip((0, 1, 2, 3, 1), pods, strict=True):
        pod["metadata"]["annotations"] |= terms
        pod["metadata"]["labels"] = pod["metadata"].get("labels", {}) | {"scheduling.thalweg/gang-rank": str(rank)}
    await scene.api.create_many(pods[:4])
    where = await scene.nodes_of("cut-0", "cut-1", "cut-2", "cut-3")
    assert where["cut-0"] == where["cut-1"] != where["cut-2"] == where["cut-3"]
    assert set(where.values()) == {"wide-0", "wide-1"}
    await scene.delete("cut-1")
    await scene.api.create(pods[4])
    assert await scene.node_of("cut-4") == where["cut-0"]


#: All of them.
SCENARIOS = (
    more_gangs_than_fit,
    a_gang_that_comes_bit_by_bit,
    a_gang_that_loses_a_pod,
    gangs_that_need_each_other,
    a_gang_in_slices,
)
