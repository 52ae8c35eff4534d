"""Built-in parametrizations: weight norm, spectral norm, orthogonal matrices."""

from __future__ import annotations

from ... import _C
from ..modules.module import Module
from . import parametrize
from .weight_norm import norm_except_dim

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

Tensor = _C.Tensor
_torch = _C._torch
_linalg = _C._linalg
_normalize = _C._nn.normalize


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norm_except_dim(weight_v, 2, self.dim))

    def right_inverse(self, weight: Tensor):
        return norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int = 0) -> Module:
    """Makes a weight the product of its length (``original0``) and direction (``original1``).

    >>> import rushlight as torch
    >>> layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 2))
    >>> layer.parametrizations.weight.original0.shape
    torch.Size([2, 1])
    """
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def from_old_names(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        g, v = f"{prefix}{name}_g", f"{prefix}{name}_v"
        if g in state_dict and v in state_dict:
            state_dict[f"{prefix}parametrizations.{name}.original0"] = state_dict.pop(g)
            state_dict[f"{prefix}parametrizations.{name}.original1"] = state_dict.pop(v)

    module._register_load_state_dict_pre_hook(from_old_names)
    return module


class _SpectralNorm(Module):
    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        if not -weight.dim() <= dim < weight.dim():
            raise IndexError(f"Dimension out of range (expected to be in range of [-{weight.dim()}, {weight.dim() - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
        self.dim = dim if dim >= 0 else dim + weight.dim()
        self.eps = eps
        if weight.dim() > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._matrix(weight.detach())
            u = matrix.new_empty(matrix.size(0)).normal_(0, 1)
            v = matrix.new_empty(matrix.size(1)).normal_(0, 1)
            self.register_buffer("_u", _normalize(u, dim=0, eps=eps))
            self.register_buffer("_v", _normalize(v, dim=0, eps=eps))
            # Starts near the singular vectors.
            self._iterate(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).flatten(1)

    def _iterate(self, matrix: Tensor, times: int) -> None:
        recording = _C._set_grad_enabled(False)
        try:
            for _ in range(times):
                self._u.copy_(_normalize(matrix.mv(self._v), dim=0, eps=self.eps))
                self._v.copy_(_normalize(matrix.t().mv(self._u), dim=0, eps=self.eps))
        finally:
            _C._set_grad_enabled(recording)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.dim() == 1:
            return _normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix, self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()
        return weight / u.dot(matrix.mv(v))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def _is_transposed(module: Module) -> bool:
    from ..modules.conv import _ConvTransposeNd

    return isinstance(module, _ConvTransposeNd)


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divides a weight by its largest singular value."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if dim is None:
        dim = 1 if _is_transposed(module) else 0
    parametrize.register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
    return module


def _nearby_orthogonal(a: Tensor) -> Tensor:
    """Orthonormal columns with the span of a matrix's columns."""
    q, r = _linalg.qr(a)
    return q * r.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


def _is_orthogonal(q: Tensor) -> bool:
    eps = 10 * q.size(-2) * (2.0**-52 if q.dtype == _C.float64 else 2.0**-23)
    identity = _torch.eye(q.size(-1), dtype=q.dtype, device=q.device)
    return bool((q.mT @ q - identity).abs().max() <= eps)


def _reflectors(q: Tensor) -> Tensor:
    """Householder vectors of a matrix, below the diagonal; on it, their signs."""
    r, made = q.clone(), _torch.zeros_like(q)
    rows, cols = q.shape
    for j in range(cols):
        x = r[j:, j].clone()
        if float(x[1:].abs().sum()) == 0.0:
            # Nothing to reflect: the sign undoes the reflection of a zero vector.
            made[j, j] = -1.0 if float(x[0]) >= 0 else 1.0
            continue
        end = -x.norm() if float(x[0]) >= 0 else x.norm()
        x[0] = x[0] - end
        v = x / x[0]
        made[j + 1 :, j] = v[1:]
        made[j, j] = end.sign()
        r[j:, j:] = r[j:, j:] - (2.0 / v.dot(v)) * _torch.outer(v, v @ r[j:, j:])
    return made


def _product(a: Tensor) -> Tensor:
    """The first columns of the product of Householder reflections."""
    rows, cols = a.shape
    made = _torch.eye(rows, cols, dtype=a.dtype, device=a.device)
    unit = _torch.eye(rows, cols, dtype=a.dtype, device=a.device)
    for j in range(cols - 1, -1, -1):
        v = unit[:, j] + a[:, j]
        made = made - (2.0 / v.dot(v)) * _torch.outer(v, v @ made)
    return made


class _Orthogonal(Module):
    def __init__(self, weight: Tensor, orthogonal_map: str, *, use_trivialization: bool = True) -> None:
        super().__init__()
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        n, k = X.size(-2), X.size(-1)
        transposed = n < k
        if transposed:
            X, n, k = X.mT, k, n
        if self.orthogonal_map == "householder":
            Q = _product(X.tril(-1)) * X.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2).detach()
        else:
            X = X.tril()
            if n != k:
                X = _torch.cat([X, _torch.zeros((n, n - k), dtype=X.dtype, device=X.device)], -1)
            A = X - X.mT
            if self.orthogonal_map == "matrix_exp":
                Q = _torch.matrix_exp(A)
            else:
                identity = _torch.eye(n, dtype=A.dtype, device=A.device)
                Q = _linalg.solve(identity - 0.5 * A, identity + 0.5 * A)
            if n != k:
                Q = Q[..., :k]
        if self._buffers.get("base") is not None:
            Q = self.base @ Q
        return Q.mT if transposed else Q

    def right_inverse(self, Q: Tensor) -> Tensor:
        if Q.shape != self.shape:
            raise ValueError(f"Expected a matrix of shape {self.shape}. Got a tensor of shape {Q.shape}.")
        given = Q
        n, k = Q.size(-2), Q.size(-1)
        transposed = n < k
        if transposed:
            Q, n, k = Q.mT, k, n
        if "base" not in self._buffers:
            if self.orthogonal_map != "householder":
                raise NotImplementedError(
                    "It is not possible to assign to the matrix exponential or the Cayley parametrizations when use_trivialization=False."
                )
            made = _reflectors(Q)
            return made.mT if transposed else made
        if n == k:
            Q = Q.clone() if _is_orthogonal(Q) else _nearby_orthogonal(Q)
        else:
            rest = _torch.randn((n, n - k), dtype=Q.dtype, device=Q.device)
            Q = _nearby_orthogonal(_torch.cat([Q, rest], -1))
        self.base = Q
        start = _torch.zeros_like(given)
        start.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        return start


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """Makes a matrix orthogonal, or its rows or columns orthonormal."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.dim() != 2:
        raise ValueError(f"Expected a matrix. Got a tensor of {weight.dim()} dimensions.")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.size(-2) == weight.size(-1) else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}')
    made = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    parametrize.register_parametrization(module, name, made, unsafe=True)
    return module
