"""What is in a pod's way, by name: the volume and where it is, the port and its holder, the partner, the amount."""

from flowcore.questions.diagnosis.evidence.in_the_way import in_the_way
from flowcore.questions.diagnosis.evidence.volumes import step_for_claims

__all__ = ["in_the_way", "step_for_claims"]
