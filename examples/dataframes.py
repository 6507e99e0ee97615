"""DataFrames in and out: a polars frame becomes messages, a topic becomes a table for DuckDB, pandas and polars.

python examples/dataframes.py headrace://127.0.0.1:7071
"""

import sys

import duckdb
import polars as pl

import headrace


def main(url: str) -> None:
    with headrace.connect(url) as client:
        client.create_topic("readings", partitions=3)
        # Each row is a message: `value` and, if you like, `key`. Other columns become JSON in the value.
        readings = pl.DataFrame({"sensor": ["a", "b", "a", "c"], "celsius": [21.5, 19.0, 22.5, 18.0]})
        messages = readings.select(key="sensor", value=pl.struct("sensor", "celsius").struct.json_encode())
        with client.producer("readings") as producer:
            print(producer.send_batch(messages).num_rows, "readings sent")

        table = client.table("readings")  # a pyarrow.Table; to_arrow() reads a range
        query = """
            SELECT decode(key) AS sensor, avg((decode(value)::JSON ->> 'celsius')::DOUBLE) AS celsius
            FROM table_ GROUP BY ALL ORDER BY sensor
        """
        with duckdb.connect() as database:
            database.register("table_", table)
            means = database.sql(query).df()  # a pandas DataFrame
        print(means.to_string(index=False))
        print(pl.from_arrow(table.select(["partition", "offset", "timestamp"])).shape, "rows and columns in polars")


if __name__ == "__main__":
    main(sys.argv[1])
