"""Which gangs a round may place: of trees of which some gangs are enough, and before pods that come later."""

from flowcore.planning.group_choices.choose_groups import ChooseGroups

__all__ = ["ChooseGroups"]
