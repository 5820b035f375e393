"""Which Services select a pod, and what they select by together."""

from hypothesis import given
from hypothesis import strategies as st

from flowcore.model.selectors import Labels
from flowcore.model.services import Service, ServiceIndex

labels = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), max_size=3).map(
    lambda found: tuple(sorted(found.items()))
)
changes = st.tuples(st.sampled_from(["n", "m"]), st.sampled_from("stu"), st.none() | labels)


@given(st.lists(changes, max_size=20), labels)
def test_all_services_that_select_a_pod_count(history: list[tuple[str, str, Labels | None]], pod: Labels) -> None:
    """After any history: their labels together, of the pod's namespace alone; an empty selector selects nothing."""
    index, known = ServiceIndex(), dict[str, Service]()
    for namespace, name, selector in history:
        service = None if selector is None else Service(namespace, name, selector)
        index.put(f"{namespace}/{name}", service)
        known.pop(f"{namespace}/{name}", None)
        if service is not None:
            known[service.key] = service
    for namespace in ("n", "m"):
        selecting = [each for each in known.values() if each.namespace == namespace and set(each.selector) <= set(pod)]
        pairs = sorted({pair for each in selecting for pair in each.selector})
        found = index.selector_of(namespace, pod)
        assert (found and [(each.key, *each.values) for each in found.requirements]) == (pairs or None)


def test_services_that_select_alike_are_filed_once() -> None:
    """As long as one of them is there: ten thousand for all pods of a namespace are one test of a pod."""
    index = ServiceIndex()
    for number in range(10_000):
        index.put(f"n/all-{number}", Service("n", f"all-{number}", (("team", "t"),)))
        index.put(f"n/{number}", Service("n", str(number), (("app", f"a{number}"), ("team", "t"))))
    candidates = list(index._by_namespace["n"].candidates((("app", "a7"), ("team", "t"))))
    assert sorted(candidates) == [(("app", "a7"), ("team", "t")), (("team", "t"),)]
    for number in range(9_999):
        index.put(f"n/all-{number}", None)
    found = index.selector_of("n", (("team", "t"),))
    assert found is not None
    assert found.text == "team=t"
    index.put("n/all-9999", None)
    assert index.selector_of("n", (("team", "t"),)) is None
