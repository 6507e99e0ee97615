"""Deduplication of a DataFrame: by payload, by source and seqno, or by columns, within a window.

Equal rows get equal pairs of 64-bit hashes: FNV-1a and a second one for payloads, as in the broker, and two of Spark's
own for columns. Rows are divided into buckets by hash, and each bucket is decided as whole columns by `repeats`.

Streams keep what is remembered in Spark's state, a value per bucket, so that it survives a restart. Rows pass
through Pandas there, which knows no null in a column of integers; so they travel packed, as one JSON text each, written
and read by Spark itself. Batches have no state and pass as Arrow, untouched.

Why not Spark's own deduplication within a watermark: it drops rows that are late, and of two partitions one may be
hours behind the other while a pipeline catches up.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from headrace.core.errors import InvalidInput
from headrace.spark.functions import fnv1a64
from headrace.spark.pipeline.definition.check import MESSAGE_STRUCT
from headrace.spark.pipeline.definition.description import Deduplicate
from headrace.spark.pipeline.frame.dedup_window import BUCKETS, NOTHING, Rows, first_of_each, remembered
from headrace.spark.pipeline.run.spark_logs import analysis, quoted

if TYPE_CHECKING:
    import pandas as pd

_BUCKET: Final = "_headrace_bucket"
_FIRST: Final = "_headrace_first"
_SECOND: Final = "_headrace_second"
_TIME: Final = "_headrace_time"
_ORDER: Final = "_headrace_order"
_PACKED: Final = "_headrace_row"
_NUMBERED: Final = "_headrace_column_"
_DECISION: Final = (_FIRST, _SECOND, _TIME, _ORDER)
# Rows without a source and seqno, or without a time, are nobody's repeat.
_FREE: Final = "_headrace_free"
# Down to the microsecond, which the default formats of JSON cut off.
_EXACT: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def deduplicate(frame: DataFrame, asked: Deduplicate) -> DataFrame:
    """The rows without repeats; their order is not kept."""
    window_us = int(asked.window_seconds * 1_000_000)
    with analysis("deduplicate.by", asked.by if isinstance(asked.by, str) else ", ".join(asked.by)):
        marked = frame.withColumns(_marks(frame, asked))
        if frame.isStreaming:
            return _stream(marked, frame.schema, window_us)
        return _batch(marked, frame.schema, window_us)


def _marks(frame: DataFrame, asked: Deduplicate) -> dict[str, Column]:
    """What decides about a row."""
    place = f"{MESSAGE_STRUCT}." if MESSAGE_STRUCT in frame.columns else ""
    free = F.lit(False)
    if asked.by == "payload":
        value = _column(frame, f"{place}value", "deduplicate.by")
        # As in a topic, null is no payload.
        free = value.isNull()
        first, second = F.coalesce(fnv1a64(value), F.lit(0).cast("long")), F.xxhash64(value)
    else:
        names = _names_of(asked.by, place)
        columns = [_column(frame, name, "deduplicate.by") for name in names]
        # Spark's hashes pass over nulls, so whether there is one is hashed too.
        parts = [part for column in columns for part in (column.isNull(), column)]
        first, second = F.xxhash64(F.lit(1), *parts), F.xxhash64(F.lit(2), *parts)
        if asked.by == "source":
            free = columns[-1].isNull()
    time = _time(frame, asked, place)
    offset = _found(frame, f"{place}offset")
    order = F.lit(0).cast("long") if offset is None else offset
    # Rows that are free have equal hashes, and are spread by their place instead.
    spread = F.when(free, order).otherwise(second)
    return {
        _FIRST: first,
        _SECOND: second,
        _TIME: F.coalesce(time, F.lit(0).cast("long")),
        _ORDER: order,
        _FREE: free | time.isNull(),
        _BUCKET: F.pmod(spread, F.lit(BUCKETS)).cast("int"),
    }


def _names_of(by: str | list[str], place: str) -> list[str]:
    if isinstance(by, list):
        return by
    return [f"{place}producer_id", f"{place}message_group_id", f"{place}seqno"]


def _time(frame: DataFrame, asked: Deduplicate, place: str) -> Column:
    if asked.time is None and _found(frame, f"{place}timestamp") is None:
        return F.unix_micros(F.current_timestamp())
    name = asked.time or f"{place}timestamp"
    column = _column(frame, name, "deduplicate.time")
    kind = frame.select(column).schema[0].dataType
    if not isinstance(kind, T.TimestampType):
        raise InvalidInput("deduplicate.time", name, f"it must be a timestamp, but is {kind.simpleString()}")
    return F.unix_micros(column)


def _found(frame: DataFrame, name: str) -> Column | None:
    """The column of a name, which may have dots in it, or the field of a struct; None if there is neither."""
    if name in frame.columns:
        return F.col(quoted(name))
    structure, _, field = name.rpartition(".")
    if structure not in frame.columns:
        return None
    kind = frame.schema[structure].dataType
    if not isinstance(kind, T.StructType) or field not in kind.names:
        return None
    return F.col(f"{quoted(structure)}.{quoted(field)}")


def _column(frame: DataFrame, name: str, key: str) -> Column:
    found = _found(frame, name)
    if found is None:
        known = ", ".join(frame.columns)
        raise InvalidInput(key, name, f"this column does not exist: known columns are {known}")
    return found


def _batch(marked: DataFrame, schema: T.StructType, window_us: int) -> DataFrame:
    def decide(table: pa.Table) -> pa.Table:
        return _decide_table(table, window_us)

    # Pyspark finds the columns by name here, and takes a dot in one for a field: meanwhile they have numbers.
    numbered = T.StructType()
    for number, field in enumerate(schema.fields):
        numbered.add(f"{_NUMBERED}{number}", field.dataType, field.nullable)
    columns = [F.col(quoted(name)).alias(to) for name, to in zip(schema.names, numbered.names, strict=True)]
    plain = marked.select(*columns, *_DECISION, _FREE, _BUCKET)
    return plain.groupBy(_BUCKET).applyInArrow(decide, numbered).toDF(*schema.names)


def _stream(marked: DataFrame, schema: T.StructType, window_us: int) -> DataFrame:
    _check_packable(schema, "deduplicate")
    row = F.to_json(F.struct(*(quoted(name) for name in schema.names)), _EXACT)
    packed = marked.select(_BUCKET, *_DECISION, _FREE, row.alias(_PACKED))
    kept = packed.groupBy(_BUCKET).applyInPandasWithState(
        partial(_decide_frames, window_us=window_us),
        outputStructType=f"{_PACKED} STRING",
        stateStructType="known BINARY",
        outputMode="append",
        timeoutConf=GroupStateTimeout.NoTimeout,
    )
    return kept.select(F.from_json(_PACKED, schema, _EXACT).alias("row")).select("row.*")


def _check_packable(kind: T.DataType, place: str) -> None:
    """JSON carries every type but maps with keys that are no text, and a few that tables do not have either."""
    if isinstance(kind, T.StructType):
        for field in kind:
            _check_packable(field.dataType, field.name)
    elif isinstance(kind, T.ArrayType):
        _check_packable(kind.elementType, place)
    elif isinstance(kind, T.MapType):
        if not isinstance(kind.keyType, T.StringType):
            raise InvalidInput("deduplicate", place, "deduplication supports maps with text keys only")
        _check_packable(kind.valueType, place)


def _decide_frames(
    key: Any, frames: Iterator[pd.DataFrame], state: GroupState, *, window_us: int
) -> Iterator[pd.DataFrame]:
    """One bucket of a micro-batch."""
    import pandas as pd

    rows = pd.concat(list(frames), ignore_index=True)
    known = Rows.from_bytes(state.get[0]) if state.exists else NOTHING
    columns = {name: rows[name].to_numpy() for name in (*_DECISION, _FREE)}
    keep, after = _decide(columns, known, window_us)
    state.update((after.to_bytes(),))
    yield pd.DataFrame({_PACKED: rows[_PACKED][keep]})


def _decide_table(table: pa.Table, window_us: int) -> pa.Table:
    """One bucket of a batch."""
    columns = {name: table[name].to_numpy() for name in (*_DECISION, _FREE)}
    keep, _ = _decide(columns, NOTHING, window_us)
    return table.drop_columns([*_DECISION, _FREE, _BUCKET]).take(keep)


def _decide(columns: dict[str, Any], known: Rows, window_us: int) -> tuple[Any, Rows]:
    """Which places to keep, in the order of time; and what to remember."""
    free = columns[_FREE].astype(bool)
    order = np.lexsort((columns[_ORDER], columns[_TIME]))
    bound = order[~free[order]]
    rows = Rows(columns[_FIRST][bound], columns[_SECOND][bound], columns[_TIME][bound])
    mask = first_of_each(rows, known, window_us)
    after = remembered(known, rows.pick(mask), int(rows.time_us.min()), window_us) if len(rows) else known
    keep = np.ones(len(order), bool)
    keep[bound[~mask]] = False
    return order[keep[order]], after
