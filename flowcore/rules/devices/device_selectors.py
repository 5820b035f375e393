"""What selectors say of devices: each expression is compiled once, and evaluated once for devices that look alike."""

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
        seen = (driver, device.attributes, device.capacity, device.allow_multiple)
        answer = self._answers.get((expression, seen))
        if answer is None:
            compiled = self._compile(expression)
            answer = compiled if isinstance(compiled, CelProblem) else compiled.evaluate(device_input(driver, device))
            self._answers.put((expression, seen), answer, estimate_bytes(answer))
        return answer

    def _compile(self, expression: str) -> CompiledSelector | CelProblem:
        compiled = self._compiled.get(expression)
        if compiled is None:
            compiled = compile_selector(expression)
            self._compiled.put(expression, compiled, _BYTES_A_CHARACTER * len(expression))
        return compiled
