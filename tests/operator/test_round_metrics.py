"""Metrics of rounds."""

from thalweg_operator.metrics import Metrics
from thalweg_operator.planning.reports.phases import Stopwatch
from thalweg_operator.planning.reports.round_metrics import RoundMetrics
from thalweg_operator.planning.worker.messages import RoundReply

from flowcore.planning.problem.left_at_least import LeftAtLeast


def test_what_every_plan_leaves_is_that_of_the_last_round() -> None:
    """It falls to 0 with a plan that leaves nothing. A round without pods has no plan to speak of."""
    metrics = Metrics()
    rounds = RoundMetrics(metrics)
    values = []
    for pods, left in ((5, LeftAtLeast(3, 2)), (0, None), (2, None)):
        reply = RoundReply(1, 0.0, 0.1, 5, 5, "fill", 1, left_at_least=left)
        rounds.planned(1, pods, Stopwatch(), reply)
        values.append(metrics.registry.get_sample_value("thalweg_plan_left_at_least"))
    assert values == [2.0, 2.0, 0.0]
