"""Headrace: a durable topic broker that brings message streams to Apache Spark."""

from headrace.broker import Broker
from headrace.client import Client, Consumer, Message, Producer, Receipt, connect
from headrace.core.errors import HeadraceError

__all__ = ["Broker", "Client", "Consumer", "HeadraceError", "Message", "Producer", "Receipt", "connect"]
