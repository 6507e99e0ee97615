"""The power is cut at every call of a store that does not sync, and catalog and log are of different times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.storage.disk.options import DiskOptions
from tests.faults.crashes import Scenario, Session
from tests.faults.power_cuts import age_catalog_everywhere, cut_everywhere
from tests.faults.scenarios import (
    UNSYNCED,
    all_outlived,
    close,
    create,
    fill,
    grow,
    kept_for_readers,
    live,
    numbered,
    one_partition,
    plain,
    publish_and_roll,
    publish_over_partitions,
    retain,
    three_partitions,
)

ONE_SEGMENT = DiskOptions(durability="os")


def commit_to_the_end(session: Session) -> None:
    ends = {partition: end for partition, (_, end) in session.broker.offsets("t").items()}
    session.ledger.commit(session.broker, "t", "readers", ends)


def publish_and_commit(session: Session) -> None:
    """The group reads what is not on the device, and what it committed is."""
    for tag in ("one", "two"):
        session.ledger.publish(session.broker, "t", plain(tag, 4, tag.encode()))
        commit_to_the_end(session)


def roll_and_commit(session: Session) -> None:
    publish_and_roll(session)
    commit_to_the_end(session)
    for seqno in range(300, 303):
        session.ledger.publish(session.broker, "t", numbered("a", [seqno]))
    commit_to_the_end(session)


def retain_and_publish(session: Session) -> None:
    retain(session)
    session.ledger.publish(session.broker, "t", numbered("a", [900]))


SCENARIOS = [
    Scenario("publish and commit", three_partitions, live, publish_and_commit, options=ONE_SEGMENT, seeds=6),
    Scenario("publish after a clean close", one_partition, act=live, options=ONE_SEGMENT, seeds=4),
    Scenario("roll and commit", three_partitions, fill, roll_and_commit, options=UNSYNCED, seeds=3),
    Scenario("retention", kept_for_readers, all_outlived, retain_and_publish, options=UNSYNCED),
    Scenario("seal and close", three_partitions, publish_and_commit, close, options=UNSYNCED),
    Scenario("create a topic", three_partitions, publish_and_commit, create, options=UNSYNCED),
    Scenario("add partitions", three_partitions, publish_and_commit, grow, options=UNSYNCED),
]


def named(scenario: Scenario) -> str:
    return scenario.name.replace(" ", "-")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=named)
def test_power_cut_at_every_call_without_syncs(scenario: Scenario, place: Path) -> None:
    assert cut_everywhere(scenario, place) > 0


@pytest.mark.parametrize("durability", ["sync", "os"])
@pytest.mark.parametrize("scenario", [each for each in SCENARIOS if each.name != "retention"], ids=named)
def test_catalog_of_an_earlier_time(scenario: Scenario, place: Path, durability: str) -> None:
    options = DiskOptions(
        durability="sync" if durability == "sync" else "os",
        segment_bytes=scenario.options.segment_bytes,
        segment_frames=scenario.options.segment_frames,
    )
    assert age_catalog_everywhere(replace(scenario, options=options), place) > 0


def test_publish_over_partitions_with_the_group_ahead(place: Path) -> None:
    def act(session: Session) -> None:
        publish_over_partitions(session)
        commit_to_the_end(session)

    scenario = Scenario("publish over partitions", three_partitions, live, act, options=ONE_SEGMENT, seeds=12)
    assert cut_everywhere(scenario, place) > 0
