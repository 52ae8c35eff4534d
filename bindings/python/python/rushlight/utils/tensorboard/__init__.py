"""``torch.utils.tensorboard``: event files that TensorBoard reads, without TensorBoard installed."""

import datetime
import json
import os
import socket

from ... import _C

__all__ = ["FileWriter", "SummaryWriter"]


def _numbers(values):
    """The values of a tensor, an array or a sequence as a flat list of floats."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().flatten().tolist()
    elif hasattr(values, "ravel"):
        values = values.ravel().tolist()
    return [float(v) for v in values]


def _scalar(value):
    return float(value.item()) if hasattr(value, "item") else float(value)


def _step(step):
    step = 0 if step is None else int(step)
    if step < 0:
        raise ValueError(f"SummaryWriter: global_step is {step}; it must not be negative")
    return step


def _write(folder, name, lines):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def _sprite(images):
    """Pictures (N, C, H, W) with values from 0 to 1 as one square of pictures, row by row."""
    from PIL import Image

    import rushlight as torch

    images = torch.as_tensor(images).detach().cpu().float()
    images = images.expand(-1, 3, -1, -1) if images.shape[1] == 1 else images[:, :3]
    count, _, height, width = images.shape
    side = next(n for n in range(1, count + 1) if n * n >= count)
    square = torch.zeros(side * side, 3, height, width)
    square[:count] = images
    square = square.reshape(side, side, 3, height, width).permute(0, 3, 1, 4, 2).reshape(side * height, side * width, 3)
    pixels = (square * 255).clamp(0, 255).to(torch.uint8)
    return Image.frombytes("RGB", (side * width, side * height), bytes(pixels.reshape(-1).tolist()))


def _plain(hparam_dict, hparam_domain_discrete=None):
    """Hyperparameters as plain values."""
    if hparam_domain_discrete:
        raise NotImplementedError("hparam_domain_discrete is not supported; leave it out, TensorBoard finds the values that occur")
    plain = {}
    for name, value in hparam_dict.items():
        if value is None:
            continue
        if not isinstance(value, (bool, int, float, str)):
            if not hasattr(value, "item"):
                raise ValueError("value should be one of int, float, str, bool, or torch.Tensor")
            value = value.item()
        plain[name] = value
    return plain


class SummaryWriter:
    """Writes scalars, histograms, images, sound, text, graphs and hyperparameters to an event file in ``log_dir``.

    Events reach the file within a second or at `flush` and `close`; ``max_queue`` and ``flush_secs`` are taken for compatibility, as nothing
    waits longer than either would allow.
    """

    def __init__(self, log_dir=None, comment="", purge_step=None, max_queue=10, flush_secs=120, filename_suffix=""):
        if not log_dir:
            now = datetime.datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = os.fspath(log_dir)
        self._suffix = filename_suffix
        self._open = {}
        self._writer = _C.EventWriter(self.log_dir, filename_suffix, purge_step)

    @property
    def _events(self):
        # As in PyTorch, using a closed writer starts another file.
        if self._writer is None:
            self._writer = _C.EventWriter(self.log_dir, self._suffix, None)
        return self._writer

    def _get_file_writer(self):
        """The writer of single summaries, which loggers of other libraries use."""
        return FileWriter(self)

    def get_logdir(self):
        return self.log_dir

    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None, new_style=False, double_precision=False):
        self._events.scalar(tag, _scalar(scalar_value), _step(global_step), walltime)

    def add_scalars(self, main_tag, tag_scalar_dict, global_step=None, walltime=None):
        """Several curves in one chart: each has its own file in a directory next to this one."""
        for tag, value in tag_scalar_dict.items():
            path = os.path.join(self.log_dir, main_tag.replace("/", "_") + "_" + tag)
            if path not in self._open:
                self._open[path] = _C.EventWriter(path, self._suffix, None)
            self._open[path].scalar(main_tag, _scalar(value), _step(global_step), walltime)

    def add_histogram(self, tag, values, global_step=None, bins="tensorflow", walltime=None, max_bins=None):
        values = _numbers(values)
        if isinstance(bins, str):
            if bins != "tensorflow":
                raise ValueError(f"add_histogram: bins={bins!r} is not supported; pass 'tensorflow' or a sequence of edges")
            edges = None
        elif isinstance(bins, int):
            low, high = min(values), max(values)
            high = high if high > low else low + 1.0
            edges = [low + (high - low) * i / bins for i in range(bins)] + [high]
        else:
            edges = _numbers(bins)
        if max_bins is not None and edges is not None and len(edges) - 1 > max_bins:
            edges = edges[:: -(-(len(edges) - 1) // max_bins)] + [edges[-1]]
        self._events.histogram(tag, values, edges, _step(global_step), walltime)

    def add_histogram_raw(self, tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts, global_step=None, walltime=None):
        figures = [float(min), float(max), float(num), float(sum), float(sum_squares)]
        self._events.histogram_raw(tag, figures, _numbers(bucket_limits), _numbers(bucket_counts), _step(global_step), walltime)

    def add_image(self, tag, img_tensor, global_step=None, walltime=None, dataformats="CHW"):
        import rushlight as torch

        image = img_tensor.detach() if isinstance(img_tensor, torch.Tensor) else torch.as_tensor(img_tensor)
        order = dataformats.upper()
        if len(order) != image.dim() or set(order) - set("NCHW") or len(set(order)) != len(order):
            raise ValueError(f"add_image: a tensor of shape {tuple(image.shape)} does not have the dimensions {dataformats!r}")
        if "C" not in order:
            image, order = image.unsqueeze(-1), order + "C"
        if "N" in order:
            # Images in a grid, eight per row.
            image = image.permute([order.index(d) for d in "NCHW"])
            columns = 8 if image.shape[0] > 8 else max(image.shape[0], 1)
            rows = -(-image.shape[0] // columns)
            n, c, h, w = image.shape
            grid = torch.zeros((rows * columns, c, h, w), dtype=image.dtype)
            grid[:n] = image.cpu()
            image = grid.reshape(rows, columns, c, h, w).permute(2, 0, 3, 1, 4).reshape(c, rows * h, columns * w)
            order = "CHW"
        image = image.permute([order.index(d) for d in "HWC"]).cpu()
        if image.dtype != torch.uint8:
            image = (image.double() * 255).clamp(0, 255).to(torch.uint8)
        height, width, channels = image.shape
        self._events.image(tag, bytes(image.flatten().tolist()), [height, width, channels], _step(global_step), walltime)

    def add_images(self, tag, img_tensor, global_step=None, walltime=None, dataformats="NCHW"):
        self.add_image(tag, img_tensor, global_step, walltime, dataformats)

    def add_figure(self, tag, figure, global_step=None, close=True, walltime=None):
        """Matplotlib figures."""
        import numpy

        figures = figure if isinstance(figure, (list, tuple)) else [figure]
        drawn = []
        for one in figures:
            one.canvas.draw()
            drawn.append(numpy.asarray(one.canvas.buffer_rgba())[..., :3])
            if close:
                import matplotlib.pyplot

                matplotlib.pyplot.close(one)
        if len(drawn) == 1:
            self.add_image(tag, drawn[0].copy(), global_step, walltime, "HWC")
        else:
            self.add_image(tag, numpy.stack(drawn), global_step, walltime, "NHWC")

    def add_audio(self, tag, snd_tensor, global_step=None, sample_rate=44100, walltime=None):
        """Sound of one channel, with values from -1 to 1."""
        import rushlight as torch

        sound = torch.as_tensor(snd_tensor).detach().cpu().float().squeeze()
        if sound.numel() and sound.abs().max() > 1:
            print("warning: audio amplitude out of range, auto clipped.")
        if sound.dim() != 1:
            raise AssertionError("input tensor should be 1 dimensional.")
        self._events.audio(tag, sound.tolist(), int(sample_rate), _step(global_step), walltime)

    def add_pr_curve(self, tag, labels, predictions, global_step=None, num_thresholds=127, weights=None, walltime=None):
        """Precision and recall of a binary classifier: labels (0 or 1) and predictions (from 0 to 1)."""
        weights = None if weights is None else _numbers(weights)
        self._events.pr_curve(tag, _numbers(labels), _numbers(predictions), min(num_thresholds, 127), weights, _step(global_step), walltime)

    def add_pr_curve_raw(
        self, tag, true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts, precision, recall,
        global_step=None, num_thresholds=127, weights=None, walltime=None,
    ):  # fmt: skip
        """A curve by its counts. As in PyTorch, ``num_thresholds`` and ``weights`` are not needed: the curve has the rows' length."""
        rows = true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts, precision, recall
        self._events.pr_curve_raw(tag, [_numbers(row)[:127] for row in rows], _step(global_step), walltime)

    def add_text(self, tag, text_string, global_step=None, walltime=None):
        self._events.text(tag, text_string, _step(global_step), walltime)

    def add_graph(self, model, input_to_model=None, verbose=False, use_strict_trace=True):
        """The modules of a model. Data flow is not recorded, so the input is not needed."""
        nodes = []
        for name, module in model.named_modules():
            kind = type(module).__name__
            path = "/".join([type(model).__name__, *([] if not name else name.split("."))])
            if next(module.children(), None) is not None:
                path += f"/({kind})"
            count = sum(p.numel() for p in module.parameters())
            nodes.append((path, kind, [], [("parameters", str(count)), ("settings", module.extra_repr())]))
        if verbose:
            print("\n".join(f"{path} {kind}" for path, kind, *_ in nodes))
        self._events.graph(nodes)

    def add_embedding(self, mat, metadata=None, label_img=None, global_step=None, tag="default", metadata_header=None):
        """Points for TensorBoard's projector: one row of ``mat`` each, with labels (``metadata``) and pictures (``label_img``, which need Pillow)."""
        rows = mat.detach().cpu().tolist() if hasattr(mat, "detach") else [list(row) for row in mat]
        if not rows or not isinstance(rows[0], list) or isinstance(rows[0][0], list):
            raise AssertionError("mat should be 2D, where mat.size(0) is the number of data points")
        step = f"{_step(global_step):05}"
        place = "".join({"%": "%25", "/": "%2f", "\\": "%5c"}.get(c, c) for c in tag)
        folder = os.path.join(self.log_dir, step, place)
        os.makedirs(folder, exist_ok=True)
        lines = [f'  tensor_name: "{tag}:{step}"']
        if metadata is not None:
            if len(metadata) != len(rows):
                raise AssertionError("#labels should equal with #data points")
            if metadata_header and len(metadata_header) != len(metadata[0]):
                raise AssertionError("len of header must be equal to the number of columns in metadata")
            labels = ["\t".join(map(str, row)) for row in [metadata_header, *metadata]] if metadata_header else [str(label) for label in metadata]
            _write(folder, "metadata.tsv", labels)
            lines.append(f'  metadata_path: "{step}/{place}/metadata.tsv"')
        if label_img is not None:
            if label_img.shape[0] != len(rows):
                raise AssertionError("#images should equal with #data points")
            _sprite(label_img).save(os.path.join(folder, "sprite.png"))
            size = f"    single_image_dim: {label_img.shape[3]}", f"    single_image_dim: {label_img.shape[2]}"
            lines += ["  sprite {", f'    image_path: "{step}/{place}/sprite.png"', *size, "  }"]
        _write(folder, "tensors.tsv", ["\t".join(map(str, row)) for row in rows])
        self._projected = [*getattr(self, "_projected", []), "embeddings {", *lines, f'  tensor_path: "{step}/{place}/tensors.tsv"', "}"]
        _write(self.log_dir, "projector_config.pbtxt", self._projected)

    def add_hparams(self, hparam_dict, metric_dict, hparam_domain_discrete=None, run_name=None, global_step=None):
        if not isinstance(hparam_dict, dict) or not isinstance(metric_dict, dict):
            raise TypeError("hparam_dict and metric_dict should be dictionary.")
        plain = _plain(hparam_dict, hparam_domain_discrete)
        path = os.path.join(self.log_dir, run_name or str(datetime.datetime.now().timestamp()))
        events = _C.EventWriter(path, self._suffix, None)
        events.hparams(json.dumps(plain), [str(name) for name in metric_dict])
        for name, value in metric_dict.items():
            events.scalar(name, _scalar(value), _step(global_step), None)
        events.close()

    def flush(self):
        if self._writer is not None:
            self._writer.flush()
        for events in self._open.values():
            events.flush()

    def close(self):
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        for events in self._open.values():
            events.close()
        self._open = {}

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


class FileWriter:
    """Writes summaries of ``torch.utils.tensorboard.summary`` to the file of a `SummaryWriter`."""

    def __init__(self, writer):
        self._owner = writer if isinstance(writer, SummaryWriter) else SummaryWriter(writer)

    def get_logdir(self):
        return self._owner.log_dir

    def add_summary(self, summary, global_step=None, walltime=None):
        """Writes one of ``hparams``'s three summaries."""
        write = getattr(summary, "_write", None)
        if write is None:
            raise TypeError(f"add_summary: a {type(summary).__name__} is not supported; use the methods of SummaryWriter")
        write(self._owner._events)

    def flush(self):
        self._owner.flush()

    def close(self):
        self._owner.close()

    def reopen(self):
        pass
