"""Pairs written to files with columns, in every format that is read."""

import csv
import gzip
import json
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import zstandard
from array_record.python import array_record_module

SIDES = ("source=pair.de", "target=pair.en")  # data.columns


def table(pairs: list[tuple[str, str]]) -> pa.Table:
    both = [{"de": src, "en": tgt} for src, tgt in pairs]
    return pa.table({"id": range(len(pairs)), "pair": both})


def write_json(path: Path, pairs: list, pack=lambda raw: raw) -> None:
    found = [{"id": i, "pair": {"de": a, "en": b}} for i, (a, b) in enumerate(pairs)]
    path.write_bytes(pack("".join(f"{json.dumps(row)}\n" for row in found).encode()))


def write_csv(path: Path, pairs: list) -> None:
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows([("id", "pair.de", "pair.en"), *((1, *pair) for pair in pairs)])


def write_tsv(path: Path, pairs: list) -> None:
    path.write_text("pair.en\tpair.de\n" + "".join(f"{b}\t{a}\n" for a, b in pairs))


def write_stream(path: Path, pairs: list) -> None:
    with pa.ipc.new_stream(path, table(pairs).schema) as file:
        file.write_table(table(pairs), max_chunksize=4)


def write_records(path: Path, pairs: list) -> None:
    writer = array_record_module.ArrayRecordWriter(str(path), "group_size:4")
    for i, (a, b) in enumerate(pairs):
        writer.write(json.dumps({"id": i, "pair": {"de": a, "en": b}}).encode())
    writer.close()


def zstd_frames(raw: bytes) -> bytes:
    """Return a file of two frames, as parallel compressors write."""
    return b"".join(zstandard.compress(part) for part in (raw[:99], raw[99:]))


FORMATS = {
    "jsonl": write_json,
    "json.gz": partial(write_json, pack=gzip.compress),
    "jsonl.zst": partial(write_json, pack=zstd_frames),
    "csv": write_csv,
    "tsv": write_tsv,
    "parquet": lambda path, pairs: pa.parquet.write_table(table(pairs), path, row_group_size=4),
    "arrow": write_stream,
    "feather": lambda path, pairs: pa.feather.write_feather(table(pairs), path, chunksize=4),
    "array_record": write_records,
}
