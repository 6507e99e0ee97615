"""The pure core: everything that decides, nothing that waits.

Messages and time go in as arguments, decisions come out as values. No module here touches a file, a socket, a
clock, a thread or a random number, so every branch can be tested without any of them.
"""
