"""The Trainer's loggers from Python: files that other programs read."""

import csv
import json
import struct
import zlib

import pytest
import rushlight as torch
from rushlight.loggers import CSVLogger, JSONLinesLogger, MLflowLogger, TensorBoardLogger, WandbLogger


def test_files_have_the_values(tmp_path):
    with JSONLinesLogger(tmp_path / "a", hparams={"lr": 0.1}) as log:
        log.log(1, loss=torch.tensor(0.5))
        log.log(2, {"loss": 0.25, "acc": float("nan")}, epoch=1)
    rows = [json.loads(line) for line in (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2] and rows[1]["loss"] == 0.25 and rows[1]["epoch"] == 1
    with CSVLogger(tmp_path / "b") as log:
        log.log(1, loss=0.5)
        log.log(2, loss=0.25)
    with open(tmp_path / "b" / "metrics.csv") as file:
        assert [row["loss"] for row in csv.DictReader(file)] == ["0.5", "0.25"]
    with TensorBoardLogger(tmp_path / "c") as log:
        log.log(1, loss=0.5)
    assert list((tmp_path / "c").rglob("*tfevents*"))
    with MLflowLogger(tmp_path / "d", tmp_path / "mlruns", experiment="digits", hparams={"lr": 0.1}) as log:
        log.log(3, loss=0.5)
    (metric,) = (tmp_path / "mlruns").rglob("metrics/loss")
    assert metric.read_text().split()[1:] == ["0.5", "3"]
    with pytest.raises(ValueError, match="closed"):
        log.log(4, loss=1.0)


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _fields(data):
    """Fields of a protocol buffer: numbers and bytes by their number."""
    at, found = 0, []
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 0:
            value, at = _varint(data, at)
        else:
            length, at = _varint(data, at)
            value, at = data[at : at + length], at + length
        found.append((key >> 3, value))
    return found


def _items(message, field):
    pairs = [dict(_fields(value)) for number, value in _fields(message) if number == field]
    return {pair[1].decode(): json.loads(pair[16]) for pair in pairs}


def test_wandb_folder(tmp_path):
    with WandbLogger(tmp_path, project="digits", entity="me", hparams={"lr": 0.1, "name": "x"}) as log:
        log.log(7, loss=0.5, bad=float("inf"))
    (path,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    data = path.read_bytes()
    assert struct.unpack("<4sHB", data[:7]) == (b":W&B", 0xBEE1, 0)
    at, records = 7, []
    while at < len(data):
        checksum, length, kind = struct.unpack("<IHB", data[at : at + 7])
        part = data[at + 7 : at + 7 + length]
        assert kind == 1 and checksum == zlib.crc32(part, zlib.crc32(bytes([kind])))
        records.append(dict(_fields(part)))
        at += 7 + length
    assert [record[1] for record in records] == [1, 2, 3, 4]
    run = dict(_fields(records[0][17]))
    assert (run[2], run[3]) == (b"me", b"digits") and path.name == f"run-{run[1].decode()}.wandb"
    assert _items(run[4], 1) == {"lr": 0.1, "name": "x"}
    history = _items(records[1][2], 1)
    assert history["_step"] == 7 and history["loss"] == 0.5 and history["bad"] == float("inf")
    assert _items(records[2][3], 1) == {"loss": 0.5, "bad": float("inf")}
    assert 18 in records[3]
