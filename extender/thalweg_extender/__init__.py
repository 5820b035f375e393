"""The room of the extender: kube-scheduler's questions, answered from plans made ahead.

What kube-scheduler sends and reads is in ``wire``, what it is told is worked out by ``answers`` from values alone,
``server`` joins the two over HTTP, ``listener`` lets callers in, by ``certificates`` and within ``limits``. Who knows
the plan is a ``guide`` that is handed in: nothing here knows of the operator.
"""

from thalweg_extender.answers import TAKEN, Outcome
from thalweg_extender.certificates import Certificates, Files
from thalweg_extender.errors import ExtenderError
from thalweg_extender.guide import Bind, Guide, OnAnswer, OnRefused
from thalweg_extender.limits import DEFAULT, Limits
from thalweg_extender.listener import listening

__all__ = [
    "DEFAULT",
    "TAKEN",
    "Bind",
    "Certificates",
    "ExtenderError",
    "Files",
    "Guide",
    "Limits",
    "OnAnswer",
    "OnRefused",
    "Outcome",
    "listening",
]
