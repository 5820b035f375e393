"""Drawn policies: weights of preferences and prices of waiting, of any size."""

from hypothesis import strategies as st

from flowcore.model.cost_policy import CostPolicy, CostWeights, UnscheduledPrice
from flowcore.model.policies import BUILT_IN, Policy

_weights = st.builds(CostWeights, *[st.sampled_from((0, 1, 5, 100))] * 7)
_prices = st.builds(
    UnscheduledPrice, st.sampled_from((0, 1, 100_000, 10**12)), st.sampled_from((0, 10, 10**6)), st.sampled_from((0, 5))
)
policies = st.builds(
    lambda costs, prices: {BUILT_IN.name: Policy(BUILT_IN.name, cost=costs, unscheduled=prices)},
    st.builds(CostPolicy, weights=_weights),
    _prices,
)
