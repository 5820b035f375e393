"""Which queues count, and which queue a pod counts for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.model import GI, amounts
from support.work import lines_run

from flowcore.cluster.indexes.queue_index import MOST_LEVELS, QueueIndex, QueueTree
from flowcore.costs.shares.guarantees import check_guarantees
from flowcore.model.queues import Queue
from flowcore.model.selectors import Labels, LabelSelector, Requirement

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


def test_the_message_of_a_large_circle_fits_a_status() -> None:
    """Of 400 queues in a circle it names eight, however long names are; queues below have it too."""
    names = [f"{at:03}" + "q" * 250 for at in range(400)]
    queues = [Queue(name, parent=names[(at + 1) % 400]) for at, name in enumerate(names)]
    problems = QueueTree([*queues, Queue("below", parent=names[7])]).problems
    assert {problem.reason for problem in problems.values()} == {"Circle"}
    assert len(problems) == 401
    assert max(len(problem.message) for problem in problems.values()) < 4096
    assert problems[names[7]].message.endswith(f" -> 392 more -> {names[7]}")
    assert problems["below"].message == problems[names[7]].message


def test_a_queue_below_sixteen_others_does_not_count() -> None:
    """Neither do those below it; the message says whose parent is the deepest that counts."""
    tree = QueueTree(
        [Queue(f"q{at:02}", parent=f"q{at - 1:02}" if at else "", pods=EVERYTHING) for at in range(MOST_LEVELS + 2)]
    )
    assert list(tree.queues) == [f"q{at:02}" for at in range(16)]
    assert {name: (problem.reason, problem.message) for name, problem in tree.problems.items()} == {
        "q16": ("TooDeep", "spec.parent: FlowQueue q15 is at level 16 of the tree, the deepest that counts"),
        "q17": ("TooDeep", "spec.parent of q16: FlowQueue q15 is at level 16 of the tree, the deepest that counts"),
    }
    assert tree.of((), ()) == "q15"


@pytest.mark.parametrize("circle", [False, True])
def test_each_queue_is_looked_at_once(*, circle: bool) -> None:
    """A chain or a circle of four times as many queues takes four times the work."""

    def lines(count: int) -> int:
        queues = [Queue(f"q{at}", parent=f"q{(at - 1) % count}" if at or circle else "") for at in range(count)]
        return lines_run(lambda: QueueTree(queues))

    assert lines(160) < 6 * lines(40)


def test_the_queue_of_a_pod_is_found_by_labels() -> None:
    """Among many queues that name different labels only few selectors are tested for a pod."""

    def lines(count: int) -> int:
        queues = [Queue(f"q{at}", namespaces=labelled("team", f"t{at}")) for at in range(count)]
        queues += [Queue(f"r{at}", pods=labelled("app", f"a{at}"), namespaces=EVERYTHING) for at in range(count)]
        tree = QueueTree(queues)
        assert tree.of((("app", "a5"),), ()) == "r5"
        assert tree.of((("app", "a5"),), (("team", "t3"),)) == "q3"
        return lines_run(lambda: tree.of((("app", "a5"),), (("team", "t3"),)))

    assert lines(200) == lines(20)


@given(
    st.lists(
        st.tuples(
            st.integers(-3, 12), st.sampled_from((None, EVERYTHING, "x", "y", "not x")),
            st.sampled_from((None, EVERYTHING, "x", "y", "not x")),
        ),
        max_size=8,
    ),
    st.sampled_from("xyz"), st.sampled_from("xyz"),
)  # fmt: skip
def test_the_tree_is_what_each_queue_says_by_itself(
    drawn: list[tuple[int, LabelSelector | str | None, LabelSelector | str | None]], pod: str, namespace: str
) -> None:
    """Against a walk from each queue to the top, and a test of each queue for a pod."""

    def selector(value: LabelSelector | str | None) -> LabelSelector | None:
        if value == "not x":
            return LabelSelector((Requirement("l", "NotIn", ("x",)),))
        return labelled("l", value) if isinstance(value, str) else value

    queues = {
        f"q{at}": Queue(
            f"q{at}", parent=f"q{parent}" if parent >= 0 else "", pods=selector(pods), namespaces=selector(of)
        )
        for at, (parent, pods, of) in enumerate(drawn)
    }
    paths = {}
    for name in queues:
        path = [name]
        while len(path) <= len(queues) and path[-1] in queues and queues[path[-1]].parent:
            path.append(queues[path[-1]].parent)
        if path[-1] in queues and not queues[path[-1]].parent:
            paths[name] = tuple(reversed(path))
    tree = QueueTree(queues.values())
    assert {name: tree.path(name) for name in tree.queues} == paths
    assert paths.keys() | tree.problems.keys() == queues.keys()
    labels, above = (("l", pod),), (("l", namespace),)
    selecting = [(-len(path), name) for name, path in paths.items() if queues[name].selects(labels, above)]
    assert tree.of(labels, above) == min(selecting, default=(0, ""))[1]


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
