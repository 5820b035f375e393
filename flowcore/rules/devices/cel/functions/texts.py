"""Functions of texts.

Source: cel-spec langdef.md, "Standard Definitions"; cel-go ext/strings.go; apiserver pkg/cel/library/regex.go. Regular
expressions are RE2's, and matching takes time in proportion to the text.
"""

from __future__ import annotations

from functools import lru_cache

import re2

from flowcore.rules.devices.cel.evaluation import Evaluation
from flowcore.rules.devices.cel.functions.overloads import INT, LIST, TEXT, Overloads
from flowcore.rules.devices.cel.problems import EvaluationError, no_overload
from flowcore.rules.devices.cel.values import CelValue

#: What trim takes off: Unicode's white space.
_BLANK = (
    " \t\n\v\f\r\u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
#: Longest regular expression: as long as an expression.
MAX_PATTERN = 10 * 1024
#: Bytes that one may take: about 40,000 instructions. As many patterns are remembered as are 128 MiB at most.
_PATTERN_BYTES, _PATTERNS = 2**20, 128
#: Units for a pattern that is too large. Others: for an instruction that is made, and for so many steps of a search.
_TOO_LARGE, _STEPS_A_UNIT = 8_000, 1_000
#: Units for each match that a text may have.
_MATCH = 4
_UPPER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_LOWER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}


@lru_cache(maxsize=_PATTERNS)
def compile_pattern(pattern: str) -> CelValue:
    """A regular expression.

    Raises:
        EvaluationError: it is none.
    """
    if len(pattern) > MAX_PATTERN:
        raise EvaluationError(f"error parsing regexp: it has more than {MAX_PATTERN} characters")
    options = re2.Options()
    options.log_errors, options.max_mem = False, _PATTERN_BYTES
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        raise EvaluationError(f"error parsing regexp: {error}") from None


def _pattern(state: Evaluation, pattern: CelValue, text: CelValue) -> CelValue:
    """A regular expression, with what it may cost to make it and to search a text: instructions by characters."""
    before = compile_pattern.cache_info().misses
    try:
        compiled = compile_pattern(pattern)
    except EvaluationError:
        state.spend(_TOO_LARGE)
        raise
    made = compile_pattern.cache_info().misses - before
    state.spend(compiled.programsize * made // 2 + compiled.programsize * len(text) // _STEPS_A_UNIT)
    return compiled


def _matches(state: Evaluation, text: CelValue, pattern: CelValue) -> CelValue:
    return _pattern(state, pattern, text).search(text) is not None


def _find(state: Evaluation, text: CelValue, pattern: CelValue) -> CelValue:
    match = _pattern(state, pattern, text).search(text)
    return "" if match is None else match.group()


def _find_all(state: Evaluation, text: CelValue, pattern: CelValue, most: CelValue = -1) -> CelValue:
    state.spend(_MATCH * len(text))
    matches = [match.group() for match in _pattern(state, pattern, text).finditer(text)]
    return matches if most < 0 else matches[:most]


def _character(_state: Evaluation, text: CelValue, place: CelValue) -> CelValue:
    if not 0 <= place <= len(text):
        raise EvaluationError(f"index out of range: {place}")
    return text[place : place + 1]


def _index(_state: Evaluation, text: CelValue, part: CelValue, start: CelValue = 0) -> CelValue:
    if not 0 <= start <= len(text):
        raise EvaluationError(f"index out of range: {start}")
    return text.find(part, start)


def _last_index(_state: Evaluation, text: CelValue, part: CelValue, last: CelValue | None = None) -> CelValue:
    if last is not None and not 0 <= last <= len(text):
        raise EvaluationError(f"index out of range: {last}")
    searched = text if last is None else text[: last + len(part)]
    # From behind Python takes time by the product of both lengths, from the front by their sum.
    place = searched[::-1].find(part[::-1])
    return place if place < 0 else len(searched) - len(part) - place


def _replace(state: Evaluation, text: CelValue, old: CelValue, new: CelValue, most: CelValue = -1) -> CelValue:
    count = text.count(old) if most < 0 else min(text.count(old), most)
    state.make(len(text) + count * (len(new) - len(old)))
    return text.replace(old, new, most)


def _split(state: Evaluation, text: CelValue, separator: CelValue, most: CelValue = -1) -> CelValue:
    if most == 0:
        return []
    state.spend(text.count(separator))  # each part is an object of its own
    if not separator:
        parts = list(text)
        return parts if most < 0 or len(parts) <= most else [*parts[: most - 1], "".join(parts[most - 1 :])]
    return text.split(separator, most - 1 if most > 0 else -1)


def _substring(_state: Evaluation, text: CelValue, start: CelValue, end: CelValue | None = None) -> CelValue:
    end = len(text) if end is None else end
    if not 0 <= start <= len(text):
        raise EvaluationError(f"index out of range: {start}")
    if not 0 <= end <= len(text):
        raise EvaluationError(f"index out of range: {end}")
    if start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    return text[start:end]


def _join(state: Evaluation, texts: CelValue, separator: CelValue = "") -> CelValue:
    if not {str}.issuperset(map(type, texts)):
        raise no_overload("join")
    state.make(sum(map(len, texts)) + len(separator) * len(texts))
    return separator.join(texts)


_MATCHES: Overloads = {(TEXT, TEXT): _matches}

GLOBALS: dict[str, Overloads] = {"matches": _MATCHES}

MEMBERS: dict[str, Overloads] = {
    "matches": _MATCHES,
    "contains": {(TEXT, TEXT): lambda _state, text, part: part in text},
    "startsWith": {(TEXT, TEXT): lambda _state, text, part: text.startswith(part)},
    "endsWith": {(TEXT, TEXT): lambda _state, text, part: text.endswith(part)},
    "find": {(TEXT, TEXT): _find},
    "findAll": {(TEXT, TEXT): _find_all, (TEXT, TEXT, INT): _find_all},
    "charAt": {(TEXT, INT): _character},
    "indexOf": {(TEXT, TEXT): _index, (TEXT, TEXT, INT): _index},
    "lastIndexOf": {(TEXT, TEXT): _last_index, (TEXT, TEXT, INT): _last_index},
    "lowerAscii": {(TEXT,): lambda _state, text: text.translate(_UPPER)},
    "upperAscii": {(TEXT,): lambda _state, text: text.translate(_LOWER)},
    "replace": {(TEXT, TEXT, TEXT): _replace, (TEXT, TEXT, TEXT, INT): _replace},
    "split": {(TEXT, TEXT): _split, (TEXT, TEXT, INT): _split},
    "substring": {(TEXT, INT): _substring, (TEXT, INT, INT): _substring},
    "trim": {(TEXT,): lambda _state, text: text.strip(_BLANK)},
    "join": {(LIST,): _join, (LIST, TEXT): _join},
}
