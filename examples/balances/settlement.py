"""The step of balances.toml: Spark keeps a balance per account, and answers what needs an answer.

A top-up adds, a purchase takes away if there is enough, else it is refused; a statement asks for the balance. What
happens to one account is decided in the order in which it was published: all of it is in one partition, and the rows of
a micro-batch are put into the order of their offsets before they are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

ANSWERS = "account STRING, id BIGINT, kind STRING, cents BIGINT, balance BIGINT"


def settle(transactions: DataFrame) -> DataFrame:
    """Refusals and statements out of transactions."""
    flat = transactions.select("account", "id", "kind", "cents", "message.offset")
    return flat.groupBy("account").applyInPandasWithState(
        settle_account, ANSWERS, "balance BIGINT", "append", GroupStateTimeout.NoTimeout
    )


def settle_account(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """What one account did in a micro-batch."""
    rows = pd.concat(list(frames)).sort_values("offset")
    balance = state.get[0] if state.exists else 0
    answers = []
    for number, kind, cents in rows[["id", "kind", "cents"]].itertuples(index=False):
        balance, answer = decide(balance, kind, cents)
        if answer is not None:
            answers.append((key[0], number, answer, cents, balance))
    state.update((balance,))
    yield pd.DataFrame(answers, columns=["account", "id", "kind", "cents", "balance"])


def decide(balance: int, kind: str, cents: int) -> tuple[int, str | None]:
    """The balance after a transaction, and what to answer if anything."""
    if kind == "statement":
        return balance, "statement"
    if kind == "top-up":
        return balance + cents, None
    return (balance, "refusal") if cents > balance else (balance - cents, None)
