"""HTTP listeners that no client can exhaust: of the extender, and of the operator's own pages.

The package knows nothing of what is served.
"""

from thalweg_listener.at_once import AnswerMade, AtOnce
from thalweg_listener.connection_limits import ConnectionLimits
from thalweg_listener.listener import CannotListen, Handler, OnRefused, listening

__all__ = ["AnswerMade", "AtOnce", "CannotListen", "ConnectionLimits", "Handler", "OnRefused", "listening"]
