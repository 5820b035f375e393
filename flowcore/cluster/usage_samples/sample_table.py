"""The last samples of many things, in arrays: 28 bytes a sample."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from flowcore.model.usage import UsageSample

_Key = TypeVar("_Key", bound=Hashable)
_Source = TypeVar("_Source", bound=Hashable)
_FIRST_ROWS = 64


def _values(samples: Iterable[UsageSample]) -> NDArray[np.float64]:
    """float64[M, 4]: timestamp, window, cpu and memory of each."""
    return np.array([(each.timestamp, each.window, each.cpu_milli, each.memory_bytes) for each in samples], dtype=float)


class SampleTable(Generic[_Key]):
    """A row for each thing, with its last samples, written in a circle.

    Args:
        samples: how many are kept of each thing, at least 1.
    """

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._rows: dict[_Key, int] = {}
        self._unused: list[int] = []
        self._timestamps: NDArray[np.float64] = np.zeros((0, samples))
        self._windows: NDArray[np.float32] = np.zeros((0, samples), dtype=np.float32)
        #: int64[rows, samples, 2]: cpu and memory.
        self._amounts: NDArray[np.int64] = np.zeros((0, samples, 2), dtype=np.int64)
        #: How many samples were written to each row.
        self._written: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._tags: NDArray[np.int32] = np.zeros(0, dtype=np.int32)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: _Key) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[_Key]:
        return iter(self._rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        arrays = (self._timestamps, self._windows, self._amounts, self._written, self._tags)
        return sum(each.nbytes for each in arrays)

    def row(self, key: _Key) -> int:
        """The row of a thing, for as long as it is not dropped; a new one for a new thing."""
        row = self._rows.get(key)
        if row is None:
            if not self._unused:
                self._grow()
            row = self._rows[key] = self._unused.pop()
        return row

    def put(self, samples: Mapping[_Key, UsageSample], tags: Sequence[int] | None = None) -> None:
        """Takes one sample of each thing. One that is no newer than the last is left out.

        Args:
            tags: a number for each thing, for ``amounts``.
        """
        if not samples:
            return
        rows = np.array([self.row(key) for key in samples], dtype=np.int64)
        if tags is not None:
            self._tags[rows] = tags
        timestamps = np.array([each.timestamp for each in samples.values()])
        last = (self._written[rows] - 1) % self._samples
        newer = (self._written[rows] == 0) | (timestamps > self._timestamps[rows, last])
        self._write(rows[newer], _values(samples.values())[newer])

    def copy(self, key: _Key, source: SampleTable[_Source], source_key: _Source) -> None:
        """Adds the samples of a thing in another table, whenever they were taken."""
        turns, row = source.turns(source_key)[-self._samples :], self.row(key)
        cell = source.row(source_key), turns % source._samples
        to = row, (int(self._written[row]) + np.arange(len(turns))) % self._samples
        self._timestamps[to], self._windows[to] = source._timestamps[cell], source._windows[cell]
        self._amounts[to] = source._amounts[cell]
        self._written[row] += len(turns)

    def add(self, samples: Mapping[_Key, Sequence[UsageSample]]) -> None:
        """Adds samples of things, whenever they were taken."""
        rows = [self.row(key) for key in samples]
        for turn in range(max(map(len, samples.values()), default=0)):
            # One of each at once: one by one they hold up the operator's event loop.
            written = [(row, own[turn]) for row, own in zip(rows, samples.values(), strict=True) if turn < len(own)]
            self._write(np.array([row for row, _ in written]), _values(sample for _, sample in written))

    def drop(self, key: _Key) -> None:
        """Forgets a thing."""
        row = self._rows.pop(key, None)
        if row is not None:
            self._written[row], self._tags[row] = 0, 0
            self._unused.append(row)

    def tag(self, key: _Key) -> int:
        """The tag of a thing."""
        return int(self._tags[self._rows[key]])

    def newest(self, key: _Key) -> UsageSample | None:
        """The newest sample of a thing; None: it has none."""
        row = self._rows.get(key)
        return None if row is None or not self._written[row] else self._sample(row, int(self._written[row]) - 1)

    def all_of(self, key: _Key) -> list[UsageSample]:
        """All samples of a thing in the order in which they came."""
        return [self._sample(self._rows[key], int(turn)) for turn in self.turns(key)] if key in self._rows else []

    def turns(self, key: _Key) -> NDArray[np.int64]:
        """Which samples of a thing are kept: their positions among all that were ever written."""
        written = int(self._written[self._rows[key]])
        return np.arange(max(0, written - self._samples), written)

    def counts(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64[M]: how many samples each of these rows has."""
        return np.minimum(self._written[rows], self._samples).astype(np.int64)

    def amounts(self, rows: NDArray[np.int64], every: float = 1.0) -> NDArray[np.int64]:
        """int64[M, 2]: cpu and memory of the samples of these rows.

        Args:
            every: at least 1; one of this number of samples is taken, at equal distances.
        """
        counts = self.counts(rows)
        ends = np.cumsum(counts)
        total = int(counts.sum())
        taken = math.ceil(total / every)
        chosen = np.arange(taken) * total // max(1, taken)
        which = np.searchsorted(ends, chosen, "right")
        amounts: NDArray[np.int64] = self._amounts[rows[which], chosen - (ends - counts)[which]]
        return amounts

    def last_timestamp(self, rows: NDArray[np.int64]) -> float:
        """When the newest sample of these rows ended; 0: they have none."""
        rows = rows[self._written[rows] > 0]
        return float(self._timestamps[rows, (self._written[rows] - 1) % self._samples].max(initial=0.0))

    def rows_by_tag(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Rows in use, sorted by their tag: int64[M], and int32[M] their tags."""
        rows = np.fromiter(self._rows.values(), dtype=np.int64, count=len(self._rows))
        order = np.argsort(self._tags[rows], kind="stable")
        return rows[order], self._tags[rows[order]]

    def oldest_first(self) -> list[_Key]:
        """All things by the time of their newest sample, those without any first."""
        last = self._timestamps[np.arange(len(self._written)), (self._written - 1) % self._samples]
        newest = np.where(self._written > 0, last, -np.inf)
        return sorted(self._rows, key=lambda key: float(newest[self._rows[key]]))

    def _write(self, rows: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Timestamp, window, cpu and memory of one sample each; amounts up to 2**53 are exact."""
        cells = rows, self._written[rows] % self._samples
        self._timestamps[cells], self._windows[cells], self._amounts[cells] = values[:, 0], values[:, 1], values[:, 2:]
        self._written[rows] += 1

    def _sample(self, row: int, turn: int) -> UsageSample:
        cell = row, turn % self._samples
        cpu, memory = self._amounts[cell].tolist()
        return UsageSample(float(self._timestamps[cell]), float(self._windows[cell]), cpu, memory)

    def _grow(self) -> None:
        before = len(self._written)
        more = max(_FIRST_ROWS, before // 8)
        self._unused.extend(range(before + more - 1, before - 1, -1))
        for values in (self._timestamps, self._windows, self._amounts, self._written, self._tags):
            # In place: copies of large arrays would hold up the operator's event loop. Nobody has a view of them.
            values.resize((before + more, *values.shape[1:]), refcheck=False)
