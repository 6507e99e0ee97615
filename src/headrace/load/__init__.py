"""A load on a server: producers and consumers in processes of their own, and a check that all of it arrived.

    Load (what is wanted) ── run ── Workers ── worker processes: producing, consuming
                                        │            each message says who sent it, which it is, and when
                              Outcome ──┘     Verification: once and in order?  LatencyHistogram: how late?

It uses only the client; it knows nothing of the broker's internals.
"""
