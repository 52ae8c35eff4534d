"""Sequences of different lengths: ``torch.nn.utils.rnn``."""

from __future__ import annotations

from collections import namedtuple

from ... import _C

__all__ = [
    "PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence", "pad_sequence",
    "unpack_sequence", "unpad_sequence",
]

Tensor = _C.Tensor
_torch = _C._torch

PackedSequence_ = namedtuple(
    "PackedSequence_", ["data", "batch_sizes", "sorted_indices", "unsorted_indices"], defaults=(None, None, None)
)


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The inverse of a permutation."""
    if permutation is None:
        return None
    return _torch.empty_like(permutation).scatter_(0, permutation, _torch.arange(permutation.numel(), device=permutation.device))


class PackedSequence(PackedSequence_):
    """Packed sequences: all first steps, then all second steps, and so on; a step has one row per sequence that is long enough.

    ``pack_padded_sequence`` and ``pack_sequence`` make them; recurrent layers take and return them.
    """

    def __new__(cls, data, batch_sizes=None, sorted_indices=None, unsorted_indices=None):
        if batch_sizes is None:
            if not (isinstance(data, (list, tuple)) and len(data) == 2):
                raise ValueError("PackedSequence: expected batch_sizes, or a pair of data and batch_sizes")
            data, batch_sizes = data
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes.device.type != "cpu":
            raise ValueError(f"PackedSequence: batch_sizes should always be on the CPU, got {batch_sizes.device}")
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args, **kwargs):
        """The data on another device or with another dtype."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self

        def moved(indices):
            return None if indices is None else indices.to(data.device)

        return type(self)(data, self.batch_sizes, moved(self.sorted_indices), moved(self.unsorted_indices))

    def cuda(self, *args, **kwargs):
        """Moves the data to an accelerator."""
        return self.to(_C.tensor((), dtype=self.data.dtype).cuda(*args, **kwargs).device)

    def cpu(self):
        """Moves the data to the CPU."""
        return self.to(device="cpu")

    def double(self):
        return self.to(dtype=_C.float64)

    def float(self):
        return self.to(dtype=_C.float32)

    def half(self):
        return self.to(dtype=_C.float16)

    def long(self):
        return self.to(dtype=_C.int64)

    def int(self):
        return self.to(dtype=_C.int32)

    def short(self):
        return self.to(dtype=_C.int16)

    def char(self):
        return self.to(dtype=_C.int8)

    def byte(self):
        return self.to(dtype=_C.uint8)

    @property
    def is_cuda(self) -> bool:
        return self.data.is_cuda

    def is_pinned(self) -> bool:
        """Whether the data is in pinned memory."""
        return self.data.is_pinned()

    def pin_memory(self):
        """The data in pinned memory."""
        return type(self)(self.data.pin_memory(), self.batch_sizes, self.sorted_indices, self.unsorted_indices)


def _places(batch_sizes: list, width: int, device) -> Tensor:
    """Rows of a padded tensor ``[length, batch]``, flattened, in the order of packed data."""
    rows = [step * width + i for step, size in enumerate(batch_sizes) for i in range(size)]
    return _C.tensor(rows, dtype=_C.int64, device=device)


def pack_padded_sequence(input: Tensor, lengths, batch_first: bool = False, enforce_sorted: bool = True) -> PackedSequence:
    """Packs sequences that were padded to one length.

    >>> import rushlight as torch
    >>> packed = pack_padded_sequence(torch.tensor([[1, 2], [3, 0]]), [2, 1], batch_first=True)
    >>> packed.data, packed.batch_sizes
    (tensor([1, 3, 2]), tensor([2, 1]))
    """
    lengths = _C.as_tensor(lengths, _C.int64)
    if lengths.device.type != "cpu":
        raise RuntimeError("'lengths' argument should be a 1D CPU int64 tensor")
    sorted_indices = None
    if not enforce_sorted:
        lengths, sorted_indices = lengths.sort(descending=True, stable=True)
        sorted_indices = sorted_indices.to(input.device)
        input = input.index_select(0 if batch_first else 1, sorted_indices)
    sizes = lengths.tolist()
    steps = input.transpose(0, 1) if batch_first else input
    if len(sizes) != steps.shape[1]:
        raise RuntimeError(f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)} (batch_size={steps.shape[1]})")
    if not sizes:
        raise RuntimeError("Cannot pack empty tensors.")
    if min(sizes) <= 0:
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0")
    if any(a < b for a, b in zip(sizes, sizes[1:])):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass `enforce_sorted=False` to "
            "pack_padded_sequence and/or pack_sequence to sidestep this requirement if you do not need ONNX exportability."
        )
    if sizes[0] > steps.shape[0]:
        raise RuntimeError(f"Expected lengths of at most {steps.shape[0]}, the padded length, got {sizes[0]}")
    batch_sizes = [sum(size > step for size in sizes) for step in range(sizes[0])]
    rows = steps.reshape(steps.shape[0] * steps.shape[1], *steps.shape[2:])
    data = rows.index_select(0, _places(batch_sizes, len(sizes), input.device))
    return PackedSequence(data, _C.tensor(batch_sizes, dtype=_C.int64), sorted_indices, None)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
):
    """The padded sequences of a packed one, and their lengths."""
    batch_sizes = sequence.batch_sizes.tolist()
    steps, width = len(batch_sizes), batch_sizes[0]
    if total_length is not None and total_length < steps:
        raise ValueError(
            f"Expected total_length to be at least the length of the longest sequence in input, but got total_length={total_length} "
            f"and max sequence length being {steps}"
        )
    length = steps if total_length is None else total_length
    lengths = [sum(size > i for size in batch_sizes) for i in range(width)]
    data = sequence.data
    padded = _torch.full((length * width, *data.shape[1:]), padding_value, dtype=data.dtype, device=data.device)
    padded = padded.index_copy(0, _places(batch_sizes, width, data.device), data)
    padded = padded.reshape(length, width, *data.shape[1:])
    lengths = _C.tensor(lengths, dtype=_C.int64)
    if batch_first:
        padded = padded.transpose(0, 1)
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(0 if batch_first else 1, sequence.unsorted_indices)
        lengths = lengths[sequence.unsorted_indices.cpu()]
    return padded, lengths


def pad_sequence(
    sequences, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Tensors of different lengths stacked and padded.

    >>> import rushlight as torch
    >>> pad_sequence([torch.tensor([1, 2]), torch.tensor([3])], batch_first=True)
    tensor([[1, 2],
            [3, 0]])
    """
    if isinstance(sequences, Tensor):
        sequences = sequences.unbind(0)
    elif not hasattr(sequences, "__iter__"):
        raise RuntimeError(f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}")
    sequences = tuple(sequences)
    if padding_side not in ("left", "right"):
        raise ValueError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    if not sequences:
        raise RuntimeError("pad_sequence: received an empty list of sequences")
    rest = sequences[0].shape[1:]
    for sequence in sequences:
        if sequence.shape[1:] != rest:
            raise RuntimeError(
                f"pad_sequence: sequences may differ in their first dimension alone, got {sequences[0].shape} and {sequence.shape}"
            )
    length = max(sequence.shape[0] for sequence in sequences)
    padded = []
    for sequence in sequences:
        missing = length - sequence.shape[0]
        sides = (missing, 0) if padding_side == "left" else (0, missing)
        padded.append(_C._nn.pad(sequence, [*(0, 0) * len(rest), *sides], "constant", padding_value) if missing else sequence)
    return _torch.stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list:
    """The sequences of a padded tensor, each cut to its length."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [sequence[:length] for sequence, length in zip(padded_sequences, _C.as_tensor(lengths).tolist())]


def pack_sequence(sequences, enforce_sorted: bool = True) -> PackedSequence:
    """Packs tensors of different lengths."""
    lengths = [sequence.size(0) for sequence in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list:
    """The tensors of a packed sequence."""
    return unpad_sequence(*pad_packed_sequence(packed_sequences, batch_first=True), batch_first=True)
