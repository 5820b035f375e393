"""What is not printable is escaped before it comes to a terminal: texts of others may have control characters.

Whoever may write an annotation could clear the screen of who reads about it, or write an answer over ours. kubectl
escapes such texts too. Three doors lead to a terminal, and each passes here: standard output and standard error
(``guard_streams``), consoles, which write colours and bars beside texts (``consoles``), and log lines.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any, TextIO, cast


def printable(text: str) -> str:
    r"""The text in one line, with ``\x1b`` for the character that begins a terminal's commands.

    So for all others that no font shows, ends of lines and marks that turn the direction of writing among them.
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def printable_lines(text: str) -> str:
    """The same for a text of several lines, with tabs in them, which it stays."""
    if text.isprintable():
        return text
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def _shown(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


def printable_json(encoded: bytes) -> bytes:
    """JSON whose texts have escapes where a character is not printable, and so mean the same.

    Args:
        encoded: without such characters between its texts, other than the ends of lines.
    """
    if encoded.isascii():
        return encoded.replace(b"\x7f", b"\\u007f")  # others below 128 are escaped in any JSON
    return _OTHERS.sub(_in_json, encoded.decode()).encode()


#: Characters of no ASCII that may be unprintable: all but letters, digits and marks that belong to words.
_OTHERS = re.compile(r"[^\x00-\x7e\w]")


def _in_json(match: re.Match[str]) -> str:
    character = match[0]
    if character.isprintable():
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[place]:02x}{units[place + 1]:02x}" for place in range(0, len(units), 2))


class _PrintableStream:
    """A stream on which texts are printable. Bytes, which documents are written as, pass by its ``buffer``."""

    def __init__(self, stream: TextIO) -> None:
        self.unguarded = stream

    def write(self, text: str) -> int:
        self.unguarded.write(printable_lines(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unguarded, name)


def guard_streams() -> None:
    """From here on all texts on standard output and standard error are printable."""
    sys.stdout, sys.stderr = _guarded(sys.stdout), _guarded(sys.stderr)


def _guarded(stream: TextIO) -> TextIO:
    return stream if isinstance(stream, _PrintableStream) else cast("TextIO", _PrintableStream(stream))


def unguarded(stream: TextIO) -> TextIO:
    """The stream itself, for who writes colours and has texts of others escaped before."""
    return stream.unguarded if isinstance(stream, _PrintableStream) else stream
