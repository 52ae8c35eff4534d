"""Writes an event file as TensorFlow 2 does, with TensorBoard's own writer: values are tensors, their plugin named with the first only.
write.py DIRECTORY"""

import struct
import sys
import zlib

import numpy as np
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.histogram import metadata as histogram
from tensorboard.plugins.image import metadata as image
from tensorboard.plugins.scalar import metadata as scalar
from tensorboard.plugins.text import metadata as text
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util import tensor_util


def png(width, height):
    """A grey image."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = b"".join(b"\0" + bytes(range(width)) for _ in range(height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


writer = EventFileWriter(sys.argv[1])
seen = set()


def add(tag, array, metadata, step):
    value = summary_pb2.Summary.Value(tag=tag, tensor=tensor_util.make_tensor_proto(array))
    if tag not in seen:
        value.metadata.CopyFrom(metadata)
        seen.add(tag)
    writer.add_event(event_pb2.Event(step=step, wall_time=1000.0 + step, summary=summary_pb2.Summary(value=[value])))


for step in range(5):
    add("accuracy", np.float32(step / 8), scalar.create_summary_metadata("", ""), step)
    add("exact", np.float64(step / 3), scalar.create_summary_metadata("", ""), step)
    add("weights", np.array([[-1.0, 0.0, 2.0], [0.0, 1.5, 3.0]]), histogram.create_summary_metadata("", ""), step)
    add("note", np.array([f"step {step} ünï".encode()], dtype=object), text.create_summary_metadata("", ""), step)
add("picture", np.array([b"9", b"4", png(9, 4)], dtype=object), image.create_summary_metadata("", ""), 3)
writer.close()
