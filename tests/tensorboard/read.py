"""Prints what TensorBoard's own reader finds in a directory of event files, as JSON.

    python tests/tensorboard/read.py DIRECTORY
"""

import json
import math
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto import graph_pb2
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.util.tensor_util import make_ndarray

events = EventAccumulator(sys.argv[1], size_guidance={name: 0 for name in ("scalars", "histograms", "images", "tensors")})
events.Reload()
tags = events.Tags()
finite = lambda value: value if math.isfinite(value) else str(value)
found = {
    "scalars": {tag: [[e.step, finite(e.value)] for e in events.Scalars(tag)] for tag in tags["scalars"]},
    "histograms": {},
    "images": {},
    "audio": {},
    "pr_curves": {},
    "text": {},
    "graph": [],
    "hparams": {},
}
for tag in tags["histograms"]:
    last = events.Histograms(tag)[-1]
    h = last.histogram_value
    found["histograms"][tag] = {"step": last.step, "min": h.min, "max": h.max, "num": h.num, "sum": h.sum,
                                "sum_squares": h.sum_squares, "limits": list(h.bucket_limit), "counts": list(h.bucket)}
for tag in tags["images"]:
    image = events.Images(tag)[-1]
    # Width and height of the PNG itself.
    size = struct.unpack(">II", image.encoded_image_string[16:24])
    found["images"][tag] = {"step": image.step, "width": image.width, "height": image.height, "png": size}
for tag in tags["audio"]:
    sound = events.Audio(tag)[-1]
    found["audio"][tag] = [sound.step, sound.sample_rate, sound.length_frames, sound.content_type, sound.encoded_audio_string[:4].decode()]
for tag in tags["tensors"]:
    if events.SummaryMetadata(tag).plugin_data.plugin_name == "pr_curves":
        found["pr_curves"][tag] = make_ndarray(events.Tensors(tag)[-1].tensor_proto).tolist()
        continue
    found["text"][tag] = [[e.step, e.tensor_proto.string_val[0].decode()] for e in events.Tensors(tag) if e.tensor_proto.string_val]
if tags["graph"]:
    graph = graph_pb2.GraphDef()
    graph.ParseFromString(events._graph if isinstance(events._graph, bytes) else events.Graph().SerializeToString())
    found["graph"] = [[node.name, node.op, {k: v.s.decode() for k, v in node.attr.items()}] for node in graph.node]
metadata = events.summary_metadata if hasattr(events, "summary_metadata") else {}
for tag, meta in metadata.items():
    if meta.plugin_data.plugin_name == "hparams":
        data = plugin_data_pb2.HParamsPluginData.FromString(meta.plugin_data.content)
        for name, value in data.session_start_info.hparams.items():
            kind = value.WhichOneof("kind")
            found["hparams"][name] = getattr(value, kind)
        if data.HasField("experiment"):
            found["hparam_metrics"] = [m.name.tag for m in data.experiment.metric_infos]
print(json.dumps(found))
