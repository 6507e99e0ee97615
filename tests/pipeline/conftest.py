"""The session, the broker and the topics of the tests of the data source."""

from tests.spark.conftest import broker, client, server, spark, topic, url

__all__ = ["broker", "client", "server", "spark", "topic", "url"]
