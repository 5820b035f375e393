"""Things that share a key, directly or through others."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence


def connected_components(keys: Sequence[Iterable[Hashable]]) -> list[list[int]]:
    """Numbers of the items of each component, ascending; components by their first item.

    Args:
        keys: of each item.
    """
    parent = list(range(len(keys)))
    first_with: dict[Hashable, int] = {}

    def find(item: int) -> int:
        while parent[item] != item:
            parent[item] = item = parent[parent[item]]
        return item

    for item, item_keys in enumerate(keys):
        for key in item_keys:
            root, known_root = find(item), find(first_with.setdefault(key, item))
            parent[max(root, known_root)] = min(root, known_root)
    components: dict[int, list[int]] = {}
    for item in range(len(keys)):
        components.setdefault(find(item), []).append(item)
    return list(components.values())
