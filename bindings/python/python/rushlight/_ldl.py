"""``torch.linalg.ldl_factor`` and its relatives for complex matrices, symmetric or Hermitian: P L D L^T P^T, by the pivots of Bunch and Kaufman.

The compact form and the pivots are LAPACK's (``sytrf`` and ``hetrf`` of the lower triangle): D is made of blocks of one or two rows, and a negative pivot belongs
to a block of two. The factorisation goes column by column on the CPU, with the updates of the rest as tensor ops.
"""

import math

from . import _C

_torch = _C._torch
_ALPHA = (1 + math.sqrt(17)) / 8


def _check(A, name):
    if A.dim() < 2 or A.shape[-1] != A.shape[-2]:
        raise RuntimeError(f"{name}: A must be batches of square matrices, but they are {' by '.join(map(str, A.shape[-2:]))} matrices")


def _wide(A):
    return A.detach().to("cpu", _C.complex128)


def _largest(column):
    sizes = column.abs()
    at = int(sizes.argmax())
    return at, float(sizes[at])


def _swap(A, k, kp, step, hermitian):
    """Exchanges rows and columns of the rest of the lower triangle."""
    kk = k + step - 1
    turned = (lambda v: v.conj().clone()) if hermitian else (lambda v: v.clone())
    if kp + 1 < A.shape[0]:
        kept = A[kp + 1:, kk].clone()
        A[kp + 1:, kk] = A[kp + 1:, kp]
        A[kp + 1:, kp] = kept
    kept = turned(A[kk + 1:kp, kk])
    A[kk + 1:kp, kk] = turned(A[kp, kk + 1:kp])
    A[kp, kk + 1:kp] = kept
    if hermitian:
        A[kp, kk] = A[kp, kk].conj().clone()
    kept = A[kk, kk].clone()
    A[kk, kk] = A[kp, kp]
    A[kp, kp] = kept
    if step == 2:
        kept = A[k + 1, k].clone()
        A[k + 1, k] = A[kp, k]
        A[kp, k] = kept


def _factor(A, hermitian):
    """Factors one matrix in place. Returns the pivots, and the number of the first zero in D or 0."""
    n, pivots, info, k = A.shape[0], [0] * A.shape[0], 0, 0
    while k < n:
        if hermitian:
            A[k, k] = A[k, k].real.to(A.dtype)
        step, kp = 1, k
        size = abs(A[k, k].item())
        place, column = _largest(A[k + 1:, k]) if k + 1 < n else (0, 0.0)
        top = k + 1 + place
        if max(size, column) == 0 or math.isnan(size):
            info = info or k + 1
            pivots[k] = k + 1
            k += 1
            continue
        if size < _ALPHA * column:
            row = _largest(A[top, k:top])[1]
            if top + 1 < n:
                row = max(row, _largest(A[top + 1:, top])[1])
            if size < _ALPHA * column * (column / row):
                kp = top
                step = 1 if abs(A[top, top].item()) >= _ALPHA * row else 2
        if kp != k + step - 1:
            _swap(A, k, kp, step, hermitian)
        rest = k + step
        if step == 1:
            if rest < n:
                x = A[rest:, k].clone()
                other = x.conj() if hermitian else x
                A[rest:, rest:] -= x.unsqueeze(1) * other.unsqueeze(0) / A[k, k]
                A[rest:, k] = x / A[k, k]
        elif rest < n:
            D = A[k:rest, k:rest].clone()
            D[0, 1] = D[1, 0].conj() if hermitian else D[1, 0]
            X = A[rest:, k:rest].clone()
            W = _solve_two(D, X)
            A[rest:, rest:] -= W @ (X.mH if hermitian else X.mT)
            A[rest:, k:rest] = W
        for i in range(step):
            pivots[k + i] = kp + 1 if step == 1 else -(kp + 1)
        k = rest
    return pivots, info


def _solve_two(D, X):
    """X times the inverse of a block of two rows."""
    a, b, c, d = D[0, 0], D[0, 1], D[1, 0], D[1, 1]
    determinant = a * d - b * c
    x, y = X[:, 0], X[:, 1]
    return _torch.stack([(x * d - y * c) / determinant, (y * a - x * b) / determinant], 1)


def ldl_factor_ex(A, *, hermitian=False, check_errors=False):
    """The factors of symmetric (Hermitian) matrices in compact form, their pivots, and 0 or the place of a zero in D."""
    from .return_types import of

    _check(A, "torch.linalg.ldl_factor_ex")
    flat = _wide(A).reshape(math.prod(A.shape[:-2]), *A.shape[-2:]).clone()
    pivots, infos = [], []
    for matrix in flat:
        places, info = _factor(matrix, hermitian)
        pivots.append(places)
        infos.append(info)
    if check_errors and any(infos):
        raise _C.LinAlgError(f"torch.linalg.ldl_factor_ex: The diagonal element {max(infos)} of D is zero: the factorization cannot be used to solve a system")
    made = (
        flat.tril().reshape(A.shape).to(A.device, A.dtype).mT.contiguous().mT,
        _C.tensor(pivots, dtype=_C.int32, device=A.device).reshape(A.shape[:-1]),
        _C.tensor(infos, dtype=_C.int32, device=A.device).reshape(A.shape[:-2]),
    )
    return of("linalg_ldl_factor_ex", "LD pivots info")(made)


def ldl_factor(A, *, hermitian=False):
    """The factors of symmetric (Hermitian) matrices in compact form, and their pivots."""
    from .return_types import of

    LD, pivots, _ = ldl_factor_ex(A, hermitian=hermitian, check_errors=True)
    return of("linalg_ldl_factor", "LD pivots")((LD, pivots))


def _exchange(B, a, b):
    if a != b:
        kept = B[a].clone()
        B[a] = B[b]
        B[b] = kept


def _solve(A, pivots, B, hermitian):
    """Solves one system in place of its right side."""
    n, k = A.shape[0], 0
    turned = (lambda v: v.conj()) if hermitian else (lambda v: v)
    while k < n:
        if pivots[k] > 0:
            _exchange(B, k, pivots[k] - 1)
            B[k + 1:] -= A[k + 1:, k].unsqueeze(1) * B[k].unsqueeze(0)
            B[k] = B[k] / A[k, k]
            k += 1
        else:
            _exchange(B, k + 1, -pivots[k] - 1)
            B[k + 2:] -= A[k + 2:, k:k + 2] @ B[k:k + 2]
            below = A[k + 1, k]
            above = turned(below)
            first, second = A[k, k] / above, A[k + 1, k + 1] / below
            x, y = B[k] / above, B[k + 1] / below
            scale = first * second - 1
            B[k], B[k + 1] = (second * x - y) / scale, (first * y - x) / scale
            k += 2
    k = n - 1
    while k >= 0:
        if pivots[k] > 0:
            B[k] -= (turned(A[k + 1:, k]).unsqueeze(0) @ B[k + 1:]).squeeze(0)
            _exchange(B, k, pivots[k] - 1)
            k -= 1
        else:
            B[k - 1:k + 1] -= turned(A[k + 1:, k - 1:k + 1]).mT @ B[k + 1:]
            _exchange(B, k, -pivots[k] - 1)
            k -= 2


def ldl_solve(LD, pivots, B, *, hermitian=False):
    """The solution of A X = B for a matrix that ``ldl_factor`` has factored."""
    _check(LD, "torch.linalg.ldl_solve")
    if B.dim() < 2 or B.shape[-2] != LD.shape[-1]:
        raise RuntimeError(f"torch.linalg.ldl_solve: Incompatible shapes of LD and B: {tuple(LD.shape)} and {tuple(B.shape)}")
    if pivots.dtype not in (_C.int32, _C.int64) or pivots.shape != LD.shape[:-1]:
        raise RuntimeError(f"torch.linalg.ldl_solve: Expected LD.shape[:-1] and pivots.shape to be the same, and integer pivots, got {tuple(pivots.shape)}, {pivots.dtype}")
    if LD.dtype != B.dtype:
        raise RuntimeError(f"torch.linalg.ldl_solve: LD and B must have the same dtype, got {LD.dtype} and {B.dtype}")
    from . import broadcast_shapes

    batch = broadcast_shapes(tuple(LD.shape[:-2]), tuple(B.shape[:-2]))
    n, columns = B.shape[-2:]
    count = math.prod(batch)
    left = _wide(LD).expand(*batch, n, n).reshape(count, n, n)
    places = pivots.expand(*batch, n).reshape(count, n).tolist()
    made = _wide(B).expand(*batch, n, columns).reshape(count, n, columns).clone()
    for matrix, at, right in zip(left, places, made):
        if n and columns:
            _solve(matrix, at, right, hermitian)
    return made.reshape(*batch, n, columns).to(B.device, B.dtype).mT.contiguous().mT
