"""Reports of the last rounds per policy, for the status of the policies."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from flowcore.model.pods import Pod
from flowcore.model.policies import Policy
from flowcore.model.queues import QueueShare
from flowcore.model.running_pods import EvictionKind
from thalweg_operator.planning.round_request import PlanningInput
from thalweg_operator.planning.worker.messages import RoundReply, RoundRequest


@dataclass(frozen=True, slots=True)
class RoundReport:
    """Result of the last round for one policy.

    Attributes:
        number: number of the round.
        finished: seconds since the epoch.
        placed, waiting: number of pods.
        cost: what the plan costs for the policy's pods, for those that it left too.
        gap: optimality gap of the round, 0 to 1.
        certified: whether the plan of the round is proven optimal.
    """

    number: int
    finished: float
    placed: int
    waiting: int
    cost: int
    gap: float
    certified: bool


@dataclass(frozen=True, slots=True)
class ProposedEviction:
    """A running pod that would leave its node if its policy acted (problem/result.py Eviction)."""

    pod: str
    node: str
    kind: EvictionKind
    to: str = ""
    for_pods: tuple[str, ...] = ()
    gain: int = 0


class RoundReports:
    """The latest reports.

    Attributes:
        reports: by uid of the policy object: report of the last round that had pods of the policy to place.
        contradictions: by uid of the policy object: the policy as stated, and sentences that say which of its own pods
            it excludes.
        queue_shares: of accepted queues by name, once the plan of the last round is carried out.
        proposals: by uid of the policy object: the moves that the last round would make if the policy acted.
    """

    def __init__(self) -> None:
        self.queue_shares: dict[str, QueueShare] = {}
        self.reports: dict[str, RoundReport] = {}
        self.contradictions: dict[str, tuple[Policy, list[str]]] = {}
        self.proposals: dict[str, list[ProposedEviction]] = {}

    def round_ended(
        self,
        request: RoundRequest,
        reply: RoundReply | None,
        planning_input: PlanningInput,
        unplanned: Iterable[Policy],
        known_uids: set[str],
        deferred: Sequence[tuple[Pod, Policy]] = (),
    ) -> None:
        """Records a round.

        Args:
            request: request of the round.
            reply: reply of the worker; None: there was nothing to plan.
            planning_input: what the request was built from, with the policies as their objects state them.
            unplanned: the policy of each waiting pod that was not part of the request.
            known_uids: uids of the present policy objects.
            deferred: pods whose turn to be planned comes later, each with its policy.
        """
        policies, uids = planning_input.policies, planning_input.uids
        planned = {entry.policy for entry in request.pending}
        placed, unplaced = [0] * len(policies), [0] * len(policies)
        for index in (placement.pod for placement in reply.placements) if reply is not None else ():
            placed[request.pending[index].policy] += 1
        for index, _ in reply.unplaced if reply is not None else ():
            unplaced[request.pending[index].policy] += 1
        places = {policy.name: place for place, policy in enumerate(policies)}
        accepted = {queue.name for queue in request.queues}
        self.queue_shares = {name: share for name, share in self.queue_shares.items() if name in accepted}
        for policy in unplanned:
            unplaced[places[policy.name]] += 1
        if reply is not None:
            self.queue_shares = {share.name: share for share in reply.queue_shares}
            self.reports = {uid: report for uid, report in self.reports.items() if uid in known_uids}
            # What was found for pods whose turn comes later still holds.
            kept = {uids.get(policy.name, "") for _, policy in deferred} & known_uids
            stated = {uids.get(policy.name, ""): policy for policy in policies}
            self.contradictions = {
                uid: report
                for uid, report in self.contradictions.items()
                if uid in kept and stated.get(uid) == report[0]
            }
            self._keep_proposals(
                {pod.key for pod, _ in deferred}, {each.key for _, each in reply.proposals}, known_uids
            )
            for place, eviction in reply.proposals:
                keys = tuple(request.pending[index].key for index in eviction.for_pods)
                uid = uids.get(policies[place].name, "")
                self.proposals.setdefault(uid, []).append(
                    ProposedEviction(eviction.key, eviction.node, eviction.kind, eviction.to, keys, eviction.gain)
                )
            sentences: dict[int, list[str]] = {}
            for place, sentence in reply.contradictions:
                sentences.setdefault(place, []).append(sentence)
            for place, policy in enumerate(policies):
                uid = uids.get(policy.name, "")
                if uid not in known_uids:
                    continue  # the built-in default, or an object that was deleted during the round
                if place in sentences:
                    self.contradictions[uid] = (policy, sentences[place])
                if place in planned:
                    self.reports[uid] = RoundReport(
                        request.number,
                        request.now,
                        placed[place],
                        unplaced[place],
                        reply.costs[place],
                        reply.gap,
                        reply.certified,
                    )

    def _keep_proposals(self, deferred: set[str], proposed: Collection[str], known_uids: Collection[str]) -> None:
        """Keeps the moves for pods that are not planned again, but for those that are proposed anew.

        Args:
            deferred: keys of pods whose turn comes later.
            proposed: keys of the pods that the new round would move.
        """
        kept = {
            uid: [
                eviction
                for eviction in evictions
                if eviction.pod not in proposed and not deferred.isdisjoint(eviction.for_pods)
            ]
            for uid, evictions in self.proposals.items()
            if uid in known_uids
        }
        self.proposals = {uid: evictions for uid, evictions in kept.items() if evictions}
