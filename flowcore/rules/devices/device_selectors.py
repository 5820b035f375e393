"""What selectors say of devices: each expression is compiled once, and evaluated once for devices that look alike."""

from __future__ import annotations

from collections.abc import Hashable

from flowcore.model.generational_cache import GenerationalCache, estimate_bytes
from flowcore.model.resource_slices import Device
from flowcore.rules.devices.cel import CelProblem, CompiledSelector, compile_selector
from flowcore.rules.devices.cel.device_input import device_input
from flowcore.rules.devices.search_effort import CHARACTER, DEVICE, Spend, unlimited

#: What an expression may cost for one device: a tenth of what the API server lets it, about an eighth of a second.
MAX_COST = 100_000
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

    def matches(self, expression: str, driver: str, device: Device, spend: Spend = unlimited) -> bool | CelProblem:
        """Whether a device is selected; why that cannot be told is an answer too.

        Raises:
            EffortSpentError: ``spend`` does.
        """
        spend(DEVICE)
        seen = (driver, device.attributes, device.capacity, device.allow_multiple)
        answer = self._answers.get((expression, seen))
        if answer is None:
            answer, cost = self._evaluate(self._compile(expression, spend), driver, device)
            self._answers.put((expression, seen), answer, estimate_bytes(answer))
            spend(min(cost, MAX_COST))
        return answer

    @staticmethod
    def _evaluate(
        compiled: CompiledSelector | CelProblem, driver: str, device: Device
    ) -> tuple[bool | CelProblem, int]:
        if isinstance(compiled, CelProblem):
            return compiled, 0
        return compiled.evaluate_with_cost(device_input(driver, device), MAX_COST)

    def _compile(self, expression: str, spend: Spend) -> CompiledSelector | CelProblem:
        compiled = self._compiled.get(expression)
        if compiled is None:
            spend(CHARACTER * len(expression))
            compiled = compile_selector(expression)
            self._compiled.put(expression, compiled, _BYTES_A_CHARACTER * len(expression))
        return compiled
