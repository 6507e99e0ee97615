"""The native wire: clients of this library publish and follow with few steps between them and the disk.

    server.py       the port: an event loop, and what its connections share
    connection.py   one connection: who calls, and what it does, one thing at a time
    upload.py       a stream of messages to publish, answered in order
    follow.py       a stream of what is written, to a follower that says how much it takes
    settings.py     its bounds

`wire/native.py` says what is on the wire. What a connection holds goes through the envelope (`edge/envelope`), and
a commit never waits for a client: the thread that commits makes one call to the event loop, which writes the answers.
"""
