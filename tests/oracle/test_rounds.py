"""Plans against kube-scheduler's own filters: each placement as the plan is carried out, one pod after the other."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from random import Random

import msgspec
import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from support.draw import ASPECTS, Case, Manifest, crowded_cases
from support.large_snapshots import with_gangs
from support.profiles import batch_seed, examples
from support.safety import check_constraints, check_gangs
from support.verdicts import snapshot_of, verdicts_from_cache
from thalweg_controlplane import Oracle

from flowcore.model.constraints import Conflict, Constraint, Exclusive, Global
from flowcore.model.policies import BUILT_IN
from flowcore.model.selectors import LabelSelector, Requirement
from flowcore.planning.round import Placement, run_one_by_one, run_round

AMONG_PODS = ("PodTopologySpread", "InterPodAffinity")
PHASES = (Phase.explicit, Phase.generate, Phase.shrink)


def orders(placements: Sequence[Placement]) -> Iterator[list[Placement]]:
    """Commit order, and where rules have a say some others in which each chain keeps to its waves."""
    yield list(placements)
    if any(placement.pod.signature.constraints for placement in placements):
        for number in range(4):
            order = list(placements)
            Random(number).shuffle(order)
            chains = {
                each.chain: iter(sorted((p for p in order if p.chain == each.chain), key=_wave)) for each in order
            }
            yield [next(chains[each.chain]) for each in order]


def _wave(placement: Placement) -> int:
    return placement.wave


def carry_out(
    oracle: Oracle, case: Case, order: Sequence[Placement], manifests: Mapping[str, Manifest]
) -> list[Manifest]:
    """All that runs in the end; every pod must be allowed on its node beside those that were placed before it."""
    running = verdicts_from_cache(case)
    for placement in order:
        pod = manifests[placement.pod.key]
        verdict = oracle.judge(case.nodes, running, [pod], (), case.namespaces)[""][placement.pod.key]
        assert verdict[placement.node].fits, (placement.pod.key, placement.wave, verdict[placement.node])
        running = [*running, {**pod, "spec": {**pod["spec"], "nodeName": placement.node}}]
    return running


def replay(oracle: Oracle, case: Case, constraints: tuple[Constraint, ...] = ()) -> Counter[str]:
    """Carries a plan out on the oracle; counts placements and pods that are left.

    Every pod must be allowed on its node beside those that were placed before it, and what is left nowhere beside all:
    in commit order, and in waves with any order within a wave. Where a policy has constraints, kube-scheduler may place
    more.
    """
    policies = {BUILT_IN.name: msgspec.structs.replace(BUILT_IN, constraints=constraints)}
    snapshot = snapshot_of(case, place_blocked=False)
    manifests = {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod for pod in case.pending}
    for run in (run_round, run_one_by_one):
        result = run(snapshot, policies)
        check_constraints(snapshot, result, policies)
        for order in orders(result.placements) if run is run_round else (result.placements,):
            running = carry_out(oracle, case, order, manifests)
        if constraints:
            continue
        left = [manifests[each.pod.key] for each in result.unplaced]
        verdicts = oracle.judge(case.nodes, running, left, (), case.namespaces).get("", {})
        for each in result.unplaced:
            fitting = [name for name, verdict in verdicts[each.pod.key].items() if verdict.fits]
            assert not fitting, f"{each.pod.key} still fits on {fitting}"
    return Counter(placed=len(result.placements), left=len(result.unplaced))


_selectors = st.sampled_from(
    [LabelSelector((Requirement("app", "In", (app,)),)) for app in ("web", "db")] + [LabelSelector()]
)
_keys, _caps = st.sampled_from(("zone", "disk")), st.sampled_from((1, 2, 3))
_constraints = st.lists(
    st.builds(Conflict, st.just("c"), _selectors, _keys, _caps)
    | st.builds(Exclusive, st.just("x"), st.tuples(_selectors, _selectors), _keys, st.none() | _caps, st.none() | _caps)
    | st.builds(Global, st.just("g"), _selectors, st.just(LabelSelector((Requirement("zone", "Exists"),)))),
    min_size=1,
    max_size=2,
).map(tuple)


def test_constraints_loosen_nothing(oracle: Oracle, compared: dict[str, Counter[str]]) -> None:
    """Whatever a policy adds: nothing is placed that kube-scheduler would refuse, in any order that waves allow."""
    counts: Counter[str] = Counter()

    @seed(batch_seed(0))
    @settings(max_examples=examples(70), phases=PHASES, report_multiple_bugs=False, deadline=None)
    @given(case=crowded_cases(AMONG_PODS), constraints=_constraints)
    def agree(case: Case, constraints: tuple[Constraint, ...]) -> None:
        counts.update(replay(oracle, case, constraints))

    agree()
    compared["plans with constraints"] = Counter(fits=counts["placed"], rejected=counts["left"])
    assert counts["placed"] >= 100


def test_whole_gangs_break_no_rule(oracle: Oracle, compared: dict[str, Counter[str]]) -> None:
    """Gangs over pods with any rules: whole ones only, and each placement passes in any order that waves allow."""
    counts: Counter[str] = Counter()

    @seed(batch_seed(0))
    @settings(max_examples=examples(150), phases=PHASES, report_multiple_bugs=False, deadline=None)
    @given(case=crowded_cases(AMONG_PODS), data=st.data())
    def agree(case: Case, data: st.DataObject) -> None:
        snapshot = data.draw(with_gangs(st.just(snapshot_of(case, place_blocked=False))))
        result = run_round(snapshot)
        check_gangs(snapshot, result)
        manifests = {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod for pod in case.pending}
        for order in orders(result.placements):
            carry_out(oracle, case, order, manifests)
        counts.update(placed=sum(bool(each.atomic_group) for each in result.placements), left=len(result.unplaced))

    agree()
    compared["plans with gangs"] = Counter(fits=counts["placed"], rejected=counts["left"])
    assert counts["placed"] >= 50


@pytest.mark.parametrize("aspects", [AMONG_PODS, ASPECTS], ids=["rules between pods", "everything"])
def test_plans_are_kube_schedulers_to_carry_out(
    oracle: Oracle, compared: dict[str, Counter[str]], aspects: Collection[str]
) -> None:
    """Whatever the rules: nothing is placed that kube-scheduler would refuse, nothing left that it would place."""
    counts: Counter[str] = Counter()
    for batch in range(100):

        @seed(batch_seed(batch))
        @settings(max_examples=examples(50), phases=PHASES, report_multiple_bugs=False, deadline=None)
        @given(case=crowded_cases(aspects))
        def agree(case: Case) -> None:
            counts.update(replay(oracle, case))

        agree()
        if counts["placed"] >= 500:
            break
    compared[f"plans, {len(aspects)} filters"] = Counter(fits=counts["placed"], rejected=counts["left"])
    assert counts["placed"] >= 500
    assert counts["left"] >= 125
