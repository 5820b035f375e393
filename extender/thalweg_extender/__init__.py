"""The extender: it answers kube-scheduler's requests from plans that are made in advance.

``wire`` has the request and response types, ``answers`` computes responses (pure), ``server`` serves the verbs over
HTTP, and ``listener`` accepts connections (thalweg_listener) by ``certificates`` and within ``limits``. The caller
passes a ``PlanView``, so this package does not depend on the operator.
"""

from thalweg_extender.answers import INFEASIBLE_MESSAGE, FilterOutcome
from thalweg_extender.certificates import CertificateFiles, Certificates
from thalweg_extender.errors import ExtenderError
from thalweg_extender.extender_limits import DEFAULT_LIMITS, ExtenderLimits
from thalweg_extender.listener import listening
from thalweg_extender.plan_view import OnAnswer, OnRefused, PlanView

__all__ = [
    "DEFAULT_LIMITS",
    "INFEASIBLE_MESSAGE",
    "CertificateFiles",
    "Certificates",
    "ExtenderError",
    "ExtenderLimits",
    "FilterOutcome",
    "OnAnswer",
    "OnRefused",
    "PlanView",
    "listening",
]
