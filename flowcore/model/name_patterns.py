"""Regular expressions on names of nodes, by RE2: the time of a search is linear in the name, whatever the pattern."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import re2

#: Most characters of a pattern, and instructions and bytes of its program: these bound the time of a search.
_MAX_CHARACTERS: Final = 1024
_MAX_INSTRUCTIONS: Final = 512
_MAX_BYTES: Final = 1 << 20
#: Patterns that are kept compiled: more than a cluster has, since each new node is compared with all of them in turn.
_KEPT: Final = 1 << 16
#: Characters of the least and the greatest name that a pattern may match.
_RANGE: Final = 64
#: These begin with ^ and may have a match anywhere: it may be left out.
_LOOSE: Final = ("^*", "^?", "^{")
#: Behind these, ^ is not the beginning of all matches, or what is added at the end is text.
_OPEN: Final = ("|", "\\Q")


class NamePattern:
    """A regular expression that is searched in names (Go's ``MatchString``).

    Attributes:
        range: the least and the greatest name that may have a match; None: any may.

    Raises:
        ValueError: it is none, or it is too large; the message says which.
    """

    def __init__(self, pattern: str) -> None:
        if not pattern or len(pattern) > _MAX_CHARACTERS:
            raise ValueError(f"it has {len(pattern)} characters, 1 to {_MAX_CHARACTERS} are allowed")
        options = re2.Options()
        options.log_errors, options.max_mem = False, _MAX_BYTES
        try:
            self._compiled: Any = re2.compile(pattern, options=options)
        except re2.error as error:
            raise ValueError(f"it is no regular expression: {_text(error)}") from None
        if self._compiled.programsize > _MAX_INSTRUCTIONS:
            raise ValueError("it is too large")
        self.range: tuple[str, str] | None = None
        # RE2 says between which texts a match is. With what may follow it, the match is the whole name.
        if pattern.startswith("^") and not pattern.startswith(_LOOSE) and not any(part in pattern for part in _OPEN):
            with suppress(re2.error):
                least, most = re2.compile(pattern + ".*$", options=options).possiblematchrange(_RANGE)
                # The greatest may be no text. What replaces it is greater than all characters of names, too.
                self.range = least.decode(errors="replace"), most.decode(errors="replace")

    def is_in(self, name: str) -> bool:
        """Whether a name has a match. Where the range is known, most names need no search."""
        if self.range is not None and not self.range[0] <= name <= self.range[1]:
            return False
        return self._compiled.search(name) is not None


@lru_cache(maxsize=_KEPT)
def name_pattern(pattern: str) -> NamePattern:
    """The compiled pattern; it raises as ``NamePattern`` does."""
    return NamePattern(pattern)


def _text(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
