"""Markdown tables from runs of a measurement: rows that are alike in all runs become one, with medians."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.figures.results import Record

_MISSING = "-"
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        field: of the row.
        digits: after the point.
        percent: whether the value is a part of one.
        per: the field by which the value is divided; "": by none.
    """

    header: str
    field: str
    digits: int = 0
    percent: bool = False
    per: str = ""

    def value(self, row: Row) -> Any:
        """Of a row; None: it has none."""
        value = row.get(self.field)
        return value / row[self.per] if self.per and value is not None and row[self.per] else value


@dataclass(frozen=True, slots=True)
class Ratio:
    """A column's value over that of another row: beside the value, as "1.8x".

    Attributes:
        column: its field.
        base: field and value that tell the other row, which is alike in all other keys.
        instead: value of that field -> the value that tells the other row for such rows.
    """

    column: str
    base: tuple[str, str]
    instead: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PageTable:
    """What of a measurement becomes a table.

    Attributes:
        name: in the page's template.
        measurement: whose runs.
        keys: fields that tell the rows apart.
        only: rows with these values only.
    """

    name: str
    measurement: str
    keys: Sequence[Column]
    columns: Sequence[Column]
    ratio: Ratio | None = None
    only: Mapping[str, Any] = field(default_factory=dict)

    def markdown(self, runs: Sequence[Record]) -> str:
        """The table: header, line, rows in the order of the first run."""
        per_run = [{self._key(row): row for row in self._rows(run)} for run in runs]
        header = [column.header for column in (*self.keys, *self.columns)]
        lines = [header, ["---"] * len(header)]
        for key in dict.fromkeys(key for rows in per_run for key in rows):
            there = [rows[key] for rows in per_run if key in rows]
            cells = [self._cell(column, [column.value(row) for row in there]) for column in self.columns]
            if self.ratio is not None:
                at = [column.field for column in self.columns].index(self.ratio.column)
                cells[at] += self._compared(key, per_run)
            lines.append([*(_text(each) for each in key), *cells])
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def _rows(self, run: Record) -> Iterable[Row]:
        return (row for row in run["rows"] if all(row.get(name) == value for name, value in self.only.items()))

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row.get(column.field, "") for column in self.keys)

    def _cell(self, column: Column, values: Sequence[Any]) -> str:
        return _shown(_median([each for each in values if each is not None]), column)

    def _compared(self, key: tuple[Any, ...], per_run: Sequence[Mapping[tuple[Any, ...], Row]]) -> str:
        """The median over the runs of the value over the base's in the same run."""
        ratio = self.ratio
        assert ratio is not None
        at = [column.field for column in self.keys].index(ratio.base[0])
        value = ratio.instead.get(key[at], ratio.base[1])
        if key[at] == value:
            return ""
        base = (*key[:at], value, *key[at + 1 :])
        found = [
            rows[key][ratio.column] / rows[base][ratio.column]
            for rows in per_run
            if key in rows and base in rows and rows[key].get(ratio.column) and rows[base].get(ratio.column)
        ]
        return f" ({statistics.median(found):.2f}x)" if found else ""


def _median(values: Sequence[Any]) -> Any:
    """Of numbers, or of each place of lists of numbers; of anything else the first."""
    if not values:
        return None
    if all(isinstance(each, (int, float)) and not isinstance(each, bool) for each in values):
        return statistics.median(values)
    if all(isinstance(each, list) and len(each) == len(values[0]) for each in values):
        return [_median(each) for each in zip(*values, strict=True)]
    return values[0]


def _shown(value: Any, column: Column) -> str:
    if value is None or value == "":
        return _MISSING
    if isinstance(value, list):
        return " / ".join(_shown(each, column) for each in value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return _text(value)
    return f"{100 * value:,.{column.digits}f} %" if column.percent else f"{value:,.{column.digits}f}"


def _text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value).replace("|", "\\|")
