"""The hashes: public vectors, the scalar definitions, and every way Arrow can lay bytes out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.hashes import columns
from headrace.core.hashes.columns import byte_rows, fnv1a64, fnv1a64_of, mix64, partition_of

# From the reference implementation's test suite (isthe.com/chongo/tech/comp/fnv).
PUBLIC_VECTORS = {
    b"": 0xCBF29CE484222325,
    b"a": 0xAF63DC4C8601EC8C,
    b"b": 0xAF63DF4C8601F1A5,
    b"fo": 0x08985907B541D342,
    b"foo": 0xDCB27518FED9D577,
    b"foob": 0xDD120E790C2512AF,
    b"fooba": 0xCAC165AFA2FEF40A,
    b"foobar": 0x85944171F73967E8,
}
# Two texts with the same FNV-1a 64.
COLLIDING = (b"8yn0iYCKYHlIj4-BwPqk", b"GReLUrM4wMqfg9yzV3KQ")
ROWS_MIN = columns._ROWS_PER_STEP_MIN
PLAIN_MAX = columns._PLAIN_BYTES_MAX
CHUNK = columns._CHUNK_BYTES
MASK = (1 << 64) - 1


def mix64_of(data: bytes) -> int:
    """The second hash of one value, word by word."""
    total = len(data) * 0x9E3779B97F4A7C15
    for place in range(0, len(data), 8):
        word = int.from_bytes(data[place : place + 8], "little")
        total += splitmix_of(word ^ splitmix_of(place // 8))
    return splitmix_of(total & MASK)


def splitmix_of(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def random_bytes(seed: int, lengths: Sequence[int]) -> list[bytes]:
    generator = np.random.default_rng(seed)
    return [generator.bytes(length) for length in lengths]


def assert_hashes(column: pa.Array) -> None:
    """Both kernels agree with the scalar definitions; a null hashes as empty bytes."""
    values = [value or b"" for value in column.to_pylist()]
    assert fnv1a64(column).tolist() == [fnv1a64_of(value) for value in values]
    assert mix64(column).tolist() == [mix64_of(value) for value in values]


def test_fnv_gives_the_public_vectors_one_by_one_and_as_a_column() -> None:
    assert {data: fnv1a64_of(data) for data in PUBLIC_VECTORS} == PUBLIC_VECTORS
    for repeats in (1, 40):
        column = pa.array([*PUBLIC_VECTORS] * repeats, pa.binary())
        assert fnv1a64(column).tolist() == [*PUBLIC_VECTORS.values()] * repeats


def test_partition_of_a_key_is_its_hash_modulo_the_partitions() -> None:
    assert partition_of(b"foobar", 8) == 0x85944171F73967E8 % 8
    assert {partition_of(b"k%d" % number, 10_000) < 10_000 for number in range(100)} == {True}
    assert partition_of(b"anything", 1) == 0


@given(st.lists(st.none() | st.binary(max_size=40), max_size=120), st.integers(0, 3), st.integers(0, 3))
@settings(deadline=None, max_examples=150)
def test_kernels_agree_with_the_definitions_on_slices_with_nulls(
    values: list[bytes | None], skipped: int, left_over: int
) -> None:
    column = pa.array([b"before"] * skipped + values + [b"after"] * left_over, pa.binary())
    assert_hashes(column.slice(skipped, len(values)))


@pytest.mark.parametrize("rows", [0, 1, ROWS_MIN - 1, ROWS_MIN, ROWS_MIN + 1, 3 * ROWS_MIN])
@pytest.mark.parametrize("seed", range(4))
def test_kernels_agree_around_the_row_threshold(rows: int, seed: int) -> None:
    lengths = np.random.default_rng(seed).integers(0, 70, rows).tolist()
    assert_hashes(pa.array(random_bytes(seed, lengths), pa.binary()))


@pytest.mark.parametrize("long_rows", [1, ROWS_MIN - 1, ROWS_MIN, ROWS_MIN + 1])
def test_kernels_agree_where_few_long_rows_outlast_many_short_ones(long_rows: int) -> None:
    lengths = [3] * 60 + [0, 9] * 30 + [PLAIN_MAX // 8 + row for row in range(long_rows)]
    assert_hashes(pa.array(random_bytes(5, lengths), pa.binary()))


def test_kernels_agree_around_the_length_of_the_plain_loop() -> None:
    lengths = [0, 1, PLAIN_MAX - 1, PLAIN_MAX, PLAIN_MAX + 1, 2 * PLAIN_MAX]
    assert_hashes(pa.array(random_bytes(6, lengths), pa.binary()))
    assert_hashes(pa.array(random_bytes(7, lengths + [10] * 2 * ROWS_MIN), pa.binary()))


@pytest.mark.parametrize("length", [CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 1, 1 << 20])
def test_kernels_agree_on_values_around_the_chunk_size(length: int) -> None:
    assert_hashes(pa.array(random_bytes(8, [3, length, 0, 11]), pa.binary()))


def test_second_hash_is_the_same_however_the_rows_are_cut_into_chunks() -> None:
    lengths = [0, 0, CHUNK + 5, 0, 100, CHUNK // 2, CHUNK // 2, 1, 0, CHUNK, 3 * CHUNK, 7, 0]
    column = pa.array(random_bytes(9, lengths), pa.binary())
    one_by_one = np.concatenate([mix64(column.slice(row, 1)) for row in range(len(column))])
    assert mix64(column).tolist() == one_by_one.tolist()
    assert mix64(column.slice(3, 7)).tolist() == one_by_one[3:10].tolist()


def test_many_small_rows_over_several_chunks_agree() -> None:
    lengths = np.random.default_rng(10).integers(0, 40, 20_000).tolist()
    values = random_bytes(10, lengths)
    assert sum(lengths) > CHUNK
    column = pa.array(values, pa.binary())
    assert mix64(column).tolist() == [mix64_of(value) for value in values]
    assert fnv1a64(column).tolist() == [fnv1a64_of(value) for value in values]


@pytest.mark.parametrize("fill", [b"\x00", b"\xff"])
def test_long_runs_of_one_byte_agree(fill: bytes) -> None:
    assert_hashes(pa.array([fill * length for length in (1, 7, 8, 9, PLAIN_MAX + 1, 5 * PLAIN_MAX)], pa.binary()))


def test_text_columns_hash_as_their_utf8_bytes() -> None:
    texts = ["", "foobar", "süß 🚰"] * 30
    assert fnv1a64(pa.array(texts)).tolist() == [fnv1a64_of(text.encode()) for text in texts]


def test_second_hash_tells_apart_what_fnv_cannot() -> None:
    one, other = pa.array([COLLIDING[0]]), pa.array([COLLIDING[1]])
    assert fnv1a64(one) == fnv1a64(other)
    assert mix64(one) != mix64(other)


def test_second_hash_depends_on_length_order_and_every_bit() -> None:
    base = bytes(range(32))
    flipped = [
        bytes(byte ^ (1 << bit if place == at else 0) for place, byte in enumerate(base))
        for at in range(32)
        for bit in range(8)
    ]
    alike = [b"", b"\0", b"\0" * 8, b"\0" * 9, b"\0" * 16, base, base[8:] + base[:8], base + b"\0", *flipped]
    assert len(set(mix64(pa.array(alike, pa.binary())).tolist())) == len(alike)


def test_bytes_behind_a_null_are_not_hashed() -> None:
    plain = pa.array([b"one", b"two", b"three"])
    validity = pa.py_buffer(np.packbits([1, 0, 1], bitorder="little"))
    hiding = pa.Array.from_buffers(pa.binary(), 3, [validity, *plain.buffers()[1:]])
    assert hiding.to_pylist() == [b"one", None, b"three"]
    assert byte_rows(hiding)[2].tolist() == [3, 0, 5]
    assert_hashes(hiding)
    assert_hashes(hiding.slice(1))
    assert_hashes(pa.concat_arrays([hiding] * ROWS_MIN))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([], pa.binary()),
        pa.nulls(3, pa.binary()),
        pa.nulls(100, pa.binary()),
        pa.array([b"", b""], pa.binary()),
        pa.array([b"x", b"y"], pa.binary()).slice(2),
        pa.Array.from_buffers(pa.binary(), 0, [None, None, pa.py_buffer(b"")]),
    ],
)
def test_columns_without_bytes_hash_as_empty(column: pa.Array) -> None:
    data, starts, lengths = byte_rows(column)
    assert (len(data), len(starts), lengths.tolist()) == (0, len(column), [0] * len(column))
    assert_hashes(column)


def test_rows_stand_where_their_starts_and_lengths_say() -> None:
    column = pa.array([b"skipped", b"one", None, b"", b"three", b"left over"]).slice(1, 4)
    data, starts, lengths = byte_rows(column)
    rows = [data[start : start + length].tobytes() for start, length in zip(starts, lengths, strict=True)]
    assert rows == [b"one", b"", b"", b"three"]
    assert data.tobytes() == b"onethree"
