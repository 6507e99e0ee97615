"""The epochs of producers that a store keeps in memory."""

from __future__ import annotations

from headrace.storage.commits.fences import LocalFences


def test_only_sources_that_have_an_epoch_are_listed() -> None:
    fences = LocalFences()
    fences.put(("a", ""), 5)
    fences.put(("a", ""), 7)
    assert fences.epochs([("a", ""), ("a", "g"), ("b", "")]) == {("a", ""): 7}


def test_the_source_that_was_opened_longest_ago_is_forgotten() -> None:
    fences = LocalFences(producers_max=2)
    sources = [(name, "") for name in "abc"]
    for source in (*sources[:2], sources[0], sources[2]):
        fences.put(source, 1)
    assert fences.epochs(sources) == {("a", ""): 1, ("c", ""): 1}
