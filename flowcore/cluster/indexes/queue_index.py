"""The tree of FlowQueues: which of them count, and which queue a pod counts for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from flowcore.model.pods import Pod
from flowcore.model.queues import Queue, QueueState, QueueUsage
from flowcore.model.selector_index import SelectorIndex, label_pairs
from flowcore.model.selectors import Labels

#: Levels of the tree; a queue below that many others does not count.
MOST_LEVELS = 16
#: Queues that the message of a circle names.
_NAMED = 8


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
        known = {queue.name: queue for queue in sorted(queues, key=lambda queue: queue.name)}
        places = _Places(known)
        self.problems: Mapping[str, QueueProblem] = places.problems()
        self._paths = dict(sorted(places.paths.items(), key=lambda item: (len(item[1]), item[0])))
        self.queues: Mapping[str, Queue] = {name: known[name] for name in self._paths}
        self._children: dict[str, list[str]] = {}
        for name, queue in self.queues.items():
            self._children.setdefault(queue.parent, []).append(name)

    def path(self, name: str) -> tuple[str, ...]:
        """Names from the top of the tree down to this queue."""
        return self._paths[name]

    def children(self, name: str) -> list[str]:
        """Names of the queues right below one; of those at the top for ""."""
        return self._children.get(name, [])

    def state(self, usage: Mapping[str, QueueUsage]) -> QueueState | None:
        """The accepted queues and what their pods hold, as a snapshot has them; None: no queue is accepted."""
        return QueueState(tuple(self.queues.values()), usage) if self.queues else None

    def of(self, labels: Labels, namespace_labels: Labels) -> str:
        """Name of the queue that a pod counts for: the deepest that selects it, then the first by name; "": none."""
        by_pods, by_namespaces = self._selectors
        candidates = {*by_pods.find(labels), *by_namespaces.find(namespace_labels)}
        selecting = (name for name in candidates if self.queues[name].selects(labels, namespace_labels))
        return min(selecting, key=lambda name: (-len(self._paths[name]), name), default="")

    @cached_property
    def _selectors(self) -> tuple[SelectorIndex[str], SelectorIndex[str]]:
        """Each queue by its selector of pods or of namespaces: preferably a selector that names labels."""
        by_pods, by_namespaces = SelectorIndex[str](), SelectorIndex[str]()
        for name, queue in self.queues.items():
            pods, namespaces = queue.pods, queue.namespaces
            if pods is None or (namespaces is not None and label_pairs(namespaces) is not None):
                by_namespaces.add(name, namespaces)
            else:
                by_pods.add(name, pods)
        return by_pods, by_namespaces


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
        queue = self._known.get(key)
        if queue is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            queue = self._known[key] = self.tree.of(labels, namespace_labels)
        return queue


#: Remembered answers.
_MAX_KNOWN = 50_000


class _Places:
    """Where each queue is in the tree, or why it has no place. Each queue is looked at once.

    Attributes:
        paths: names from the top down to each queue that counts.
    """

    def __init__(self, known: Mapping[str, Queue]) -> None:
        self._known = known
        self.paths: dict[str, tuple[str, ...]] = {}
        #: Why others have no place: a reason, and the queue that it is about, itself or one above.
        self._causes: dict[str, tuple[str, str]] = {}
        #: Of queues of a circle: their names in a message.
        self._circles: dict[str, str] = {}
        for name in known:
            self._place(name)

    def problems(self) -> dict[str, QueueProblem]:
        """Why queues have no place, in the order in which they are known."""
        return {name: self._problem(name, *self._causes[name]) for name in self._known if name in self._causes}

    def _place(self, name: str) -> None:
        """A queue, and those above it that have no place yet."""
        climbed: dict[str, None] = {}
        while name in self._known and name not in self.paths and name not in self._causes:
            if name in climbed:
                names = list(climbed)
                self._take_circle(names[names.index(name) :])
                break
            if self._known[name].problem:
                self._causes[name] = "Invalid", name
                break
            climbed[name] = None
            name = self._known[name].parent
        for below in reversed(climbed):
            if below not in self._causes:
                self._place_below(below, self._known[below].parent)

    def _place_below(self, name: str, parent: str) -> None:
        """A queue whose parent has a place, or has none, or does not exist."""
        if parent in self._causes:
            self._causes[name] = self._causes[parent]
        elif parent and parent not in self._known:
            self._causes[name] = "UnknownParent", name
        elif len(self.paths.get(parent, ())) >= MOST_LEVELS:
            self._causes[name] = "TooDeep", name
        else:
            self.paths[name] = (*self.paths.get(parent, ()), name)

    def _take_circle(self, names: Sequence[str]) -> None:
        """Queues of a circle, each below the next one; a message begins with the queue that it is about."""
        more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
        for place, name in enumerate(names):
            first = [names[(place + step) % len(names)] for step in range(min(_NAMED, len(names)))]
            self._circles[name] = " -> ".join([*first, *more, name])
            self._causes[name] = "Circle", name

    def _problem(self, name: str, reason: str, about: str) -> QueueProblem:
        where, parent = "" if about == name else f" of {about}", self._known[about].parent
        if reason == "Circle":
            text = f"spec.parent: the queue is below itself or below a circle: {self._circles[about]}"
        elif reason == "UnknownParent":
            text = f"spec.parent{where}: there is no FlowQueue {parent}; create it"
        elif reason == "TooDeep":
            text = (
                f"spec.parent{where}: FlowQueue {parent} is at level {MOST_LEVELS} of the tree, the deepest that counts"
            )
        elif about == name:
            text = self._known[name].problem
        else:
            reason, text = "UnknownParent", f"spec.parent: FlowQueue {about} is not valid"
        return QueueProblem(reason, text)
