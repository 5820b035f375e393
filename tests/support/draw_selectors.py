"""Drawn labels, and requirements of selectors that often match them."""

from hypothesis import strategies as st

from flowcore.model.selectors import Requirement

LABELS = st.dictionaries(st.sampled_from(("app", "tier")), st.sampled_from(("web", "db")), max_size=2).map(
    lambda drawn: tuple(sorted(drawn.items()))
)
REQUIREMENTS = st.builds(
    Requirement,
    st.sampled_from(("app", "tier")),
    st.sampled_from(("In", "NotIn")),
    st.sampled_from((("web",), ("db",), ("web", "db"))),
) | st.builds(Requirement, st.sampled_from(("app", "tier")), st.sampled_from(("Exists", "DoesNotExist")))
