"""The client: `connect` returns an object with methods for topics and groups, and for producers and consumers.

    connect ── Client ── Producer ── SendBuffer (collects) ── BatchSender (sends, retries)
                  │  └── Consumer ── Session (in a group) ── Assignment ── Intake ── Prefetch (reads ahead)
                  └── Transport: Flight, or a broker in the same process

It uses the wire and the core, and knows nothing of the broker's internals.
"""

from headrace.client.client import Client
from headrace.client.connection import connect
from headrace.client.consumer.consumer import Consumer
from headrace.client.consumer.topics_consumer import TopicPartition, TopicsConsumer
from headrace.client.message import Message
from headrace.client.producer.producer import Producer
from headrace.client.producer.receipt import Receipt
from headrace.client.read.follow import Following
from headrace.client.read.start import Start

__all__ = [
    "Client",
    "Consumer",
    "Following",
    "Message",
    "Producer",
    "Receipt",
    "Start",
    "TopicPartition",
    "TopicsConsumer",
    "connect",
]
