"""The rules of consumer groups: who is a member, who owns which partition, and what may be committed.

    member.py        a member as a value: its session, what it owns, what it should let go
    group.py         a group as a value, and the rules of joining, staying, leaving, seeking
    rebalance.py     partitions change hands in two phases: revoke, then give once they were let go
    assignment.py    how many partitions each member should have, and which it keeps; the modulo of fixed groups
    commits.py       which offsets a member may commit: those of partitions that it owns

All of it is pure. Time and the topic's number of partitions go in, the next value of the group comes out.
"""
