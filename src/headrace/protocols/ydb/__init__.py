"""YDB's topic API over gRPC: YDB's own SDKs create topics, write and read here without a change.

    stubs.py      the one import of the generated messages, which the package `ydb` ships
    server.py     gRPC's server on an event loop in a thread of its own
    call.py       one call: who calls, what it may hold, its messages in and out, its outcome
    statuses.py   errors as YDB's statuses
    names.py      paths as topics, and the names of attributes that are reserved
    services/     unary calls: discovery and sign-in, directories, topics, consumers
    messages/     bounded decoding of what clients send; rows as messages and back
    sessions/     StreamWrite, StreamRead, and the rules of ranges that are committed in any order

    a message in    bytes of gRPC ► envelope (received) ► elements counted ► rows ► intake of the topic ► acks
    a message out   credit of the client ► envelope (answers) ► rows of the broker, in a thread ► one response

A topic is the path without the database. A consumer is a group, a read session a member of it in each of its topics,
with the id of the session as its name; a graceful stop is the group's two-phase rebalance. A source is the pair of
producer id and message group id, in the one table that all protocols share; a session that writes is a producer with an
epoch, so that a second one fences the first. What YDB keeps with a topic and Headrace does not know (attributes, write
speed, settings of splits) is an annotation of the topic, given back as it came.

A call that fails ends with a status in YDB's own messages, never with an error of gRPC: its SDKs decide by that whether
to try again. Transactions are refused as unsupported.
"""
