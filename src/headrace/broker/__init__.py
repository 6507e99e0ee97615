"""The broker: topics, publishing, reading, groups and maintenance over any store, behind one facade."""

from headrace.broker.broker import Broker
from headrace.broker.settings import BrokerSettings, QueueApiSettings, TopicDefaults

__all__ = ["Broker", "BrokerSettings", "QueueApiSettings", "TopicDefaults"]
