"""The tokens of an expression.

Source: cel-spec langdef.md, "Syntax".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from flowcore.rules.devices.cel.problems import ExpressionError
from flowcore.rules.devices.cel.values import MAX_INT, MAX_UINT, CelValue, Uint


class TokenKind(Enum):
    """What a token is."""

    NAME = auto()
    LITERAL = auto()
    OPERATOR = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A token.

    Attributes:
        text: of a name or an operator; for a literal as it is written.
        position: of its first character.
        value: of a literal.
    """

    kind: TokenKind
    text: str
    position: int
    value: CelValue = None


_BLANK = re.compile(r"(?:[ \t\r\n\f]+|//[^\n]*)+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_QUOTED_NAME = re.compile(r"`([A-Za-z0-9_./ -]+)`")
_NUMBER = re.compile(
    r"0[xX](?P<hex>[0-9a-fA-F]+)(?P<hexu>[uU])?"
    r"|(?P<float>[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<int>[0-9]+)(?P<u>[uU])?"
)
_STRING = re.compile(
    r"(?P<prefix>[rR][bB]?|[bB][rR]?)?"
    r"""(?P<quote>\"\"\"|'''|"|')"""
)
_OPERATOR = re.compile(r"&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,()\[\]{}]")
_ESCAPE = re.compile(
    r"\\(?:(?P<plain>[abfnrtv\\?\"'`])|[xX](?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})"
    r"|U(?P<U>[0-9a-fA-F]{8})|(?P<octal>[0-3][0-7]{2}))"
)
#: More than any number has that is not refused.
_MAX_DIGITS = 30
_PLAIN = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_WORDS: dict[str, CelValue] = {"true": True, "false": False, "null": None}
#: Words that name nothing.
RESERVED = frozenset(
    (
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
    )
) | {"return", "var", "void", "while"}


def tokens(text: str) -> Iterator[Token]:
    """The tokens of an expression, an ``END`` last.

    Raises:
        ExpressionError: something in it is no token.
    """
    position = 0
    while True:
        blank = _BLANK.match(text, position)
        position = blank.end() if blank else position
        if position == len(text):
            yield Token(TokenKind.END, "", position)
            return
        token, position = _token(text, position)
        yield token


def _token(text: str, position: int) -> tuple[Token, int]:
    if (match := _STRING.match(text, position)) is not None:
        value, end = _string(text, match)
        return Token(TokenKind.LITERAL, text[position:end], position, value), end
    if (match := _NAME.match(text, position)) is not None:
        word = match.group()
        if word in _WORDS:
            return Token(TokenKind.LITERAL, word, position, _WORDS[word]), match.end()
        if word == "in":
            return Token(TokenKind.OPERATOR, word, position), match.end()
        return Token(TokenKind.NAME, word, position), match.end()
    if (match := _QUOTED_NAME.match(text, position)) is not None:
        return Token(TokenKind.NAME, match[1], position), match.end()
    if (match := _NUMBER.match(text, position)) is not None:
        return Token(TokenKind.LITERAL, match.group(), position, _number(match)), match.end()
    if (match := _OPERATOR.match(text, position)) is not None:
        return Token(TokenKind.OPERATOR, match.group(), position), match.end()
    raise ExpressionError(f"syntax error at character {position + 1}: token recognition error at {text[position]!r}")


def _number(match: re.Match[str]) -> CelValue:
    if match["float"] is not None:
        return float(match["float"])
    if len(match.group()) > _MAX_DIGITS:
        raise ExpressionError(f"a number has more than {_MAX_DIGITS} digits")
    whole = int(match["hex"], 16) if match["hex"] is not None else int(match["int"])
    if match["hexu"] or match["u"]:
        if whole > MAX_UINT:
            raise ExpressionError(f"invalid uint literal {match.group()}")
        return Uint(whole)
    # One more than the largest integer is one literal with a minus before it.
    if whole > MAX_INT + 1:
        raise ExpressionError(f"invalid int literal {match.group()}")
    return whole


def _string(text: str, match: re.Match[str]) -> tuple[CelValue, int]:
    prefix, quote = (match["prefix"] or "").lower(), match["quote"]
    is_raw = "r" in prefix
    if "b" in prefix:
        raise ExpressionError("bytes are not supported")
    position, parts = match.end(), list[str]()
    while not text.startswith(quote, position):
        if position >= len(text) or (len(quote) == 1 and text[position] in "\r\n"):
            raise ExpressionError(f"syntax error at character {match.start() + 1}: the string does not end")
        if text[position] == "\\" and not is_raw:
            escape = _ESCAPE.match(text, position)
            if escape is None:
                raise ExpressionError(f"syntax error at character {position + 1}: unknown escape sequence")
            parts.append(_unescape(escape))
            position = escape.end()
        else:
            parts.append(text[position])
            position += 1
    return "".join(parts), position + len(quote)


def _unescape(escape: re.Match[str]) -> str:
    if escape["plain"] is not None:
        return _PLAIN.get(escape["plain"], escape["plain"])
    if escape["octal"] is not None:
        return chr(int(escape["octal"], 8))
    code = int(escape["x"] or escape["u"] or escape["U"], 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise ExpressionError(f"invalid unicode code point {escape.group()}")
    return chr(code)
