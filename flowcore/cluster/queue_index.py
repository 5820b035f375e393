"""The tree of FlowQueues: which of them count, and which queue a pod counts for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from flowcore.model.pods import Pod
from flowcore.model.queues import Queue
from flowcore.model.selectors import Labels


@dataclass(frozen=True, slots=True)
class QueueProblem:
    """What is wrong with a queue: a reason for its condition, and a sentence."""

    reason: str
    message: str


class QueueTree:
    """The accepted queues. A queue that is not accepted selects no pods, and neither do those below it.

    Attributes:
        queues: accepted queues by name, parents before children, siblings by name.
        problems: why the others are not accepted.
    """

    def __init__(self, queues: Iterable[Queue] = ()) -> None:
        known = {queue.name: queue for queue in sorted(queues, key=lambda each: each.name)}
        self.problems = {name: problem for name in known if (problem := _problem(name, known)) is not None}
        paths = {name: _path(name, known) for name in known if name not in self.problems}
        self._paths = dict(sorted(paths.items(), key=lambda item: (len(item[1]), item[0])))
        self.queues: Mapping[str, Queue] = {name: known[name] for name in self._paths}
        self._children: dict[str, list[str]] = {}
        for name, queue in self.queues.items():
            self._children.setdefault(queue.parent, []).append(name)
        self._deepest_first = sorted(self.queues.values(), key=lambda each: (-len(self._paths[each.name]), each.name))

    def path(self, name: str) -> tuple[str, ...]:
        """Names from the top of the tree down to this queue."""
        return self._paths[name]

    def children(self, name: str) -> list[str]:
        """Names of the queues right below one; of those at the top for ""."""
        return self._children.get(name, [])

    def of(self, labels: Labels, namespace_labels: Labels) -> str:
        """Name of the queue that a pod counts for: the deepest that selects it, then the first by name; "": none."""
        return next((each.name for each in self._deepest_first if each.selects(labels, namespace_labels)), "")


class QueueIndex:
    """All FlowQueue objects of a cluster, and the queue of each pod."""

    def __init__(self) -> None:
        self._objects: dict[str, Queue] = {}
        #: Built when it is first read after a change: many objects come one after the other.
        self._tree: QueueTree | None = None
        #: Answers for the labels of pods and of their namespaces; pods of one controller have the same.
        self._known: dict[tuple[Labels, Labels], str] = {}

    @property
    def objects(self) -> Mapping[str, Queue]:
        """All of them by name."""
        return self._objects

    @property
    def tree(self) -> QueueTree:
        """The accepted ones."""
        if self._tree is None:
            self._tree = QueueTree(self._objects.values())
        return self._tree

    def put(self, name: str, queue: Queue | None) -> bool:
        """Takes a new or changed FlowQueue; None: it is gone. Whether that is a change."""
        if self._objects.get(name) == queue:
            return False
        if queue is None:
            del self._objects[name]
        else:
            self._objects[name] = queue
        self._tree = None
        self._known.clear()
        return True

    def of(self, pod: Pod, namespaces: Mapping[str, Labels]) -> str:
        """Name of the queue that a pod counts for; "": none.

        Args:
            namespaces: labels of each known namespace.
        """
        return self.of_labels(pod.labels, namespaces.get(pod.namespace, ())) if self._objects else ""

    def of_labels(self, labels: Labels, namespace_labels: Labels) -> str:
        """The same for labels of a pod and of its namespace."""
        key = (labels, namespace_labels)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            found = self._known[key] = self.tree.of(labels, namespace_labels)
        return found


#: Remembered answers.
_MAX_KNOWN = 50_000


def _path(name: str, known: Mapping[str, Queue]) -> tuple[str, ...]:
    path = [name]
    while parent := known[path[-1]].parent:
        path.append(parent)
    return tuple(reversed(path))


def _problem(name: str, known: Mapping[str, Queue]) -> QueueProblem | None:
    """Why a queue is not accepted; None: it is."""
    if known[name].problem:
        return QueueProblem("Invalid", known[name].problem)
    seen = [name]
    while parent := known[seen[-1]].parent:
        if parent in seen:
            circle = " -> ".join([*seen[seen.index(parent) :], parent])
            return QueueProblem("Circle", f"spec.parent: the queue is below itself or below a circle: {circle}")
        if parent not in known:
            where = "" if len(seen) == 1 else f" of {seen[-1]}"
            return QueueProblem("UnknownParent", f"spec.parent{where}: there is no FlowQueue {parent}; create it")
        if known[parent].problem:
            return QueueProblem("UnknownParent", f"spec.parent: FlowQueue {parent} is not valid")
        seen.append(parent)
    return None
