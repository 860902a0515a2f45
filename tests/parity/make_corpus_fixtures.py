"""Writes tests/fixtures/corpus: small files of the kinds that tessera/corpus reads, written by other programs.

    python3 -m venv V && V/bin/pip install pyarrow datasets zstandard
    V/bin/python tests/parity/make_corpus_fixtures.py
"""

import datetime
import decimal
import gzip
import json
import lzma
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "corpus"


def lines(begin, end):
    return "".join(json.dumps({"text": f"line {i}: é\n"}) + "\n" for i in range(begin, end)).encode()


def zstd(data):
    """Compressed with a checksum, like the output of the program zstd."""
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


def compressed():
    """Two members, frames or streams each, split in the middle of a line, like the output of `cat` on two files."""
    whole = lines(0, 40)
    parts = [whole[:700], whole[700:]]
    (FOLDER / "lines.jsonl").write_bytes(whole)
    (FOLDER / "lines.jsonl.gz").write_bytes(b"".join(gzip.compress(part, mtime=0) for part in parts))
    (FOLDER / "lines.jsonl.zst").write_bytes(b"".join(zstd(part) for part in parts))
    (FOLDER / "lines.jsonl.xz").write_bytes(b"".join(lzma.compress(part) for part in parts))


COUNT = 7


def columns():
    """Name, type, values: every third is null; values depend on the row's number."""
    day, time = datetime.date(1999, 12, 25), datetime.time(23, 4, 5, 6)
    stamp = datetime.datetime(1969, 7, 20, 20, 17, 40, 123456)
    turns = [{"role": "user", "content": "é?"}, {"role": "assistant", "content": ""}]
    kinds = {
        "bool": (pa.bool_(), lambda i: i % 2 == 0),
        "int8": (pa.int8(), lambda i: i - 4),
        "uint64": (pa.uint64(), lambda i: 2**62 + i),
        "int64": (pa.int64(), lambda i: -(2**62) + i),
        "float16": (pa.float16(), lambda i: i / 4),
        "float32": (pa.float32(), lambda i: i / 8),
        "float64": (pa.float64(), lambda i: i / 3),
        "string": (pa.string(), lambda i: "é" * i),
        "large_string": (pa.large_string(), lambda i: f"row {i}\n"),
        "string_view": (pa.string_view(), lambda i: "x" * 5 * i),
        "binary": (pa.binary(), lambda i: b"bytes %d" % i),
        "fixed": (pa.binary(3), lambda i: b"ab%d" % i),
        "dictionary": (pa.dictionary(pa.int8(), pa.string()), lambda i: ["a", "b"][i % 2]),
        "date": (pa.date32(), lambda i: day + datetime.timedelta(i)),
        "time": (pa.time64("us"), lambda i: time),
        "seconds": (pa.timestamp("s"), lambda i: stamp.replace(microsecond=0)),
        "stamp": (pa.timestamp("us"), lambda i: stamp + datetime.timedelta(seconds=i)),
        "zoned": (pa.timestamp("ms", "UTC"), lambda i: stamp.replace(microsecond=5000, tzinfo=datetime.timezone.utc)),
        "duration": (pa.duration("s"), lambda i: datetime.timedelta(seconds=i)),
        "decimal": (pa.decimal128(10, 2), lambda i: decimal.Decimal(i) / 4),
        "list": (pa.list_(pa.int32()), lambda i: list(range(i))),
        "lists": (pa.list_(pa.list_(pa.string())), lambda i: [["a"] * (i % 3), [], None]),
        "struct": (pa.struct([("a", pa.int32()), ("b", pa.string())]), lambda i: {"a": i, "b": None}),
        "map": (pa.map_(pa.string(), pa.int32()), lambda i: [("k", i)]),
        "messages": (pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())])), lambda i: turns[: i % 3]),
        "null": (pa.null(), lambda i: None),
    }
    return {n: (t, [None if i % 3 == 2 else make(i) for i in range(COUNT)]) for n, (t, make) in kinds.items()}


def shown(value):
    """A cell in tessera's form, as documented in docs/data.md."""
    if isinstance(value, (datetime.date, datetime.time)):
        text = value.isoformat()
        # isoformat writes six digits; we write as many as the column's unit has
        return text.replace(".005000", ".005")
    if isinstance(value, datetime.timedelta):
        return int(value.total_seconds())
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (list, tuple)):
        return [shown(item) for item in value]
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    return value


def table(names):
    made = columns()
    return pa.table({n: pa.array(made[n][1], made[n][0]) for n in names})


def write_rows(name, rows):
    (FOLDER / name).write_text("".join(json.dumps(shown(row)) + "\n" for row in rows.to_pylist()))


def tables():
    """all_types.*: one row per line in all_types.jsonl. Parquet does not support all types."""
    names = list(columns())
    everything = table(names)
    write_rows("all_types.jsonl", everything)
    for name, new in [("all_types.stream.arrow", pa.ipc.new_stream), ("all_types.file.arrow", pa.ipc.new_file)]:
        with new(FOLDER / name, everything.schema) as writer:
            writer.write_table(everything, max_chunksize=3)
    simple = table(["string", "messages"])
    write_rows("chat.jsonl", simple)
    with pa.ipc.new_stream(FOLDER / "chat.arrow", simple.schema) as writer:  # without dictionaries, so several pieces
        writer.write_table(simple, max_chunksize=2)
    rows = table([n for n in names if n != "float16"])
    for version in ["1.0", "2.0"]:
        for codec in ["none", "snappy", "gzip", "zstd", "lz4", "brotli"]:
            path = FOLDER / f"all_types.v{version[0]}.{codec}.parquet"
            pq.write_table(rows, path, compression=codec, data_page_version=version, row_group_size=3)
    delta = {"int64": "DELTA_BINARY_PACKED", "string": "DELTA_BYTE_ARRAY", "large_string": "DELTA_LENGTH_BYTE_ARRAY",
             "float32": "BYTE_STREAM_SPLIT"}
    pq.write_table(rows, FOLDER / "all_types.delta.parquet", use_dictionary=False, column_encoding=delta)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    compressed()
    tables()
