"""Values that a selector of devices compares their attributes with, and the same selector with others.

``device.attributes["DOMAIN"].NAME == "VALUE"`` is read, as most selectors of models are written. What is said in
another way is not found.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from flowcore.rules.devices.cel.problems import ExpressionError
from flowcore.rules.devices.cel.tokens import Token, TokenKind, tokens

#: Texts of the tokens of a comparison; a literal where there is None.
_COMPARISON = ("device", ".", "attributes", "[", None, "]", ".", "NAME", "==", None)
_DOMAIN, _NAME, _VALUE = 4, 7, 9


class ComparedValue(NamedTuple):
    """A comparison with a text.

    Attributes:
        domain, name: of the attribute.
        start, end: where the literal begins and ends in the expression.
    """

    domain: str
    name: str
    value: str
    start: int
    end: int

    @property
    def attribute(self) -> str:
        """Its qualified name."""
        return f"{self.domain}/{self.name}"


def compared_values(expression: str) -> list[ComparedValue]:
    """The comparisons of an expression, in their order; none of what is no expression."""
    try:
        read = list(tokens(expression))
    except ExpressionError:
        return []
    return list(_compared(read))


def _compared(read: Sequence[Token]) -> Iterator[ComparedValue]:
    for place in range(len(read) - len(_COMPARISON)):
        part = read[place : place + len(_COMPARISON)]
        domain, name, value = part[_DOMAIN], part[_NAME], part[_VALUE]
        if all(_is(token, text) for token, text in zip(part, _COMPARISON, strict=True)):
            end = value.position + len(value.text)
            yield ComparedValue(str(domain.value), name.text, str(value.value), value.position, end)


def _is(token: Token, text: str | None) -> bool:
    if text is None:
        return token.kind is TokenKind.LITERAL and isinstance(token.value, str)
    return token.kind is TokenKind.NAME if text == "NAME" else token.text == text


def with_value(expression: str, compared: ComparedValue, value: str) -> str:
    """The expression with another text in a comparison."""
    return f"{expression[: compared.start]}{json.dumps(value)}{expression[compared.end :]}"


def replaced_value(before: str, after: str) -> tuple[ComparedValue, str] | None:
    """The comparison in which two expressions differ, and its new value; None: they differ in more, or in none."""
    pairs = list(zip(compared_values(before), compared_values(after), strict=False))
    for compared, new in pairs:
        if compared.value != new.value and with_value(before, compared, new.value) == after:
            return compared, new.value
    return None
