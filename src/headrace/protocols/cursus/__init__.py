"""The cursus protocol, version 1: clients of cursus on the topics of Headrace, unmodified.

    socket ─► connection: one frame, of bounded size and time ─► messages: a text command, or a batch of records
           ─► commands: a handler for each word              ─► broker, through the bridge of the edge
           ─► messages: a text, JSON or a batch              ─► answers in the order of requests

- `server` runs an event loop in a thread of its own, with the limits and tokens of all protocols.
- `connection` reads frames, finds out who calls, and answers in order; a stream takes its connection over.
- `messages` turns bytes into commands and records and back, without trusting a length.
- `commands` has a module for each group of commands; its table says which exist. `errors` names what is refused.
- `producer_numbers` writes what an idempotent producer sends once; `streams` pushes what is written to readers.

Members of its groups are members of the broker's own groups: a partition that is to change hands is taken at once, and
the member hears of it with its next heartbeat. So they share a group with the members of other protocols and servers.

It needs nothing but the server: there is no extra.
"""
