"""Companies are forgotten when none of their pods waits any more."""

from thalweg_operator.companies import Companies, Place

from flowcore.model.pods import Pod, PodClass

PLACE = Place(1, "gang ml/train", 0)


def test_a_company_of_spare_pods_that_are_all_lost() -> None:
    """Nobody needs them, so nobody is given up with them; nothing of the company stays behind."""
    companies = Companies()
    for name in "ab":
        companies.join(PLACE, f"ml/{name}", spare=True)
    assert companies.lost(PLACE, "ml/a") == []
    assert companies.lost(PLACE, "ml/b") == []
    assert companies._companies == {}
    # One that comes later at the same place waits for nobody.
    pod = Pod("ml", "c", "c", PodClass())
    companies.join(PLACE, pod.key, spare=True)
    assert companies.nominated(PLACE, pod) == [pod]
    assert companies._companies == {}
