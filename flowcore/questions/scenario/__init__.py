"""Scenarios: a cluster as it is, or as it might be, and its plan."""

from flowcore.questions.scenario.hypothetical.apply_changes import applied
from flowcore.questions.scenario.hypothetical.changes import Change
from flowcore.questions.scenario.plan import ScenarioPlan, plan_scenario
from flowcore.questions.scenario.scenario import GovernedScenario, Scenario

__all__ = ["Change", "GovernedScenario", "Scenario", "ScenarioPlan", "applied", "plan_scenario"]
