"""Scenarios: a cluster as it is, or as it might be, and its plan."""

from flowcore.scenario.plan import ScenarioPlan, plan_scenario
from flowcore.scenario.scenario import GovernedScenario, Scenario

__all__ = ["GovernedScenario", "Scenario", "ScenarioPlan", "plan_scenario"]
