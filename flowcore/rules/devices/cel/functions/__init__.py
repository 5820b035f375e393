"""Functions that expressions call: those of CEL itself, and those that Kubernetes adds.

Not here: addresses of networks, URLs, formats, times, authorization. An expression that calls these does not compile,
and the problem names the function.
"""

from flowcore.rules.devices.cel.functions.overloads import Overloads
from flowcore.rules.devices.cel.functions.table import GLOBALS, MEMBERS, call

__all__ = ["GLOBALS", "MEMBERS", "Overloads", "call"]
