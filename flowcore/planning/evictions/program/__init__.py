"""Who comes, who leaves and who gets another node on a few nodes, decided together by one integer program."""

from flowcore.planning.evictions.program.coming import ChoosingGang, Coming
from flowcore.planning.evictions.program.second_decision import decide_again

__all__ = ["ChoosingGang", "Coming", "decide_again"]
