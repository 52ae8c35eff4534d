"""Names for the types of arguments."""

from typing import Tuple, Union

from .. import _C

Tensor = _C.Tensor

_scalar_or_tuple_any_t = Union[int, Tuple[int, ...]]
_scalar_or_tuple_1_t = Union[int, Tuple[int]]
_scalar_or_tuple_2_t = Union[int, Tuple[int, int]]
_scalar_or_tuple_3_t = Union[int, Tuple[int, int, int]]
_size_any_t = _scalar_or_tuple_any_t
_size_1_t = _scalar_or_tuple_1_t
_size_2_t = _scalar_or_tuple_2_t
_size_3_t = _scalar_or_tuple_3_t
_size_any_opt_t = _size_2_opt_t = _size_3_opt_t = Union[int, None, Tuple[Union[int, None], ...]]
_ratio_2_t = Union[float, Tuple[float, float]]
_ratio_3_t = Union[float, Tuple[float, float, float]]
_ratio_any_t = Union[float, Tuple[float, ...]]
_tensor_list_t = Union[Tensor, Tuple[Tensor, ...]]
