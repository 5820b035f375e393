"""What selectors say of devices: each is compiled once, and evaluated once for devices that look alike to it.

Devices of one model differ in what no selector reads, such as a serial number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from flowcore.model.generational_cache import GenerationalCache, estimate_bytes
from flowcore.model.resource_slices import Device
from flowcore.rules.devices.cel import CelProblem, CompiledSelector, compile_selector
from flowcore.rules.devices.cel.device_input import device_input
from flowcore.rules.devices.search_effort import CHARACTER, DEVICE, Spend, unlimited

#: What an expression may cost for one device: a tenth of what the API server lets it, about an eighth of a second.
MAX_COST = 100_000
#: What an expression may cost for all devices that there are, where no rounds share the work: about a second.
MOST_OF_EXPRESSION = 1_000_000
_TOO_COSTLY = CelProblem("runtime", f"it costs more than {MOST_OF_EXPRESSION:,} units for all devices", is_limit=True)
#: Bytes of compiled expressions, and of answers, that end a generation. The latter count attributes that slices hold
#: anyway: some tens of thousands of devices.
_COMPILED_BYTES, _ANSWER_BYTES = 2**21, 2**27
#: What a compiled expression holds beside its text: about so many bytes for each character.
_BYTES_A_CHARACTER = 100


#: Types of attributes that every expression can have.
_KNOWN_TYPES = frozenset(("int", "bool", "string"))


class _Selector:
    """A compiled expression, and what it reads of a driver's devices, as these name it."""

    def __init__(self, compiled: CompiledSelector) -> None:
        self.compiled = compiled
        self._names: dict[str, frozenset[str]] = {}

    def names(self, driver: str) -> frozenset[str] | None:
        """Names of the attributes and capacities that it reads; None: perhaps any."""
        if self.compiled.reads is None:
            return None
        names = self._names.get(driver)
        if names is None:
            reads = self.compiled.reads
            own = (name for domain, name in reads if domain == driver)
            names = self._names[driver] = frozenset((*own, *(f"{domain}/{name}" for domain, name in reads)))
        return names


class DeviceSelectors:
    """Compiled selectors and their answers.

    Attributes:
        in_rounds: rounds limit what is spent, and what was not asked is asked in the next one. Else an expression that
            costs too much for all devices is an error for the rest of them.
    """

    def __init__(self) -> None:
        self.in_rounds = False
        self._spent = Counter[str]()
        self._compiled: GenerationalCache[str, _Selector | CelProblem] = GenerationalCache(_COMPILED_BYTES)
        self._answers: GenerationalCache[Hashable, bool | CelProblem] = GenerationalCache(_ANSWER_BYTES)

    def matches(self, expression: str, driver: str, device: Device, spend: Spend = unlimited) -> bool | CelProblem:
        """Whether a device is selected; why that cannot be told is an answer too.

        Raises:
            EffortSpentError: ``spend`` does.
        """
        spend(DEVICE)
        selector = self._compile(expression, spend)
        if isinstance(selector, CelProblem):
            return selector
        seen = (expression, driver, device.allow_multiple, _seen(device, selector.names(driver)))
        answer = self._answers.get(seen)
        if answer is None and not self.in_rounds and self._spent[expression] >= MOST_OF_EXPRESSION:
            return _TOO_COSTLY
        if answer is None:
            answer, cost = selector.compiled.evaluate_with_cost(device_input(driver, device), MAX_COST)
            self._answers.put(seen, answer, estimate_bytes(answer))
            self._spent[expression] += cost
            spend(min(cost, MAX_COST))
        return answer

    def forget_costs(self) -> None:
        """There are other devices, or a new round: each expression may cost as much again."""
        self._spent.clear()

    def _compile(self, expression: str, spend: Spend) -> _Selector | CelProblem:
        selector = self._compiled.get(expression)
        if selector is None:
            spend(CHARACTER * len(expression))
            compiled = compile_selector(expression)
            selector = compiled if isinstance(compiled, CelProblem) else _Selector(compiled)
            self._compiled.put(expression, selector, _BYTES_A_CHARACTER * len(expression))
        return selector


def _seen(device: Device, names: frozenset[str] | None) -> Hashable:
    """What an expression that reads these names sees of a device."""
    if names is None:
        return device.attributes, device.capacity
    # A version that is none, or a type that is not known, makes every expression err.
    seen: list[Hashable] = [each for each in device.attributes if each[0] in names or each[1].kind not in _KNOWN_TYPES]
    seen.append(None)
    seen += [each for each in device.capacity if each[0] in names]
    return tuple(seen)
