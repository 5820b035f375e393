"""Selectors of devices: the part of CEL that Kubernetes' environment for devices has.

Source: github.com/google/cel-spec (langdef.md); dynamic-resource-allocation cel/compile.go and apiserver pkg/cel say
which variables and functions there are. `tokens` and `parser` read an expression into `syntax`, `compiled` turns that
into functions of Python once, `functions` are what expressions call, `values` what they compute with. Decision 103 says
why this is no library.
"""

from flowcore.rules.devices.cel.compiled import CompiledSelector, compile_selector
from flowcore.rules.devices.cel.problems import CelProblem

__all__ = ["CelProblem", "CompiledSelector", "compile_selector"]
