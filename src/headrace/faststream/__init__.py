"""A broker for FastStream: handlers of messages as functions, with types, dependencies and AsyncAPI.

    broker = HeadraceBroker("headrace://127.0.0.1:7071")

    @broker.subscriber("orders", group="billing")
    async def bill(order: Order) -> None: ...

    app = FastStream(broker)

Messages are handled one after another. A message counts as handled when its handler returns; a group commits that soon
after, when no more messages wait, and when the broker stops. A message whose handler raises is logged and passed over.
With `AckPolicy.NACK_ON_ERROR` it is handled again until it succeeds, and those behind it in its partition wait.

FastStream has no public interface for brokers of others. This package uses its internal one, which may change with any
minor release: the extra `headrace[faststream]` pins the release that is tested. What that interface asks for and
Headrace does not have, requests with replies, raises `FeatureNotSupportedException`.
"""

from headrace.extras import needing

with needing("faststream"):
    from headrace.faststream.broker import HeadraceBroker, HeadraceRouter
    from headrace.faststream.message import HeadraceMessage

__all__ = ["HeadraceBroker", "HeadraceMessage", "HeadraceRouter"]
