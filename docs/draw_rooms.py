"""Draws the rooms of the core and what flows through them: `python docs/draw_rooms.py`.

Rooms, their order and their parts are read from the import contracts in pyproject.toml, sentences from the packages'
docstrings. The values that flow are named here, and each name must exist. tests/docs/test_rooms.py fails when the
picture is behind.
"""

from __future__ import annotations

import tomllib
from html import escape
from importlib import import_module
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "images" / "rooms.svg"
#: What each room hands to the room above it.
FLOW = {
    "model": "flowcore.model.pods.Pod",
    "api": "flowcore.api.PodReader",
    "cluster": "flowcore.cluster.arrays.snapshot.Snapshot",
    "rules": "flowcore.rules.filters.Verdicts",
    "costs": "flowcore.costs.model.CostModel",
    "planning": "flowcore.planning.round.RoundResult",
}
_WIDTH, _LEFT, _ROOM, _GAP, _HEIGHT = 1020, 20, 820, 22, 62
_STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .name { font-weight: 600; font-size: 15px }
  .parts, .flow { fill: #59636e; font-size: 12px }
  .flow { font-family: ui-monospace, monospace }
  .page { fill: #ffffff }
  rect.room { fill: #f6f8fa; stroke: #818b98 }
  path { stroke: #0969da; fill: none; stroke-width: 1.5 }
  marker path { fill: #0969da }
"""


def rooms() -> list[str]:
    """From the top one down, as the import contract has them."""
    return _layers("flowcore")


def parts(room: str) -> list[str]:
    """Packages inside a room, from the top one down where a contract gives their order."""
    inside = sorted(path.parent.name for path in (ROOT / "flowcore" / room).glob("*/__init__.py"))
    order = _layers(f"flowcore.{room}")
    return sorted(inside, key=lambda name: order.index(name) if name in order else len(order))


def picture() -> str:
    """The SVG."""
    names = rooms()
    height = len(names) * (_HEIGHT + _GAP) + _GAP
    body = [_room(name, _GAP + place * (_HEIGHT + _GAP)) for place, name in enumerate(names)]
    body += [_arrow(lower, place) for place, (_, lower) in enumerate(pairwise(names))]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        'aria-label="The rooms of the core and what flows through them">\n'
        f"<style>{_STYLE}</style>\n"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z"/></marker></defs>\n'
        f'<rect class="page" width="{_WIDTH}" height="{height}"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def _layers(container: str) -> list[str]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    for contract in contracts:
        if contract.get("containers") == [container]:
            return [name.strip() for layer in contract["layers"] for name in layer.split("|")]
    return []


def _room(name: str, top: int) -> str:
    sentence = (import_module(f"flowcore.{name}").__doc__ or "").splitlines()[0]
    inside = ", ".join(parts(name))
    return (
        f'<rect class="room" x="{_LEFT}" y="{top}" width="{_ROOM}" height="{_HEIGHT}" rx="6"/>'
        f'<text class="name" x="{_LEFT + 12}" y="{top + 21}">{name}</text>'
        f'<text x="{_LEFT + 100}" y="{top + 21}">{escape(sentence)}</text>'
        f'<text class="parts" x="{_LEFT + 100}" y="{top + 45}">{escape(inside)}</text>'
    )


def _arrow(lower: str, place: int) -> str:
    """From the room ``lower`` up to the one at ``place``, with what it hands on."""
    top = _GAP + place * (_HEIGHT + _GAP)
    module, _, name = FLOW[lower].rpartition(".")
    getattr(import_module(module), name)
    x, start, end = _LEFT + _ROOM, top + _HEIGHT + _GAP + 20, top + _HEIGHT - 20
    return (
        f'<path d="M{x} {start}C{x + 40} {start} {x + 40} {end} {x + 2} {end}" marker-end="url(#tip)"/>'
        f'<text class="flow" x="{x + 42}" y="{(start + end) // 2 + 4}">{name}</text>'
    )


if __name__ == "__main__":
    PICTURE.write_text(picture())
