"""Who uses the claims of planned pods: all pods of a PodGroup that shares a claim are one consumer of it."""

from __future__ import annotations

from collections import Counter

from flowcore.cluster.arrays.device_objects import ClaimKey


class ClaimUsers:
    """Consumers of claims, by uid, each with the number of its planned pods."""

    def __init__(self) -> None:
        self._pods = Counter[tuple[ClaimKey, str]]()
        self._consumers = Counter[ClaimKey]()

    def copy(self) -> ClaimUsers:
        """An independent copy."""
        copied = ClaimUsers()
        copied._pods, copied._consumers = self._pods.copy(), self._consumers.copy()
        return copied

    def __bool__(self) -> bool:
        return bool(self._consumers)

    def __contains__(self, claim: ClaimKey) -> bool:
        return claim in self._consumers

    def has(self, claim: ClaimKey, consumer: str) -> bool:
        """Whether a planned pod uses a claim as this consumer."""
        return (claim, consumer) in self._pods

    def consumers(self, claim: ClaimKey) -> int:
        """How many consumers a claim has by planned pods."""
        return self._consumers[claim]

    def add(self, claim: ClaimKey, consumer: str) -> None:
        """One more planned pod of a consumer uses a claim."""
        if not self.has(claim, consumer):
            self._consumers[claim] += 1
        self._pods[claim, consumer] += 1

    def remove(self, claim: ClaimKey, consumer: str) -> None:
        """One planned pod of a consumer uses a claim no more."""
        self._pods[claim, consumer] -= 1
        if not self._pods[claim, consumer]:
            del self._pods[claim, consumer]
            self._consumers[claim] -= 1
            if not self._consumers[claim]:
                del self._consumers[claim]
