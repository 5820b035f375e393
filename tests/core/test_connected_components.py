"""Items that share a key, directly or through others, are one component."""

from hypothesis import given
from hypothesis import strategies as st

from flowcore.rules.topology.connected_components import connected_components


@given(st.lists(st.frozensets(st.integers(0, 6), max_size=3), max_size=8))
def test_a_component_is_what_shared_keys_reach(keys: list[frozenset[int]]) -> None:
    """Two items are in one component if a chain of shared keys leads from one to the other; first items ascend."""
    found = connected_components(keys)
    assert sorted(item for component in found for item in component) == list(range(len(keys)))
    assert [component[0] for component in found] == sorted(min(component) for component in found)
    for component in found:
        reached = {component[0]}
        for _ in keys:
            seen = set().union(*(keys[item] for item in reached))
            reached |= {item for item, mine in enumerate(keys) if mine & seen}
        assert sorted(reached) == component
