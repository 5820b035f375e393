"""What nodes cost the replacements of pods that leave for a rule, where their policy moves pods for gain.

They go to the cheapest node at once: from another one they would leave again, for gain.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from flowcore.cluster.arrays.snapshot import Int64s
from flowcore.costs import CostModel
from flowcore.model.policies import Policy
from flowcore.planning.evictions.destinations import Destinations
from flowcore.planning.evictions.eligibility import MoveEligibility
from flowcore.planning.evictions.gains.movable_kinds import kind_of, network_policies, unit_of
from flowcore.planning.evictions.gains.terminating_pods import TerminatingPods
from flowcore.planning.problem.placements.plans import Plan


class ReplacementCosts:
    """Prices nodes for single pods; it follows the state."""

    def __init__(
        self,
        state: Plan,
        policies: Mapping[str, Policy],
        models: Mapping[str, CostModel],
        destinations: Destinations,
        moves: MoveEligibility,
    ) -> None:
        self._state, self._policies, self._models = state, policies, models
        self._destinations, self._moves = destinations, moves
        self._networks = network_policies(policies, models)
        self._gaining = moves.gaining(self._networks)

    def of(self, resident: int) -> Int64s | None:
        """int64[N]: what each node costs the replacement; None: its policy moves none for gain."""
        residents = self._state.residents
        if residents.pods[resident].policy not in self._gaining:
            return None
        without = self._terminating.gone_from(self._state.snapshot([resident]))
        kind = kind_of(resident, self._unit, residents, without, self._policies, self._models, self._destinations)
        return kind.one_more(without)

    @cached_property
    def _terminating(self) -> TerminatingPods:
        return TerminatingPods.of(self._state.snapshot(), self._state.residents.running)

    @cached_property
    def _unit(self) -> tuple[float, ...]:
        # Whoever leaves already counts too: without it nobody may be left to say what a mean pod is.
        movable = np.nonzero(self._moves.ever_gaining(self._networks))[0]
        return unit_of(self._state.residents, movable, self._terminating.gone_from(self._state.snapshot()))
