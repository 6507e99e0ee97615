"""Three clients of Kafka from PyPI behind one small interface, so that each has to pass the same tests."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

import aiokafka
import confluent_kafka as confluent
import kafka
from aiokafka.abc import AbstractTokenProvider
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.errors import KafkaError as AioError
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokenProvider

PATIENCE_SECONDS: Final = 120.0
PATIENCE_MS: Final = int(PATIENCE_SECONDS * 1000)
SESSION_MS: Final = 6000
HEARTBEAT_MS: Final = 100
# Of a member, as both clients in Python spell it.
PYTHON_MEMBER: Final[dict[str, Any]] = {
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "heartbeat_interval_ms": HEARTBEAT_MS,
    "session_timeout_ms": SESSION_MS,
}
RANGE, COOPERATIVE = "range", "cooperative-sticky"


@dataclass(frozen=True, slots=True)
class Login:
    """A token, how it is sent, and the authority that signed the server's certificate."""

    token: str
    mechanism: str
    ca: str

    @property
    def user(self) -> str:
        """The user name: SCRAM needs the id of the token, and for PLAIN it may be anything."""
        return "any" if self.mechanism == "PLAIN" else self.token.split("_")[1]


@dataclass(frozen=True, slots=True)
class Target:
    """Where a client connects to, and as whom."""

    bootstrap: str
    login: Login | None = None


class GroupMember(Protocol):
    """A consumer that has subscribed to a topic as a member of a group."""

    def poll(self) -> list[bytes]: ...

    def partitions(self) -> list[int]: ...

    def commit(self) -> None:
        """Commit what was polled; what another member owns by now comes again there."""

    def offset_at(self, topic: str, time_ms: int) -> int | None: ...

    def close(self) -> None: ...


class Confluent:
    """librdkafka, by confluent-kafka."""

    strategies = (RANGE, COOPERATIVE)

    @staticmethod
    def settings(to: Target) -> dict[str, Any]:
        given: dict[str, Any] = {"bootstrap.servers": to.bootstrap, "reconnect.backoff.max.ms": 200}
        if to.login is None:
            return given
        given |= {"security.protocol": "SASL_SSL", "ssl.ca.location": to.login.ca}
        if to.login.mechanism != "OAUTHBEARER":
            named = {"sasl.mechanism": to.login.mechanism, "sasl.username": to.login.user}
            return given | named | {"sasl.password": to.login.token}
        far, token = 4_000_000_000.0, to.login.token
        return given | {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda _: (token, far)}

    @classmethod
    def produce(cls, to: Target, topic: str, values: Sequence[bytes], meanwhile: Callable[[], None]) -> None:
        errors: list[Any] = []
        producer = confluent.Producer(cls.settings(to) | {"enable.idempotence": True, "batch.num.messages": 50})
        for place, value in enumerate(values):
            producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
            producer.poll(0)
            if place == len(values) // 2:
                while not errors:
                    producer.poll(0.1)
                meanwhile()
        assert producer.flush(PATIENCE_SECONDS) == 0
        assert errors == [None] * len(values)

    @classmethod
    def member(cls, to: Target, group: str, topic: str, strategy: str = RANGE) -> GroupMember:
        return _ConfluentMember(cls.settings(to), group, topic, strategy)


class _ConfluentMember:
    def __init__(self, settings: dict[str, Any], group: str, topic: str, strategy: str) -> None:
        self._consumer = confluent.Consumer(
            {
                **settings,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "session.timeout.ms": SESSION_MS,
                "partition.assignment.strategy": strategy,
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> list[bytes]:
        return [message.value() for message in self._consumer.consume(100, 0.05) if message.error() is None]

    def partitions(self) -> list[int]:
        return [each.partition for each in self._consumer.assignment()]

    def commit(self) -> None:
        with suppress(confluent.KafkaException):
            self._consumer.commit(asynchronous=False)

    def offset_at(self, topic: str, time_ms: int) -> int | None:
        place = confluent.TopicPartition(topic, 0, time_ms)
        (found,) = self._consumer.offsets_for_times([place], timeout=PATIENCE_SECONDS)
        return None if found.offset == confluent.OFFSET_END else int(found.offset)

    def close(self) -> None:
        self._consumer.close()


class _AioToken(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


class Aiokafka:
    """The client for asyncio; it has no cooperative assignor."""

    strategies = (RANGE,)

    @staticmethod
    def settings(to: Target) -> dict[str, Any]:
        given: dict[str, Any] = {"bootstrap_servers": to.bootstrap}
        if to.login is None:
            return given
        context = ssl.create_default_context(cafile=to.login.ca)
        given |= {"security_protocol": "SASL_SSL", "ssl_context": context, "sasl_mechanism": to.login.mechanism}
        if to.login.mechanism != "OAUTHBEARER":
            return given | {"sasl_plain_username": to.login.user, "sasl_plain_password": to.login.token}
        return given | {"sasl_oauth_token_provider": _AioToken(to.login.token)}

    @classmethod
    def produce(cls, to: Target, topic: str, values: Sequence[bytes], meanwhile: Callable[[], None]) -> None:
        async def send() -> None:
            producer = aiokafka.AIOKafkaProducer(
                **cls.settings(to), enable_idempotence=True, max_batch_size=500, request_timeout_ms=PATIENCE_MS
            )
            async with producer:
                half = len(values) // 2
                sent = [await producer.send(topic, value, partition=0) for value in values[:half]]
                await sent[0]
                await asyncio.to_thread(meanwhile)
                sent += [await producer.send(topic, value, partition=0) for value in values[half:]]
                await asyncio.gather(*sent)

        asyncio.run(send())

    @classmethod
    def member(cls, to: Target, group: str, topic: str, strategy: str = RANGE) -> GroupMember:
        return _AioMember(to, group, topic)


class _AioMember:
    """It lives while its loop runs, that is while it is polled."""

    def __init__(self, to: Target, group: str, topic: str) -> None:
        self._runner = asyncio.Runner()
        self._consumer = self._runner.run(self._started(to, group, topic))

    @staticmethod
    async def _started(to: Target, group: str, topic: str) -> Any:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            **Aiokafka.settings(to),
            **PYTHON_MEMBER,
            group_id=group,
            partition_assignment_strategy=(AioRange,),
        )
        await consumer.start()
        return consumer

    def poll(self) -> list[bytes]:
        found = self._runner.run(self._consumer.getmany(timeout_ms=50))
        return [message.value for messages in found.values() for message in messages]

    def partitions(self) -> list[int]:
        return [each.partition for each in self._consumer.assignment()]

    def commit(self) -> None:
        with suppress(AioError):
            self._runner.run(self._consumer.commit())

    def offset_at(self, topic: str, time_ms: int) -> int | None:
        place = aiokafka.TopicPartition(topic, 0)
        found = self._runner.run(self._consumer.offsets_for_times({place: time_ms}))[place]
        return None if found is None else int(found.offset)

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()


class _PythonToken(PythonTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


class KafkaPython:
    """The client in pure Python."""

    strategies = (RANGE, COOPERATIVE)

    @staticmethod
    def settings(to: Target) -> dict[str, Any]:
        given: dict[str, Any] = {"bootstrap_servers": to.bootstrap}
        if to.login is None:
            return given
        given |= {"security_protocol": "SASL_SSL", "ssl_cafile": to.login.ca, "sasl_mechanism": to.login.mechanism}
        if to.login.mechanism != "OAUTHBEARER":
            return given | {"sasl_plain_username": to.login.user, "sasl_plain_password": to.login.token}
        return given | {"sasl_oauth_token_provider": _PythonToken(to.login.token)}

    @classmethod
    def produce(cls, to: Target, topic: str, values: Sequence[bytes], meanwhile: Callable[[], None]) -> None:
        producer = kafka.KafkaProducer(
            **cls.settings(to), enable_idempotence=True, batch_size=500, reconnect_backoff_max_ms=200
        )
        half = len(values) // 2
        sent = [producer.send(topic, value, partition=0) for value in values[:half]]
        sent[0].get(PATIENCE_SECONDS)
        meanwhile()
        sent += [producer.send(topic, value, partition=0) for value in values[half:]]
        for each in sent:
            each.get(PATIENCE_SECONDS)
        producer.close()

    @classmethod
    def member(cls, to: Target, group: str, topic: str, strategy: str = RANGE) -> GroupMember:
        return _PythonMember(to, group, topic, strategy)


class _PythonMember:
    def __init__(self, to: Target, group: str, topic: str, strategy: str) -> None:
        assignor = CooperativeStickyAssignor if strategy == COOPERATIVE else RangePartitionAssignor
        self._consumer = kafka.KafkaConsumer(
            topic,
            **KafkaPython.settings(to),
            **PYTHON_MEMBER,
            group_id=group,
            partition_assignment_strategy=[assignor],
        )

    def poll(self) -> list[bytes]:
        # It gives up connecting to the coordinator, and begins again, if that takes longer than this.
        found: Iterable[list[Any]] = self._consumer.poll(timeout_ms=2000).values()
        return [message.value for messages in found for message in messages]

    def partitions(self) -> list[int]:
        return [each.partition for each in self._consumer.assignment()]

    def commit(self) -> None:
        with suppress(KafkaError):
            self._consumer.commit()

    def offset_at(self, topic: str, time_ms: int) -> int | None:
        place = kafka.TopicPartition(topic, 0)
        found = self._consumer.offsets_for_times({place: time_ms})[place]
        return None if found is None else int(found.offset)

    def close(self) -> None:
        self._consumer.close()


CLIENTS: Final[dict[str, type[Confluent] | type[Aiokafka] | type[KafkaPython]]] = {
    "confluent-kafka": Confluent,
    "aiokafka": Aiokafka,
    "kafka-python": KafkaPython,
}
