"""`make campaign`: `headrace verify` against real servers under faults, with fresh seeds, for a given time.

Its modules are run by `python -m tests.campaign`; pytest runs a short one of them.
"""
