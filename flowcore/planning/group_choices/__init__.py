"""Which gangs a round may place: of trees of which some gangs are enough, and before pods that come later.

Pods that share a claim are a gang too.
"""

from flowcore.planning.group_choices.choose_groups import ChooseGroups
from flowcore.planning.group_choices.claim_gangs import FormClaimGangs

__all__ = ["ChooseGroups", "FormClaimGangs"]
