"""Scenarios: a cluster as it is, or as it might be, and its plan."""

from flowcore.scenario.apply_changes import applied
from flowcore.scenario.changes import Change
from flowcore.scenario.plan import ScenarioPlan, plan_scenario
from flowcore.scenario.scenario import GovernedScenario, Scenario

__all__ = ["Change", "GovernedScenario", "Scenario", "ScenarioPlan", "applied", "plan_scenario"]
