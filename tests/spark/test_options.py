"""Options: what each may be, and errors that help."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.core.errors import InvalidInput
from headrace.core.positions import EARLIEST, LATEST, AtTime, FromEnd, PerPartition
from headrace.spark.options import ReadOptions, check_batch, check_stream, default_start, read_options, write_options
from headrace.spark.schema import READ_COLUMNS


def reading(**options: str) -> ReadOptions:
    return read_options({"topic": "orders", **options})


def test_without_options_everything_has_a_default() -> None:
    options = reading()
    assert options.connection.url == "headrace://127.0.0.1:7071"
    assert options.columns == READ_COLUMNS
    assert (options.decode, options.fail_on_data_loss, options.group) == (True, True, None)
    assert default_start(options, is_stream=False) == EARLIEST
    assert default_start(options, is_stream=True) == LATEST
    assert options.end == LATEST


def test_names_are_not_case_sensitive() -> None:
    options = read_options({"TOPIC": "orders", "startingoffsets": "-5", "MAXMESSAGESPERTRIGGER": "7"})
    assert (options.subscription.topics, options.start, options.trigger_messages_max) == (("orders",), FromEnd(5), 7)


def test_values_become_what_they_mean() -> None:
    options = reading(
        columns="Value, offset",
        decode="FALSE",
        startingTimestamp="1970-01-01T00:00:01",
        endingOffsets='{"0": 5}',
        minPartitions="3",
        maxMessagesPerSplit="10",
        maxBytesPerTrigger="1000",
        group="billing",
        important="true",
        failOnDataLoss="false",
        timeoutSeconds="5",
    )
    assert options.columns == ("value", "offset")
    assert options.start == AtTime(1_000_000)
    assert options.end == PerPartition(((0, 5),))
    assert (options.partitions_min, options.split_messages_max, options.trigger_bytes_max) == (3, 10, 1000)
    assert (options.decode, options.group, options.important, options.fail_on_data_loss) == (
        False,
        "billing",
        True,
        False,
    )
    assert options.connection.timeout_seconds == 5.0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxMesagesPerTrigger": "5"}, "similar options are maxMessagesPerTrigger"),
        ({"kafka.bootstrap.servers": "x"}, "it is unknown; no option is similar: docs/spark.md lists all of them"),
        ({"path": "orders"}, "it is unknown"),
        ({"maxMessagesPerTrigger": "0"}, "whole number from 1"),
        ({"maxMessagesPerTrigger": "many"}, "whole number from 1"),
        ({"minPartitions": "-1"}, "whole number from 1"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"columns": "value,colour"}, "known columns are key, value"),
        ({"columns": "value,value"}, "more than once"),
        ({"columns": " "}, "it is empty"),
        ({"startingOffsets": "earliest", "startingTimestamp": "0"}, "combined with startingTimestamp"),
        ({"endingOffsets": "latest", "endingTimestamp": "0"}, "combined with endingTimestamp"),
        ({"url": "http://127.0.0.1"}, "headrace://HOST:PORT"),
        ({"metadata": "brokers"}, "topics, partitions, groups"),
        ({"rootCertificates": "/no/such/file.pem"}, "cannot be read"),
        ({"group": ""}, "it is empty"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        reading(**options)
    assert said in str(refused.value)


def test_a_topic_must_be_named_except_for_metadata() -> None:
    with pytest.raises(InvalidInput, match="set the topic to read"):
        read_options({})
    assert read_options({"metadata": "Topics"}).metadata == "topics"


@pytest.mark.parametrize(
    "options", [{"group": "g"}, {"important": "true"}, {"maxMessagesPerTrigger": "1"}, {"maxBytesPerTrigger": "1"}]
)
def test_a_batch_refuses_what_is_of_streams(options: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match="streams only"):
        check_batch(reading(**options))


@pytest.mark.parametrize("options", [{"metadata": "topics"}, {"endingOffsets": "-1"}, {"important": "true"}])
def test_a_stream_refuses_what_it_cannot_do(options: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        check_stream(reading(**options))


def test_a_token_comes_from_the_option_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_TOKEN", "of-the-environment")
    assert reading().connection.token == "of-the-environment"
    connection = reading(token="of-the-option").connection
    assert connection.token == "of-the-option"
    assert "of-the-option" not in repr(connection)


def test_certificates_are_read_at_the_driver(tmp_path: Path) -> None:
    file = tmp_path / "root.pem"
    pem = b"-----BEGIN CERTIFICATE-----"
    file.write_bytes(pem)
    assert reading(rootCertificates=str(file)).connection.root_certificates == pem
    file.write_bytes(b"something else")
    with pytest.raises(InvalidInput, match="PEM"):
        reading(rootCertificates=str(file))


def test_the_address_comes_from_the_option_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_URL", "headrace://broker:1")
    assert reading().connection.url == "headrace://broker:1"
    assert reading(url="headrace://other:2").connection.url == "headrace://other:2"
    monkeypatch.setenv("HEADRACE_URL", "http://broker:1")
    with pytest.raises(InvalidInput, match="HEADRACE_URL is 'http://broker:1'"):
        reading()


def test_a_sink_is_exactly_once_unless_told_otherwise() -> None:
    options = write_options({"topic": "orders", "checkpointLocation": "x"}, is_stream=True)
    assert (options.topic, options.delivery, options.sink_id, options.create_topic) == (
        "orders",
        "exactly-once",
        None,
        False,
    )
    assert write_options({"delivery": "At-Least-Once"}, is_stream=False).delivery == "at-least-once"
    batch = write_options({"sinkId": "nightly", "batchId": "7"}, is_stream=False)
    assert (batch.sink_id, batch.batch_id) == ("nightly", 7)


@pytest.mark.parametrize(
    ("options", "is_stream", "said"),
    [
        ({"sinkId": "a"}, False, "or neither"),
        ({"batchId": "1"}, False, "or neither"),
        ({"batchId": "1"}, True, "numbers the batches of a stream itself"),
        ({"sinkId": "a", "delivery": "at-least-once"}, True, "it has no effect"),
        ({"delivery": "at-most-once"}, True, "exactly-once, at-least-once"),
        ({"partitions": "3"}, False, "createTopic=true"),
        ({"topicSettings": '{"retention_seconds": 5}'}, False, "createTopic=true"),
        ({"topicSettings": "5", "createTopic": "true"}, False, "it must be JSON"),
        ({"topicSettings": '{"retention": 5}', "createTopic": "true"}, False, "known settings are"),
        ({"startingOffsets": "earliest"}, False, "it is unknown"),
    ],
)
def test_a_sink_names_what_is_wrong(options: dict[str, str], is_stream: bool, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        write_options(options, is_stream)
    assert said in str(refused.value)
