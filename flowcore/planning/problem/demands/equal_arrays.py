"""Equal arrays of a round, kept once: what was computed for one is known for all."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Value = TypeVar("_Value", bound=np.generic)


class EqualArrays:
    """The first of all arrays that are equal. Many ReplicaSets differ by nothing but what counts their pods."""

    def __init__(self) -> None:
        """None so far."""
        self._first: dict[tuple[str, int], NDArray[np.generic]] = {}

    def first(self, array: NDArray[_Value]) -> NDArray[_Value]:
        """The first array that was equal to this one, which may be itself. Not to be written to."""
        # By a hash: the bytes of all arrays are too many to keep.
        known = self._first.setdefault((array.dtype.str, hash(array.tobytes())), array)
        return known if np.array_equal(known, array) else array  # type: ignore[return-value]
