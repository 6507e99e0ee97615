# %% [markdown]
# # A topic in a notebook
#
# Cells in the percent format: VS Code, PyCharm and Jupyter (with jupytext) open this file as a notebook. It needs a
# server (`headrace serve`), at `HEADRACE_URL` or on this machine.

# %%
import json
import os

import pyarrow.compute as pc

import headrace

client = headrace.connect(os.environ.get("HEADRACE_URL", "headrace://127.0.0.1:7071"))
client

# %% Some data to look at: the serializer makes JSON of each object.
client.create_topic("trips", partitions=2)
with client.producer("trips", serializer="json", key_serializer="text") as producer:
    for number in range(100):
        producer.send({"km": number % 17, "minutes": 3 * (number % 17) + 5}, key=f"bike-{number % 5}")

# %% The whole topic as one Arrow table.
trips = client.table("trips")
trips.select(["partition", "offset", "timestamp", "key", "value"]).slice(0, 5)

# %% As columns of its own, and as pandas.
documents = [json.loads(value) for value in trips["value"].to_pylist()]
frame = trips.select(["key"]).to_pandas()
frame["km"] = [each["km"] for each in documents]
frame.groupby("key").sum()

# %% Only the last ten of each partition.
recent = client.to_arrow("trips", start=-10)
(recent.num_rows, pc.max(recent["offset"]).as_py())

# %%
client.close()
