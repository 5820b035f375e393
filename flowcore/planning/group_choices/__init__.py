"""Trees of gangs of which some are enough: which gangs a round places."""

from flowcore.planning.group_choices.choose_groups import ChooseGroups

__all__ = ["ChooseGroups"]
