"""Compares the rows that `tessera data merge` reads with those of pyarrow and `datasets`, on files written by these.

    python3 tests/parity/check_corpus.py BUILD [--rows N] [--seed N]        needs pyarrow, datasets, numpy, zstandard

Parquet: random tables of every type, codec, page version and encoding, with small and large row groups and pages.
Arrow: stream and file, with and without compression. `datasets`: folders of save_to_disk (one, and with splits),
to_json, to_csv, to_parquet. Prints the comparisons; at the first difference prints it and exits with code 1.
"""

import argparse
import datetime
import decimal
import itertools
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import datasets
import pyarrow as pa
import pyarrow.parquet as pq

from make_corpus_fixtures import shown

CODECS = ["none", "snappy", "gzip", "zstd", "lz4", "brotli"]


def text(rng):
    alphabet = "ab é\n\"\\\t漢字\U0001f600\x01"
    return "".join(rng.choice(alphabet) for _ in range(rng.choice([0, 1, 3, 20, 300])))


def kinds(rng):
    """{name: (type, function that makes a value)}."""
    day = datetime.date(1970, 1, 1)
    turn = pa.struct([("role", pa.string()), ("content", pa.string())])

    def maybe(make):
        return None if rng.random() < 0.2 else make()

    def items(make):
        return [maybe(make) for _ in range(rng.choice([0, 1, 2, 7]))]

    whole = lambda bits: lambda: rng.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1))
    return {
        "flag": (pa.bool_(), lambda: rng.random() < 0.5),
        "i8": (pa.int8(), whole(8)), "i16": (pa.int16(), whole(16)), "i32": (pa.int32(), whole(32)),
        "i64": (pa.int64(), whole(64)), "u32": (pa.uint32(), lambda: rng.randrange(2**32)),
        "f32": (pa.float32(), lambda: rng.randrange(-1000, 1000) / 8), "f64": (pa.float64(), lambda: rng.gauss(0, 1e9)),
        "s": (pa.string(), lambda: text(rng)), "ls": (pa.large_string(), lambda: text(rng)),
        "sv": (pa.string_view(), lambda: text(rng)), "few": (pa.string(), lambda: rng.choice("abc")),
        "dict": (pa.dictionary(pa.int32(), pa.string()), lambda: rng.choice(["one", "two", "three"])),
        "bin": (pa.binary(), lambda: text(rng).encode()), "fix": (pa.binary(4), lambda: b"%04d" % rng.randrange(9999)),
        "date": (pa.date32(), lambda: day + datetime.timedelta(rng.randrange(-20000, 20000))),
        "ts": (pa.timestamp("us"), lambda: datetime.datetime(1970, 1, 1) + datetime.timedelta(
            microseconds=rng.randrange(-(10**15), 10**15) | 1)),
        "dec": (pa.decimal128(20, 3), lambda: decimal.Decimal(rng.randrange(-(10**12), 10**12)) / 1000),
        "dec256": (pa.decimal256(50, 3), lambda: decimal.Decimal(rng.randrange(-(10**12), 10**12)) / 1000),
        "list": (pa.list_(pa.int64()), lambda: items(whole(64))),
        "llist": (pa.large_list(pa.string()), lambda: items(lambda: text(rng))),
        "fixed": (pa.list_(pa.int16(), 3), lambda: [maybe(whole(16)) for _ in range(3)]),
        "deep": (pa.list_(pa.list_(pa.list_(pa.int8()))), lambda: items(lambda: items(lambda: items(whole(8))))),
        "struct": (pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]),
                   lambda: {"a": maybe(whole(32)), "b": maybe(lambda: items(lambda: text(rng)))}),
        "map": (pa.map_(pa.string(), pa.float64()),
                lambda: [(str(i), maybe(rng.random)) for i in range(rng.randrange(4))]),
        "messages": (pa.list_(turn), lambda: items(lambda: {"role": "user", "content": maybe(lambda: text(rng))})),
    }


def table(rng, rows):
    columns = {}
    for name, (kind, make) in kinds(rng).items():
        columns[name] = pa.array([None if rng.random() < 0.15 else make() for _ in range(rows)], kind)
    return pa.table(columns)


class Checker:
    def __init__(self, build, folder):
        self.program, self.folder, self.compared, self.rows = build / "tessera", folder, 0, 0

    def read(self, path, *flags):
        out = self.folder / "read.jsonl"
        command = [self.program, "data", "merge", str(path), "--output", str(out), *flags]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}: {result.stderr}")
        with open(out, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def compare(self, what, path, expected, *flags):
        found = self.read(path, *flags)
        if len(found) != len(expected):
            sys.exit(f"{what}: {len(found)} rows instead of {len(expected)}")
        for i, (ours, theirs) in enumerate(zip(found, expected)):
            theirs = json.loads(json.dumps(shown(theirs)))
            if ours != theirs:
                names = [name for name in theirs if ours.get(name) != theirs[name]]
                sys.exit(f"{what}: row {i}, {names}:\n{ours.get(names[0])!r}\n{theirs[names[0]]!r}")
        self.compared += 1
        self.rows += len(found)


def check_parquet(checker, rng, rows):
    path = checker.folder / "a.parquet"
    encodings = {
        "dictionary": {}, "plain": {"use_dictionary": False},
        "delta": {"use_dictionary": False, "column_encoding": {
            "i32": "DELTA_BINARY_PACKED", "i64": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY",
            "ls": "DELTA_LENGTH_BYTE_ARRAY", "bin": "DELTA_BYTE_ARRAY", "f32": "BYTE_STREAM_SPLIT",
            "f64": "BYTE_STREAM_SPLIT", "flag": "RLE"}},
    }
    for codec, version, (title, options), (group, page) in itertools.product(
            CODECS, ["1.0", "2.0"], encodings.items(), [(7, 64), (rows, 1 << 20)]):
        made = table(rng, rows)
        pq.write_table(made, path, compression=codec, data_page_version=version, row_group_size=group,
                       data_page_size=page, **options)
        what = f"parquet {codec} v{version} {title} groups of {group}"
        checker.compare(what, path, pq.read_table(path).to_pylist())
    print(f"parquet: {checker.compared} files, {checker.rows} rows")


def check_arrow(checker, rng, rows):
    path = checker.folder / "a.arrow"
    for new, codec, batch in itertools.product(
            [pa.ipc.new_stream, pa.ipc.new_file], [None, "lz4", "zstd"], [3, rows]):
        made = table(rng, rows)
        with new(path, made.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
            writer.write_table(made, max_chunksize=batch)
        checker.compare(f"arrow {new.__name__} {codec} batches of {batch}", path, made.to_pylist())
    print(f"and arrow: {checker.compared} files, {checker.rows} rows")


def check_datasets(checker, rng, rows):
    features = [{"id": i, "text": text(rng), "tags": [text(rng) for _ in range(i % 3)],
                 "messages": [{"role": "user", "content": text(rng)}]} for i in range(rows)]
    made = datasets.Dataset.from_list(features)
    saved = checker.folder / "saved"
    made.save_to_disk(saved, num_shards=3)
    checker.compare("save_to_disk", saved, list(datasets.load_from_disk(str(saved))))
    both = made.train_test_split(0.25, seed=1)
    datasets.DatasetDict(both).save_to_disk(checker.folder / "both")
    for split in ["train", "test"]:
        loaded = datasets.load_from_disk(str(checker.folder / "both"))[split]
        checker.compare(f"save_to_disk, {split}", checker.folder / "both", list(loaded), "--split", split)
    hub = checker.folder / "hub"
    (hub / "data").mkdir(parents=True)
    for split in ["train", "test"]:
        for i in range(2):
            both[split].shard(2, i).to_parquet(hub / "data" / f"{split}-{i:05}-of-00002.parquet")
        loaded = datasets.load_dataset(str(hub), split=split, cache_dir=str(checker.folder / "cache"))
        checker.compare(f"hub layout, {split}", hub, list(loaded), "--split", split)
    for name, options in [("a.jsonl", {}), ("a.jsonl.gz", {"compression": "gzip"}), ("a.json", {"lines": False}),
                          ("b.jsonl.xz", {"compression": "xz"})]:
        made.to_json(checker.folder / name, **options)
        checker.compare(f"to_json {name}", checker.folder / name, list(made))
    flat = made.remove_columns(["tags", "messages", "id"]).filter(lambda row: "\x01" not in row["text"])
    flat.to_csv(checker.folder / "a.csv")
    checker.compare("to_csv", checker.folder / "a.csv", list(flat))
    print(f"and datasets: {checker.compared} sets of files, {checker.rows} rows: all equal")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    datasets.disable_progress_bars()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        checker = Checker(options.build, pathlib.Path(folder))
        check_parquet(checker, rng, options.rows)
        check_arrow(checker, rng, options.rows)
        check_datasets(checker, rng, options.rows)


if __name__ == "__main__":
    main()
