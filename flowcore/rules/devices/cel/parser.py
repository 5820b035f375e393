"""Reads an expression into its syntax tree.

Source: cel-spec langdef.md, "Syntax".
"""

from __future__ import annotations

from flowcore.rules.devices.cel.macros import expand
from flowcore.rules.devices.cel.problems import ExpressionError
from flowcore.rules.devices.cel.syntax import (
    Call,
    Conditional,
    Index,
    ListOf,
    Literal,
    Logic,
    MapOf,
    Name,
    Select,
    Syntax,
)
from flowcore.rules.devices.cel.tokens import RESERVED, Token, TokenKind, tokens
from flowcore.rules.devices.cel.values import MAX_INT

#: Operator -> how tight it binds; ``&&`` and ``||`` bind less, ``?`` least.
_BINDS = {
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!=", "in"), 1),
    **dict.fromkeys("+-", 2),
    **dict.fromkeys("*/%", 3),
}
#: How deep brackets may nest. cel-go allows 250; nobody writes a tenth of it, and Python's own stack bears this much.
MAX_DEPTH = 40


def parse(text: str) -> Syntax:
    """The syntax tree of an expression.

    Raises:
        ExpressionError: it is no expression.
    """
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = list(tokens(text))
        self._place = 0
        self._depth = 0

    def whole(self) -> Syntax:
        tree = self._expression()
        if self._token.kind is not TokenKind.END:
            raise self._error()
        return tree

    @property
    def _token(self) -> Token:
        return self._tokens[self._place]

    def _error(self) -> ExpressionError:
        token = self._token
        read = "the end" if token.kind is TokenKind.END else repr(token.text)
        return ExpressionError(f"syntax error at character {token.position + 1}: {read} is not expected here")

    def _accept(self, *operators: str) -> str:
        """Goes on behind one of these operators; "" where another token stands."""
        token = self._token
        if token.kind is TokenKind.OPERATOR and token.text in operators:
            self._place += 1
            return token.text
        return ""

    def _expect(self, operator: str) -> None:
        if not self._accept(operator):
            raise self._error()

    def _name(self) -> str:
        token = self._token
        if token.kind is not TokenKind.NAME:
            raise self._error()
        self._place += 1
        return token.text

    def _expression(self) -> Syntax:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionError(f"the expression nests deeper than {MAX_DEPTH}")
        tree = self._logic("||", decides=True)
        if self._accept("?"):
            yes = self._logic("||", decides=True)
            self._expect(":")
            tree = Conditional(tree, yes, self._expression())
        self._depth -= 1
        return tree

    def _logic(self, operator: str, *, decides: bool) -> Syntax:
        operands = list[Syntax]()
        while not operands or self._accept(operator):
            operands.append(self._logic("&&", decides=False) if decides else self._operation(1))
        return operands[0] if len(operands) == 1 else Logic(decides, tuple(operands))

    def _operation(self, least: int) -> Syntax:
        """Operators that bind at least so tight, from left to right."""
        tree = self._unary()
        while True:
            token = self._token
            binds = _BINDS.get(token.text, 0) if token.kind is TokenKind.OPERATOR else 0
            if binds < max(least, 1):
                return tree
            self._place += 1
            function = "@in" if token.text == "in" else f"_{token.text}_"
            tree = Call(function, None, (tree, self._operation(binds + 1)))

    def _unary(self) -> Syntax:
        marks = list[str]()
        while mark := self._accept("!", "-"):
            marks.append(mark)
        token = self._token
        if marks and marks[-1] == "-" and token.kind is TokenKind.LITERAL and type(token.value) in (int, float):
            marks.pop()
            self._place += 1
            tree = self._members(Literal(-token.value))
        else:
            tree = self._members(self._primary())
        for mark in reversed(marks):
            tree = Call(f"{mark}_", None, (tree,))
        return tree

    def _members(self, tree: Syntax) -> Syntax:
        while mark := self._accept(".", "["):
            is_optional = bool(self._accept("?"))
            if mark == "[":
                tree = Index(tree, self._expression(), is_optional)
                self._expect("]")
                continue
            field = self._name()
            if not is_optional and self._accept("("):
                tree = self._call(field, tree)
            else:
                tree = Select(tree, field, is_optional)
        return tree

    def _call(self, function: str, target: Syntax | None) -> Syntax:
        """A call, the bracket read; a macro is expanded."""
        arguments = tuple(self._expressions(")"))
        return expand(function, target, arguments) or Call(function, target, arguments)

    def _expressions(self, end: str) -> list[Syntax]:
        expressions = list[Syntax]()
        while not self._accept(end):
            if expressions:
                self._expect(",")
            expressions.append(self._expression())
        return expressions

    def _primary(self) -> Syntax:
        token = self._token
        if token.kind is TokenKind.LITERAL:
            self._place += 1
            if type(token.value) is int and token.value > MAX_INT:
                raise ExpressionError(f"invalid int literal {token.text}")
            return Literal(token.value)
        if self._accept("("):
            tree = self._expression()
            self._expect(")")
            return tree
        if self._accept("["):
            return self._list()
        if self._accept("{"):
            return self._map()
        self._accept(".")  # a name of the root, where all names are
        name = self._name()
        if name in RESERVED:
            raise ExpressionError(f"reserved identifier: {name}")
        return self._call(name, None) if self._accept("(") else Name(name)

    def _list(self) -> Syntax:
        elements = list[tuple[Syntax, bool]]()
        while not self._accept("]"):
            is_optional = bool(self._accept("?"))
            elements.append((self._expression(), is_optional))
            if not self._accept(","):
                self._expect("]")
                break
        return ListOf(tuple(elements))

    def _map(self) -> Syntax:
        entries = list[tuple[Syntax, Syntax, bool]]()
        while not self._accept("}"):
            is_optional = bool(self._accept("?"))
            key = self._expression()
            self._expect(":")
            entries.append((key, self._expression(), is_optional))
            if not self._accept(","):
                self._expect("}")
                break
        return MapOf(tuple(entries))
