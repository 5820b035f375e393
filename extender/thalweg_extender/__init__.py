"""The room of the extender: kube-scheduler's questions, answered from plans made ahead.

What kube-scheduler sends and reads is in ``wire``, what it is told is worked out by ``answers`` from values alone,
``server`` joins the two over HTTP. Who knows the plan is a ``guide`` that is handed in: nothing here knows of the
operator.
"""

from thalweg_extender.answers import HELD, TAKEN, Outcome
from thalweg_extender.guide import Bind, Guide, OnAnswer
from thalweg_extender.server import application

__all__ = ["HELD", "TAKEN", "Bind", "Guide", "OnAnswer", "Outcome", "application"]
