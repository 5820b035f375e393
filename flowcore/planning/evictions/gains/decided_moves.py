"""The moves for gain that a plan has so far; those that others have made wrong are taken back.

A move that is worth its price as it is decided need not be so in the end: a later one fills its node, or frees what the
pod was in the way of. The next round would move the pod back. So in the end each move gains its price and its margin
beside all others, or the pod stays. That costs less, and nobody's room was taken meanwhile: pods go to room that is
free before anybody leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from flowcore.model.nodes import Node
from flowcore.model.running_pods import EvictionKind
from flowcore.planning.evictions.gains.first_look import PossibleMove
from flowcore.planning.evictions.gains.stranded_gpus import StrandedGPUs
from flowcore.planning.evictions.gains.terminating_pods import TerminatingPods
from flowcore.planning.evictions.state import EvictionState, Leaving

#: How often moves are judged again while others are decided, and as often at the end of the round. Each look costs as
#: much as to price a class.
_MOST_LOOKS = 256


class DecidedMoves:
    """Single moves, and moves of pods that leave a node together; it changes the state."""

    def __init__(self, state: EvictionState, terminating: TerminatingPods, stranded: StrandedGPUs) -> None:
        self._state, self._terminating, self._stranded = state, terminating, stranded
        #: What was decided at once, in the order in which pods leave, with what each gained then.
        self._decisions: list[list[tuple[PossibleMove, int]]] = []
        #: By how much the gain of a pod is above its price and margin, by number; and the changes before that.
        self._surplus: dict[int, int] = {}
        self._judged_after: dict[int, int] = {}
        self._looks = _MOST_LOOKS
        #: By number of a pod that leaves with others: the changes before all of these were judged as a whole.
        self._judged_together_after: dict[int, int] = {}
        #: Whether moves were taken back that others were judged beside.
        self._gains_are_stale = False

    def leave(self, move: PossibleMove, node: int) -> None:
        """A pod leaves for a node."""
        self._state.let_leave(move.resident, EvictionKind.MIGRATION, ())
        self._state.reserve_replacement(move.resident, node, is_move=True)

    def add(self, moves: Sequence[tuple[PossibleMove, int]]) -> None:
        """Pods have left at once; with what each gained beside those before it."""
        self._decisions.append(list(moves))
        if len(moves) == 1:
            ((move, gain),) = moves
            self._surplus[move.resident] = gain - _least(move)
            self._judged_after[move.resident] = self._state.changes
        self._judged_together_after |= {move.resident: self._state.changes for move, _ in moves}

    def going_to(self, node: int) -> list[PossibleMove]:
        """The moves to a node."""
        return [move for move in self._moves() if self._state.leaving[move.resident].to == node]

    # --- moves that others have made wrong ---

    def settle(self, holds: Callable[[], bool]) -> None:
        """Takes back what gains too little beside all others: each move, and moves together as a whole.

        Args:
            holds: whether every filter still passes for the whole plan; asked after each that is taken back.
        """
        # Prices may depend on nodes that a pod neither leaves nor goes to: each is judged once more.
        self._judged_after.clear()
        self._looks = _MOST_LOOKS
        self.take_back_vain_moves(self._moves(), holds)
        while any(self._stay_together([move for move, _ in decision], holds) for decision in self._decisions):
            self.take_back_vain_moves(self._moves(), holds)

    def take_back_vain_moves(self, moves: Iterable[PossibleMove], holds: Callable[[], bool]) -> None:
        """Takes back those of some moves that gain too little beside all others, the worst first; ``holds``: as above.

        Each that is taken back lets the plan cost less, so this ends. Where looks do not suffice the rest is left as it
        was decided.
        """
        judged = {move.resident: move for move in moves}
        while self._judge(judged.values()):
            in_vain = [
                (self._surplus[move.resident], move.key, move.resident)
                for move in judged.values()
                if self._surplus[move.resident] < 0
            ]
            if not in_vain:
                return
            # Either it stays, or the rules of others need it to leave: it is not judged again.
            *_, worst = min(in_vain)
            self._stay(judged.pop(worst), holds)

    def _judge(self, moves: Iterable[PossibleMove]) -> bool:
        """Judges moves again whose nodes have changed since. Returns whether there were looks for all of them."""
        for move in moves:
            if not self._has_changed(move, self._judged_after):
                continue
            if not self._looks:
                return False
            self._looks -= 1
            self._surplus[move.resident] = self._surplus_of(move)
            self._judged_after[move.resident] = self._state.changes
        return True

    def _has_changed(self, move: PossibleMove, judged_after: Mapping[int, int]) -> bool:
        """Whether a node of a move has changed since the move was judged."""
        state, resident = self._state, move.resident
        changed = max(state.version(int(state.residents.nodes[resident])), state.version(state.leaving[resident].to))
        return changed > judged_after.get(resident, -1)

    def _surplus_of(self, move: PossibleMove) -> int:
        """By how much the gain of a move is above its price and margin, beside all others."""
        return self._gain(move, self._state.leaving[move.resident].to) - _least(move)

    def _gain(self, move: PossibleMove, node: int) -> int:
        """What a pod gains on a node, beside all others."""
        without = self._terminating.gone_from(self._state.snapshot([move.resident]))
        costs = move.kind.one_more(without, self._stranded)
        return int(costs[self._state.residents.nodes[move.resident]] - costs[node])

    def _stay(self, move: PossibleMove, holds: Callable[[], bool]) -> None:
        """A pod stays, unless that would break a rule elsewhere in the plan."""
        leaving = self._state.leaving[move.resident]
        self._state.stay(move.resident)
        if holds():
            self.drop([move])
        else:
            self.resume([move], [leaving])

    def _stay_together(self, moves: Sequence[PossibleMove], holds: Callable[[], bool]) -> bool:
        """Pods that were to leave together stay, if others have made that wrong. Returns whether they do."""
        changed = any(self._has_changed(move, self._judged_together_after) for move in moves)
        if len(moves) < 2 or not changed or not self.may_suspend(moves):
            return False
        leavings, surplus = self.suspend(moves)
        if surplus < 0 and holds():
            self.drop(moves)
            return True
        self.resume(moves, leavings)
        self._judged_together_after |= {move.resident: self._state.changes for move in moves}
        return False

    # --- another plan for a while ---

    def may_suspend(self, moves: Sequence[PossibleMove]) -> bool:
        """Whether there are some moves, and looks to judge each of them."""
        return 0 < len(moves) <= self._looks

    def suspend(self, moves: Sequence[PossibleMove]) -> tuple[list[Leaving], int]:
        """Pods stay for a while. Returns how they left, and what all gained above their prices and margins."""
        leavings, surplus = list[Leaving](), 0
        self._looks -= len(moves)
        for move in reversed(moves):
            surplus += self._surplus_of(move)
            leavings.append(self._state.leaving[move.resident])
            self._state.stay(move.resident)
        return leavings[::-1], surplus

    def resume(self, moves: Sequence[PossibleMove], leavings: Sequence[Leaving]) -> None:
        """They leave again."""
        for move, leaving in zip(moves, leavings, strict=True):
            self._state.leave_again(move.resident, leaving)

    def drop(self, moves: Iterable[PossibleMove]) -> None:
        """They stay."""
        staying = {move.resident for move in moves}
        for decision in self._decisions:
            decision[:] = [(move, gain) for move, gain in decision if move.resident not in staying]
        self._gains_are_stale = True

    # --- what is said of them ---

    def say(self) -> None:
        """Says of each move why it is made and what it gains beside those before it, at least its price and margin.

        So all gains add up to what everything costs less afterwards, unless one gains enough only beside later ones.
        """
        if self._gains_are_stale:
            self._decide_again()
        self._state.put_in_order([move.resident for move in self._moves()])
        nodes = self._state.snapshot().table.nodes if self._decisions else ()
        for decision in self._decisions:
            if len(decision) == 1:
                self._say_single(*decision[0], nodes)
            elif decision:
                self._share(decision, nodes)

    def _decide_again(self) -> None:
        """The same moves in their order: each gains beside those before it."""
        nodes = {move.resident: self._state.leaving[move.resident].to for move in self._moves()}
        for resident in nodes:
            self._state.stay(resident)
        for decision in self._decisions:
            for row, (move, _) in enumerate(decision):
                node = nodes[move.resident]
                decision[row] = move, self._gain(move, node)
                self.leave(move, node)

    def _say_single(self, move: PossibleMove, gain: int, nodes: Sequence[Node]) -> None:
        leaving, home = self._state.leaving[move.resident], self._state.residents.nodes[move.resident]
        leaving.gain = max(gain, _least(move))
        leaving.reason = (
            f"it costs {leaving.gain:,} less on {nodes[leaving.to].name} than on {nodes[home].name}, "
            f"and its move costs {move.price:,}"
        )

    def _share(self, decision: Sequence[tuple[PossibleMove, int]], nodes: Sequence[Node]) -> None:
        """Says of moves together what they gain: each its price, its margin and an equal part of the rest."""
        least, price = sum(_least(move) for move, _ in decision), sum(move.price for move, _ in decision)
        total = max(sum(gain for _, gain in decision), least)
        part, odd = divmod(total - least, len(decision))
        others = f"{len(decision) - 1} other pods" if len(decision) > 2 else "another pod"
        for number, (move, _) in enumerate(decision):
            node = nodes[self._state.residents.nodes[move.resident]].name
            leaving = self._state.leaving[move.resident]
            leaving.gain = _least(move) + part + (number < odd)
            leaving.reason = f"it and {others} of {node} cost {total:,} less elsewhere, and their moves cost {price:,}"

    def _moves(self) -> list[PossibleMove]:
        """All of them, in the order in which they were decided."""
        return [move for decision in self._decisions for move, _ in decision]


def _least(move: PossibleMove) -> int:
    """What a move gains at least: its price and the margin of its policy."""
    return move.price + move.kind.policy.rescheduling.min_gain
