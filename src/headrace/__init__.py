"""Headrace: a durable topic broker that brings message streams to Apache Spark."""

from headrace.broker import Broker
from headrace.core.errors import HeadraceError

__all__ = ["Broker", "HeadraceError"]
