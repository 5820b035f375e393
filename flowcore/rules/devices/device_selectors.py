"""What selectors say of devices: each expression is compiled once, and evaluated once for devices that look alike to it.

Devices of one model differ in what no selector reads, such as a serial number.
"""

from __future__ import annotations

from collections.abc import Hashable

from flowcore.model.generational_cache import GenerationalCache, estimate_bytes
from flowcore.model.resource_slices import Device
from flowcore.rules.devices.cel import CelProblem, CompiledSelector, compile_selector
from flowcore.rules.devices.cel.device_input import device_input

#: Bytes of compiled expressions, and of answers, that end a generation. The latter count attributes that slices hold
#: anyway: some tens of thousands of devices.
_COMPILED_BYTES, _ANSWER_BYTES = 2**20, 2**27
#: What a compiled expression holds beside its text: about so many bytes for each character.
_BYTES_A_CHARACTER = 60


class DeviceSelectors:
    """Compiled selectors and their answers."""

    def __init__(self) -> None:
        self._compiled: GenerationalCache[str, CompiledSelector | CelProblem] = GenerationalCache(_COMPILED_BYTES)
        self._answers: GenerationalCache[Hashable, bool | CelProblem] = GenerationalCache(_ANSWER_BYTES)

    def matches(self, expression: str, driver: str, device: Device) -> bool | CelProblem:
        """Whether a device is selected; why that cannot be told is an answer too."""
        compiled = self._compile(expression)
        if isinstance(compiled, CelProblem):
            return compiled
        seen = (expression, driver, device.allow_multiple, *_seen(compiled, driver, device))
        answer = self._answers.get(seen)
        if answer is None:
            answer = compiled.evaluate(device_input(driver, device))
            self._answers.put(seen, answer, estimate_bytes(answer))
        return answer

    def _compile(self, expression: str) -> CompiledSelector | CelProblem:
        compiled = self._compiled.get(expression)
        if compiled is None:
            compiled = compile_selector(expression)
            self._compiled.put(expression, compiled, _BYTES_A_CHARACTER * len(expression))
        return compiled


def _seen(compiled: CompiledSelector, driver: str, device: Device) -> tuple[Hashable, Hashable]:
    """What an expression may read of a device."""
    if compiled.reads is None:
        return device.attributes, device.capacity
    read = {f"{domain}/{name}" for domain, name in compiled.reads}
    read |= {name for domain, name in compiled.reads if domain == driver}
    # A version that is none, or a type that is not known, makes every expression err.
    attributes = tuple(
        each for each in device.attributes if each[0] in read or each[1].kind not in ("int", "bool", "string")
    )
    return attributes, tuple(each for each in device.capacity if each[0] in read)
