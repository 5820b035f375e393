"""Figures of findings for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from flowcore.model.amount_text import is_bytes, short_amount

#: Titles of the figures that a plan shows, and that no plan goes beyond.
AVOIDED: Final = ("A PLAN AVOIDS", "NO PLAN MORE THAN")


def figure_texts(resource: str, figures: Iterable[int | None]) -> list[str]:
    """How many, or how much of a resource: "2,990", of memory "1.5Gi"; "" for None.

    Args:
        resource: of stranded room; "": none.
    """
    return ["" if figure is None else _text(resource, figure) for figure in figures]


def _text(resource: str, figure: int) -> str:
    return short_amount(resource, figure) if is_bytes(resource) else f"{figure:,}"
