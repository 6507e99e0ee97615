"""The Kafka protocol: clients and tools of Apache Kafka on the topics of Headrace, unmodified.

    socket ─► connection: one frame, of bounded size and time ─► header: API, version, correlation id
           ─► messages: the request, by the schema of its version ─► apis: a handler, once for all versions
           ─► broker, through the bridge of the edge                ─► messages: the response, in the order of requests

- `server` runs an event loop in a thread of its own, with the limits and tokens of all protocols.
- `connection` reads frames, authenticates, and answers in order. Produce requests that follow one another are written
  together; every other request waits until those before it are answered, as in Kafka.
- `messages` turns bytes into requests and responses into bytes by the schemas of kio, `records` record batches into
  Arrow columns and back, both without trusting a length.
- `apis` has a module for each group of APIs; its table says which versions are served. `coordinator` holds the members
  of consumer groups; their committed offsets are those of the broker's groups.

The principal of a connection is found when it authenticates, by SASL/PLAIN with a token as password or by its client
certificate, and is looked up again for each request: a revoked token ends the connection. Rights are those of
`edge.operations`. Whatever is malformed closes the connection, with one line in the log.

Nothing here imports kio before a server starts: it comes with the extra `headrace[kafka]`.
"""
