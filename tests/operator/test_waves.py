"""Pods are nominated in the order of the plan that they are in now."""

from thalweg_operator.reservations.steering.records.waves import WaveQueue

from flowcore.model.pods import Pod, PodClass


def all_queued(_pod: Pod) -> bool:
    return True


def test_one_that_was_planned_again_waits_for_the_pod_that_its_new_plan_puts_first() -> None:
    """Its old wave is still to come, and begins without it."""
    first, again, before_it = (Pod("ns", name, name, PodClass()) for name in ("first", "again", "before_it"))
    waves = WaveQueue()
    waves.add([(first, (1, 1)), (again, (1, 2))])
    assert waves.begin(0.0, all_queued) == [first]
    waves.add([(before_it, (1, 1)), (again, (1, 2))])
    waves.passed(first.key)
    assert waves.begin(1.0, all_queued) == [before_it]
    waves.passed(before_it.key)
    assert waves.begin(2.0, all_queued) == [again]
