"""``torch.types``: names for annotations."""

import os
from typing import IO, Sequence, Union

from ._C import Generator, Tensor, device, dtype  # noqa: F401
from ._size import Size  # noqa: F401

Number = Union[int, float, bool]
_int, _float, _bool, _dtype, _device, _size = int, float, bool, dtype, device, Union[Size, Sequence[int]]
_TensorOrTensors = Union[Tensor, Sequence[Tensor]]
_TensorOrTensorsOrGradEdge = Union[Tensor, Sequence[Tensor], "GradientEdge", Sequence["GradientEdge"]]  # noqa: F821
Device = Union[device, str, int, None]
Storage = object
FileLike = Union[str, os.PathLike, IO[bytes]]
