"""The broker: topics, publishing, reading, groups and upkeep over any store, behind one facade."""

from headrace.broker.broker import Broker
from headrace.broker.settings import BrokerSettings
from headrace.broker.subscription import Subscription

__all__ = ["Broker", "BrokerSettings", "Subscription"]
