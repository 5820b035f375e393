"""Which queues count, and which queue a pod counts for."""

import pytest
from support.model import GI, amounts

from flowcore.cluster.queue_index import QueueIndex, QueueTree
from flowcore.model.queues import Queue
from flowcore.model.selectors import Labels, LabelSelector, Requirement
from flowcore.shares.guarantees import check_guarantees

EVERYTHING = LabelSelector()


def labelled(key: str, value: str) -> LabelSelector:
    """Selects one value of a label."""
    return LabelSelector((Requirement(key, "In", (value,)),))


def test_the_deepest_queue_that_selects_a_pod_has_it() -> None:
    """A child comes before its parent, a deeper branch before another; among equals the first by name."""
    tree = QueueTree(
        [
            Queue("all", namespaces=EVERYTHING),
            Queue("web", parent="all", pods=labelled("app", "web")),
            Queue("b", namespaces=labelled("team", "b")),
            Queue("a", namespaces=labelled("team", "b")),
        ]
    )
    web: Labels = (("app", "web"),)
    assert tree.of(web, ()) == "web"
    assert tree.of(web, (("team", "b"),)) == "web"
    assert tree.of((), (("team", "b"),)) == "a"
    assert tree.of((), ()) == "all"


def test_both_selectors_must_match_and_none_selects_nothing() -> None:
    """A queue without selectors has no pods itself."""
    tree = QueueTree(
        [Queue("parent"), Queue("x", parent="parent", pods=labelled("app", "web"), namespaces=labelled("team", "b"))]
    )
    assert tree.of((("app", "web"),), (("team", "b"),)) == "x"
    assert tree.of((("app", "web"),), ()) == ""
    assert tree.of((), ()) == ""


@pytest.mark.parametrize(
    ("queues", "reasons"),
    [
        ([Queue("a", parent="a")], {"a": "Circle"}),
        ([Queue("a", parent="b"), Queue("b", parent="a"), Queue("c", parent="a")], dict.fromkeys("abc", "Circle")),
        ([Queue("a", parent="gone"), Queue("b", parent="a")], dict.fromkeys("ab", "UnknownParent")),
        ([Queue("a", problem="spec: bad"), Queue("b", parent="a")], {"a": "Invalid", "b": "UnknownParent"}),
    ],
)
def test_a_queue_without_a_place_in_the_tree_selects_nothing(queues: list[Queue], reasons: dict[str, str]) -> None:
    """Its pods, and those of queues below it, count for no queue; another queue is not touched."""
    mine = [Queue(each.name, parent=each.parent, problem=each.problem, pods=EVERYTHING) for each in queues]
    tree = QueueTree([*mine, Queue("good", pods=labelled("app", "web"))])
    assert {name: problem.reason for name, problem in tree.problems.items()} == reasons
    assert list(tree.queues) == ["good"]
    assert tree.of((), ()) == ""
    assert tree.of((("app", "web"),), ()) == "good"


def test_the_message_of_a_circle_names_it() -> None:
    """The condition shows which queues point at each other."""
    problem = QueueTree([Queue("a", parent="b"), Queue("b", parent="a")]).problems["a"]
    assert problem.message.endswith(": a -> b -> a")


@pytest.mark.parametrize(
    ("queues", "reasons"),
    [
        ([Queue("a", guarantee=amounts(20_000))], {"a": "GuaranteeAboveCluster"}),
        ([Queue("a", guarantee=amounts(6000)), Queue("b", guarantee=amounts(6000))], {"b": "GuaranteeAboveCluster"}),
        ([Queue("a", guarantee=amounts(500), limit=amounts(400))], {"a": "GuaranteeAboveLimit"}),
        (
            [
                Queue("p", guarantee=amounts(1000)),
                Queue("x", parent="p", guarantee=amounts(800)),
                Queue("y", parent="p", guarantee=amounts(800, 8 * GI)),
            ],
            {"y": "GuaranteeAboveParent"},
        ),
        ([Queue("p"), Queue("x", parent="p", guarantee=amounts(9000))], {}),
    ],
)
def test_guarantees_that_cannot_all_be_kept_do_not_count(queues: list[Queue], reasons: dict[str, str]) -> None:
    """The first by name keep theirs; the others have none, and their condition says why."""
    counted, problems = check_guarantees(QueueTree(queues), {"cpu": 10_000, "memory": 64 * GI})
    assert {name: problem.reason for name, problem in problems.items()} == reasons
    assert counted == {queue.name: queue.guarantee for queue in queues if queue.name not in reasons}


def test_an_index_follows_its_objects() -> None:
    """A queue that comes, changes or goes changes the answer for the same pod."""
    index = QueueIndex()
    assert index.put("a", Queue("a", pods=EVERYTHING))
    assert index.of_labels((), ()) == "a"
    assert not index.put("a", Queue("a", pods=EVERYTHING))
    assert index.put("b", Queue("b", parent="a", pods=EVERYTHING))
    assert index.of_labels((), ()) == "b"
    assert index.put("b", None)
    assert index.of_labels((), ()) == "a"


def test_the_tree_is_kept_until_an_object_changes() -> None:
    """Two reads without a change between them see the same tree; one after a change sees another."""
    index = QueueIndex()
    index.put("a", Queue("a"))
    first = index.tree
    assert index.tree is first
    index.put("b", Queue("b", parent="a"))
    assert index.tree is not first
    assert index.tree.children("a") == ["b"]
