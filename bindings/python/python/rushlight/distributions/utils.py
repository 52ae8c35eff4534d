"""Helpers shared by distributions."""

import functools

from .. import _C

__all__ = [
    "broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits", "tril_matrix_to_vec", "vec_to_tril_matrix",
]

Tensor, _torch, _nn = _C.Tensor, _C._torch, _C._nn
euler_constant = 0.57721566490153286060


def broadcast_all(*values):
    """Tensors and numbers as tensors of one size."""
    if not all(isinstance(v, (Tensor, int, float)) or hasattr(v, "__torch_function__") for v in values):
        raise ValueError("Input arguments must all be instances of Number, torch.Tensor or objects implementing __torch_function__.")
    like = next((v for v in values if isinstance(v, Tensor)), None)
    made = {"dtype": _C.get_default_dtype()} if like is None else {"dtype": like.dtype, "device": like.device}
    from .. import broadcast_tensors

    return broadcast_tensors(*[v if isinstance(v, Tensor) or hasattr(v, "__torch_function__") else _C.tensor(v, **made) for v in values])


def _standard_normal(shape, dtype, device):
    """Standard normal samples."""
    return _torch.randn(list(shape), dtype=dtype, device=device)


def _sum_rightmost(value, dim):
    """The sum over the last dimensions."""
    return value if dim == 0 else value.reshape(*value.shape[: value.dim() - dim], -1).sum(-1)


def logits_to_probs(logits, is_binary=False):
    """Probabilities of logits."""
    return logits.sigmoid() if is_binary else _nn.softmax(logits, -1)


def _eps(dtype):
    return {_C.float64: 2.0**-52, _C.float16: 2.0**-10, _C.bfloat16: 2.0**-7}.get(dtype, 2.0**-23)


def clamp_probs(probs):
    """Probabilities clamped away from 0 and 1."""
    eps = _eps(probs.dtype)
    return probs.clamp(eps, 1 - eps)


def probs_to_logits(probs, is_binary=False):
    """Logits of probabilities."""
    clamped = clamp_probs(probs)
    return clamped.log() - (-clamped).log1p() if is_binary else clamped.log()


class lazy_property:
    """An attribute that is computed on first use."""

    def __init__(self, wrapped):
        self.wrapped = wrapped
        functools.update_wrapper(self, wrapped)

    def __get__(self, instance, obj_type=None):
        if instance is None:
            return _LazyProperty(self.wrapped)
        with _recording():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


class _LazyProperty(property):
    """The property when accessed on the class."""

    def __init__(self, wrapped):
        super().__init__(wrapped)


class _recording:
    def __enter__(self):
        self._before = _C._set_grad_enabled(True)

    def __exit__(self, *exception):
        _C._set_grad_enabled(self._before)


def tril_matrix_to_vec(mat, diag=0):
    """The lower triangles of matrices as vectors, row by row."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows = _torch.arange(n, device=mat.device)
    return mat[..., rows.unsqueeze(0) < rows.unsqueeze(1) + (diag + 1)]


def vec_to_tril_matrix(vec, diag=0):
    """Vectors as the lower triangles of matrices."""
    n = int((-(1 + 2 * diag) + ((1 + 2 * diag) ** 2 + 8 * vec.shape[-1] + 4 * abs(diag) * (diag + 1)) ** 0.5) / 2 + 0.5)
    made = _torch.zeros([*vec.shape[:-1], n, n], dtype=vec.dtype, device=vec.device)
    rows = _torch.arange(n, device=vec.device)
    made[..., rows.unsqueeze(0) < rows.unsqueeze(1) + (diag + 1)] = vec
    return made
