"""Pods are nominated in the order of the plan that they are in now."""

from thalweg_operator.turns import Turns

from flowcore.model.pods import Pod, PodClass


def test_one_that_was_planned_again_waits_for_the_pod_that_its_new_plan_puts_first() -> None:
    """Its old wave is still to come, and begins without it."""
    first, again, before_it = (Pod("ns", name, name, PodClass()) for name in ("first", "again", "before_it"))
    turns = Turns(lambda _pod: True)
    turns.add([(first, (1, 1)), (again, (1, 2))])
    assert turns.begin(0.0) == [first]
    turns.add([(before_it, (1, 1)), (again, (1, 2))])
    turns.through(first.key)
    assert turns.begin(1.0) == [before_it]
    turns.through(before_it.key)
    assert turns.begin(2.0) == [again]
