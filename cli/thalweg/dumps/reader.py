"""Reads cluster dumps: the output of ``kubectl get ... -o json`` or ``-o yaml``, from one or more files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from flowcore.api.gang_parents import rules_by_type
from flowcore.api.ignored_fields import without_ignored_fields
from flowcore.api.kinds import NODE, NODE_METRICS, POD_METRICS, POLICY, QUEUE
from flowcore.cluster.saved_state import UnreadableState, is_saved_state
from flowcore.model.errors import ModelError
from flowcore.model.policies import by_precedence
from flowcore.questions.scenario import Scenario
from flowcore.questions.scenario.reading.dump_commands import DUMP_COMMAND
from flowcore.questions.scenario.reading.edits import Edits
from flowcore.questions.scenario.reading.missing_objects import unknown_namespace
from flowcore.questions.scenario.reading.moment import Times, moment_text
from flowcore.questions.scenario.reading.objects import (
    COMPOSITE,
    WORKLOADS,
    ObjectReader,
    api_group,
    name_of,
    unread_kind,
    why_ignored,
)
from flowcore.questions.scenario.reading.saved import read_state
from thalweg.dumps.files import DumpError, display_name, parse_objects, read_text
from thalweg.dumps.policy_schema import checked_spec
from thalweg.terminal.telling import tell_warning
from thalweg_cost_models import find_models

#: API group, kind, namespace and name.
_Key = tuple[str, str, str, str]
#: A sample is refused if it lies in the future, so the time of the dump must be known first.
_SAMPLES = (NODE_METRICS.kind, POD_METRICS.kind)


def read_dump(files: tuple[str, ...], moment: float | None = None) -> Scenario:
    """Reads all files into one dump.

    Args:
        moment: when the cluster was so, in seconds since the epoch; None: the newest time that the objects name.

    Raises:
        DumpError: a file cannot be read, an object does not match its kind, or the files are no dump of a cluster.
    """
    reader = _Reader()
    for name in files:
        reader.read_file(name)
    return _checked(reader.dump(moment))


def read_listing(objects: Iterable[dict[str, Any]], shown: str, moment: float, unread: Iterable[str] = ()) -> Scenario:
    """A scenario of the objects that an API server lists.

    Args:
        objects: each with its kind and version.
        shown: what names the API server in messages.
        moment: when it listed them, in seconds since the epoch.
        unread: kinds that it did not list for the asker.

    Raises:
        DumpError: an object does not match its kind, or there is no node.
    """
    reader = _Reader()
    reader.unread = frozenset(unread)
    if not any(item["kind"] == NODE.kind for item in reader.read_objects(objects, shown)):
        raise DumpError(f"the API server ({shown}) lists no Node")
    return _checked(reader.dump(moment))


def _checked(scenario: Scenario) -> Scenario:
    if problem := unknown_namespace(scenario):
        raise DumpError(problem)
    return scenario


def read_objects(name: str) -> list[dict[str, Any]]:
    """The objects of one file that plans depend on, validated; policies and queues with the defaults of their schema.

    Warnings about the others go to standard error.

    Raises:
        DumpError: the file cannot be read, or an object does not match its kind.
    """
    reader = _Reader()
    objects = reader.read_file(name)
    reader.skip_unread()
    for warning in (*reader.ignored_fields, *reader.skip_warnings()):
        tell_warning(warning)
    if not objects:
        raise DumpError(f"{display_name(name)}: contains no object that plans depend on")
    return [
        manifest | {"spec": checked_spec(manifest)} if manifest["kind"] in (POLICY.kind, QUEUE.kind) else manifest
        for manifest in objects
    ]


class _Reader:
    """Collects the objects of a dump, file by file."""

    def __init__(self) -> None:
        self._dump = Scenario()
        #: Kinds that an API server did not list; None: files are read.
        self.unread: frozenset[str] | None = None
        self._objects = ObjectReader(Edits(self._dump), 0.0, find_models().known, checked_spec)
        self._times = Times()
        self._samples: list[tuple[dict[str, Any], str]] = []
        self._known: set[_Key] = set()
        self._files: list[str] = []
        #: Objects of kinds that plans depend on only if a policy names them; with the kind and the file.
        self._unread: list[tuple[dict[str, Any], str, str]] = []
        #: Number of skipped objects of each kind, and the first object of each.
        self._skipped: Counter[str] = Counter()
        self._first_seen_in: dict[str, str] = {}
        #: Sentences about fields that are ignored.
        self.ignored_fields: list[str] = []

    def read_file(self, name: str) -> list[dict[str, Any]]:
        """Reads all objects of a file; returns those of kinds that are read, none of a saved state."""
        file, text = display_name(name), read_text(name)
        if is_saved_state(text):
            self._read_state(file, text)
            return []
        return self.read_objects(parse_objects(text, file, self._times.read_list), file)

    def read_objects(self, objects: Iterable[dict[str, Any]], file: str) -> list[dict[str, Any]]:
        """Reads the objects of a file; returns those of kinds that are read."""
        here: dict[_Key, dict[str, Any]] = {}
        replaced: dict[str, list[str]] = {}
        for given in objects:
            item, ignored = without_ignored_fields(given)
            kind, group = item["kind"], api_group(item)
            _check_is_object(item, file)
            if unread := unread_kind(item):
                if group:
                    self._unread.append((item, unread, file))  # a policy may name the kind, and come later
                else:
                    self._skip(item, unread)
                continue
            try:
                namespace, own = name_of(item)
            except ModelError as error:
                raise DumpError(f"{file}: {kind}: {error}") from error
            key = (group, kind, namespace, own)
            shown = f"{namespace}/{own}" if namespace else own
            if key not in here:
                here[key] = item
                self.ignored_fields += [f"{file}: {kind} {shown}: {sentence}" for sentence in ignored]
                self._put(item, f"{file}: {kind} {shown}")
                if key in self._known:
                    replaced.setdefault(kind, []).append(shown)
            elif not _equal(here[key], item):
                raise DumpError(f"{file}: {kind} {shown}: the file contains it twice, with different content")
        self._known.update(here)
        self._files.append(file)
        for kind, names in replaced.items():
            which = f"{kind} {names[0]} replaces" if len(names) == 1 else f"{len(names)} {kind} objects replace"
            self._dump.warnings.append(f"{file}: {which} the version of an earlier file")
        return [*here.values()]

    def _read_state(self, file: str, text: str) -> None:
        """Reads what ``thalweg run --dump-directory`` wrote."""
        try:
            self._times.written.append(read_state(text.rstrip("\n").split("\n"), self._dump).moment)
        except UnreadableState as error:
            raise DumpError(f"{file}: {error}") from error
        self._files.append(file)

    def dump(self, moment: float | None) -> Scenario:
        """The dump, once all files are read.

        Args:
            moment: see ``read_dump``.
        """
        dump = self._dump
        self._read_own_parents()
        workload, shown = min(WORKLOADS & self._skipped.keys(), default=""), ""
        if workload:
            shown = self._first_seen_in[workload]
        elif (parent := next(iter(dump.cluster.gangs.parents), None)) is not None:
            workload, shown = parent.kind.partition(".")[0], parent.display_name
        if workload and not dump.cluster.pods:
            raise DumpError(
                f"{shown}: only pods are planned, and the files contain no Pod. Create the "
                f"{workload} in a cluster and dump the cluster: {DUMP_COMMAND}"
            )
        if not dump.cluster.nodes:
            raise DumpError(f"{', '.join(self._files)}: no Node found. Dump the cluster with: {DUMP_COMMAND}")
        self._read_times(moment)
        dump.unread = self.unread
        dump.warnings += filter(None, [dump.free_by_omission])
        dump.gaps += self._objects.resolve()
        dump.warnings += self.ignored_fields
        dump.warnings += self._objects.warnings
        dump.warnings += self.skip_warnings()
        return dump

    def _read_own_parents(self) -> None:
        """Reads the objects of kinds that policies of the dump name; the other ones are skipped."""
        rules = rules_by_type(policy.gangs for policy in by_precedence(self._dump.policies.values()))
        for item, kind, file in self._unread:
            named = rules.get((str(item.get("apiVersion")), item["kind"]))
            if named is None:
                self._skip(item, kind)
                continue
            try:
                self._objects.put_own_parent(item, *named)
            except ModelError as error:
                raise DumpError(f"{file}: {_shown(item, kind)}: {error}") from error
        self._unread.clear()

    def _read_times(self, moment: float | None) -> None:
        """Settles the time of the dump, and reads the samples, which depend on it."""
        refused = {shown for _, shown in self._samples}  # the reader tells of these itself
        dump, late = self._dump, [each for each in self._times.too_late() if each not in refused]
        dump.moment = self._times.moment() if moment is None else moment
        if moment is None and late:
            which = late[0] if len(late) == 1 else f"{len(late)} objects, such as {late[0]}"
            dump.warnings.append(
                f"{which}: a time long after those of most objects does not count. The dump is taken to be of "
                f"{moment_text(dump.moment)}; give another time with --now"
            )
        samples = ObjectReader(Edits(dump), dump.moment, find_models().known)
        for item, shown in self._samples:
            try:
                samples.put(item, shown)
            except ModelError as error:
                raise DumpError(f"{shown}: {error}") from error
        dump.warnings += samples.warnings

    def skip_unread(self) -> None:
        """Skips the objects of kinds that plans depend on only if a policy names them."""
        for item, kind, _ in self._unread:
            self._skip(item, kind)
        self._unread.clear()

    def skip_warnings(self) -> Iterator[str]:
        """One sentence about objects that plans do not depend on, and one about those for which pods wait."""
        kinds = sorted(self._skipped.items())
        of_effect = [each for each in kinds if each[0] == COMPOSITE]
        kinds = [each for each in kinds if each[0] != COMPOSITE]
        for kind, count in of_effect + (kinds if len(kinds) == 1 else []):
            which = f"{count} {kind} {'object' if count == 1 else 'objects'}"
            yield f"{which} ignored, such as {self._first_seen_in[kind]}: {why_ignored(kind)}"
        if len(kinds) > 1:
            listed = ", ".join(f"{kind} ({count:,})" for kind, count in kinds)
            why = "; of workloads only existing pods are planned" if WORKLOADS & self._skipped.keys() else ""
            yield f"{len(kinds)} kinds ignored, since plans do not depend on them: {listed}{why}"

    def _put(self, item: dict[str, Any], shown: str) -> None:
        self._times.read(item, shown)
        if item["kind"] in _SAMPLES:
            self._samples.append((item, shown))
            return
        try:
            self._objects.put(item, shown)
        except ModelError as error:
            raise DumpError(f"{shown}: {error}") from error

    def _skip(self, item: dict[str, Any], kind: str) -> None:
        self._skipped[kind] += 1
        self._first_seen_in.setdefault(kind, _shown(item, kind))


def _shown(item: dict[str, Any], kind: str) -> str:
    metadata = item.get("metadata")
    fields = metadata if isinstance(metadata, dict) else {}
    names = [str(fields[key]) for key in ("namespace", "name") if fields.get(key)]
    return f"{kind} {'/'.join(names)}".rstrip()


def _check_is_object(item: dict[str, Any], file: str) -> None:
    """Checks that an answer of an API server is an object.

    Raises:
        DumpError: the item is a Status or a Table.
    """
    if item["kind"] == "Status":
        message = " ".join(str(item.get("message") or item.get("reason") or "no message").split())
        raise DumpError(f"{file}: Status: this is an error of the API server, not an object: {message}")
    if item["kind"] == "Table":
        raise DumpError(f"{file}: Table: this is a table of columns; dump whole objects: {DUMP_COMMAND}")


def _equal(first: dict[str, Any], second: dict[str, Any]) -> bool:
    try:
        return first == second
    except RecursionError:  # nested too deeply for Python
        return False
