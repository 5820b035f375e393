"""Labels are looked up as in a dict."""

from hypothesis import given
from hypothesis import strategies as st

from flowcore.model.selectors import value_of

_TEXTS = st.text("ab./", max_size=3)


@given(st.dictionaries(_TEXTS, _TEXTS, max_size=6), _TEXTS)
def test_the_value_of_one_label(labels: dict[str, str], key: str) -> None:
    """Whatever its neighbours in the order are; an empty value is one."""
    assert value_of(tuple(sorted(labels.items())), key) == labels.get(key)
