"""Factorisations of complex matrices, and eigenvalues of general ones.

Householder steps over a batch reduce complex matrices to real tridiagonal or bidiagonal ones, whose factors the compiled part computes. All runs in double
precision; derivatives are PyTorch's formulas over the factors and can be differentiated again.
"""

import cmath
import math

from . import _C
from ._C import LinAlgError
from .autograd.function import Function
from .overrides import overridable

Tensor = _C.Tensor
_torch, _linalg = _C._torch, _C._linalg


def adjoint(x):
    return x.transpose(-2, -1).conj()


def _flat(a):
    """A batch of matrices in double precision, as a copy on the CPU, which factorises."""
    return a.detach().to("cpu", _C.complex128).reshape(math.prod(a.shape[:-2]), *a.shape[-2:]).clone()


def _back(x, like, *tail):
    dtype = like.dtype if x.is_complex() else _C.float32 if like.dtype == _C.complex64 else _C.float64
    return x.to(like.device, dtype).reshape(*like.shape[:-2], *tail)


def _eye(rows, columns, like):
    return _torch.eye(rows, columns, dtype=_C.complex128).expand(like.shape[0], rows, columns).clone()


def _check(call, a, square=False):
    if a.dim() < 2:
        raise RuntimeError(f"{call}: The input tensor A must have at least 2 dimensions, got shape {list(a.shape)}")
    if square and a.shape[-1] != a.shape[-2]:
        raise RuntimeError(f"{call}: A must be batches of square matrices, but they are {a.shape[-2]} by {a.shape[-1]} matrices")


# Factorisations, without derivatives.


def _reflector(x):
    """Of vectors [B, n]: the vector v with a one in front, its factor tau and the real beta, so that (1 - conj(tau) v v^H) x = beta e."""
    first, rest = x[:, 0], x[:, 1:]
    norm = (rest.abs().square().sum(1) + first.abs().square()).sqrt()
    beta = _torch.where(first.real >= 0, -norm, norm)
    trivial = (rest.abs().sum(1) == 0) & (first.imag == 0)
    safe = _torch.where(trivial, _torch.ones_like(beta), beta)
    tau = _torch.where(trivial, _torch.zeros_like(first), (beta - first) / safe)
    divisor = _torch.where(trivial, _torch.ones_like(first), first - beta)
    vector = _torch.cat([_torch.ones_like(first).unsqueeze(1), rest / divisor.unsqueeze(1)], 1)
    return vector, tau, _torch.where(trivial, first.real, beta)


def _from_left(a, vector, factor):
    """(1 - factor v v^H) a, in place."""
    a -= factor[:, None, None] * (vector[:, :, None] * (vector.conj()[:, None, :] @ a))


def _from_right(a, vector, factor):
    """a (1 - factor v v^H), in place."""
    a -= factor[:, None, None] * ((a @ vector[:, :, None]) * vector.conj()[:, None, :])


def _product(reflectors, size, columns, like):
    """The first columns of the product of reflections; each has its first row."""
    q = _eye(size, columns, like)
    for start, vector, tau in reversed(reflectors):
        _from_left(q[:, start:], vector, tau)
    return q


def _qr(a):
    """The packed factors, their taus and the reflectors."""
    reflectors, taus = [], []
    for j in range(min(a.shape[-2:])):
        vector, tau, beta = _reflector(a[:, j:, j].clone())
        _from_left(a[:, j:, j + 1:], vector, tau.conj())
        a[:, j, j] = beta.to(a.dtype)
        a[:, j + 1:, j] = vector[:, 1:]
        reflectors.append((j, vector, tau))
        taus.append(tau)
    return a, (_torch.stack(taus, 1) if taus else a.new_zeros(a.shape[0], 0)), reflectors


def geqrf(a):
    """The packed QR factors and the factors of their reflectors."""
    from .return_types import of

    _check("geqrf", a)
    packed, taus, _ = _qr(_flat(a))
    return of("geqrf", "a tau")((_back(packed, a, *a.shape[-2:]), _back(taus, a, taus.shape[1])))


def _lu_factor(a):
    work = _flat(a)
    count, m, n = work.shape
    pivots, info = _torch.zeros((count, min(m, n)), dtype=_C.int64), _torch.zeros(count, dtype=_C.int64)
    every = _torch.arange(count)
    for j in range(min(m, n)):
        column = work[:, j:, j]
        place = (column.real.abs() + column.imag.abs()).argmax(1) + j
        pivots[:, j] = place + 1
        upper, lower = work[:, j].clone(), work[every, place].clone()
        work[every, place] = upper
        work[:, j] = lower
        pivot = work[:, j, j].clone()
        zero = pivot == 0
        info = _torch.where(zero & (info == 0), j + 1, info)
        factors = work[:, j + 1:, j] / _torch.where(zero, _torch.ones_like(pivot), pivot).unsqueeze(1)
        work[:, j + 1:, j] = factors
        work[:, j + 1:, j + 1:] -= factors.unsqueeze(2) * work[:, j, j + 1:].clone().unsqueeze(1)
    lead = a.shape[:-2]
    return _back(work, a, m, n), pivots.to(a.device, _C.int32).reshape(*lead, min(m, n)), info.to(a.device, _C.int32).reshape(lead)


def _permutation(pivots, m, dtype):
    """The matrices P of row exchanges."""
    flat = pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1]).tolist()
    rows = []
    for exchanges in flat:
        order = list(range(m))
        for i, with_ in enumerate(exchanges):
            order[i], order[with_ - 1] = order[with_ - 1], order[i]
        rows.append(order)
    order = _C.tensor(rows, dtype=_C.int64, device=pivots.device).reshape(*pivots.shape[:-1], 1, m)
    return (_torch.arange(m, device=pivots.device).reshape(m, 1) == order).to(dtype)


class _Lu(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(ctx, a):
        packed, pivots, info = _lu_factor(a)
        ctx.save_for_backward(packed)
        ctx.pivots = pivots
        ctx.mark_non_differentiable(pivots, info)
        return packed, pivots, info

    @staticmethod
    def backward(ctx, grad, *rest):
        (packed,) = ctx.saved_tensors
        p, l, u = lu_unpack(packed, ctx.pivots)
        (m, k), n = l.shape[-2:], u.shape[-1]
        dl, du = grad[..., :k].tril(-1), grad[..., :k, :].triu()
        l1, u1 = l[..., :k, :], u[..., :k]

        def by_upper(b):
            return _linalg.solve_triangular(adjoint(u1), b, upper=False, left=False)

        lower, upper = adjoint(l1) @ dl[..., :k, :], du[..., :k] @ adjoint(u1)
        if n > k:
            lower = lower - du[..., k:] @ adjoint(u[..., k:])
        if m > k:
            upper = upper - adjoint(l[..., k:, :]) @ dl[..., k:, :]
        out = by_upper(_linalg.solve_triangular(adjoint(l1), lower.tril(-1) + upper.triu(), upper=True, unitriangular=True))
        if n > k:
            out = _torch.cat([out, _linalg.solve_triangular(adjoint(l1), du[..., k:], upper=True, unitriangular=True)], -1)
        if m > k:
            out = _torch.cat([out, by_upper(dl[..., k:, :])], -2)
        return p @ out


def lu_factor(a, *, pivot=True):
    from .return_types import of

    packed, pivots, info = lu_factor_ex(a, pivot=pivot)
    return of("lu_factor", "LU pivots")((packed, pivots))


def lu_factor_ex(a, *, pivot=True, check_errors=False):
    from .return_types import of

    _check("linalg.lu_factor", a)
    if not pivot:
        raise RuntimeError("linalg.lu_factor: LU without pivoting is not implemented on the CPU")
    found = _Lu.apply(a)
    if check_errors and bool((found[2] != 0).any()):
        raise LinAlgError(f"linalg.lu_factor_ex: U has a zero on its diagonal; the matrix is singular (info {found[2].tolist()})")
    return of("lu_factor_ex", "LU pivots info")(found)


def lu_unpack(packed, pivots, unpack_data=True, unpack_pivots=True):
    m, n = packed.shape[-2:]
    k = min(m, n)
    l = packed[..., :k].tril(-1) + _torch.eye(m, k, dtype=packed.dtype, device=packed.device)
    return _permutation(pivots, m, packed.dtype), l, packed[..., :k, :].triu()


def lu(a, *, pivot=True):
    from .return_types import of

    return of("lu", "P L U")(lu_unpack(*lu_factor(a, pivot=pivot)))


def lu_solve(packed, pivots, b, *, left=True, adjoint=False):
    if not left:
        return _adjoint(lu_solve(packed, pivots, _adjoint(b), left=True, adjoint=not adjoint))
    p = _permutation(pivots, packed.shape[-2], packed.dtype)
    if adjoint:
        turned = _adjoint(packed)
        inner = _linalg.solve_triangular(turned, b, upper=False)
        return p @ _linalg.solve_triangular(turned, inner, upper=True, unitriangular=True)
    inner = _linalg.solve_triangular(packed, p.transpose(-2, -1) @ b, upper=False, unitriangular=True)
    return _linalg.solve_triangular(packed, inner, upper=True)


_adjoint = adjoint


class _Cholesky(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(ctx, a):
        work = _flat(a)
        n = work.shape[-1]
        out = _torch.zeros_like(work)
        for j in range(n):
            column = work[:, j:, j] - (out[:, j:, :j] @ out[:, j, :j].conj().unsqueeze(2)).squeeze(2)
            pivot = column[:, 0].real
            if not bool((pivot > 0).all()):
                at = int((~(pivot > 0)).nonzero()[0])
                where = f"(Batch element {at}): " if a.dim() > 2 else ""
                raise LinAlgError(
                    f"linalg.cholesky: {where}The factorization could not be completed because the input is not positive-definite (the leading minor of order {j + 1} is not positive-definite)."
                )
            out[:, j:, j] = column / pivot.sqrt().unsqueeze(1)
        factor = _back(out, a, n, n)
        ctx.save_for_backward(factor)
        return factor

    @staticmethod
    def backward(ctx, grad):
        (l,) = ctx.saved_tensors
        inner = (adjoint(l) @ grad).tril()
        inner = (inner + inner.tril(-1)) * 0.5
        inner = (inner + adjoint(inner)) * 0.5
        left = _linalg.solve_triangular(adjoint(l), inner, upper=True)
        return _linalg.solve_triangular(l, left, upper=False, left=False)


def cholesky(a, *, upper=False):
    _check("linalg.cholesky", a, True)
    return adjoint(_Cholesky.apply(adjoint(a))) if upper else _Cholesky.apply(a)


class _Qr(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(ctx, a, complete):
        packed, _, reflectors = _qr(_flat(a))
        m, n = a.shape[-2:]
        k = m if complete else min(m, n)
        q, r = _back(_product(reflectors, m, k, packed), a, m, k), _back(packed[:, :k].triu(), a, k, n)
        ctx.save_for_backward(q, r)
        ctx.complete = complete
        return q, r

    @staticmethod
    def backward(ctx, dq, dr):
        q, r = ctx.saved_tensors
        m, n = q.shape[-2], r.shape[-1]
        k = r.shape[-2]
        if ctx.complete and m > n:
            raise RuntimeError("linalg.qr: the QR decomposition is not differentiable when mode='complete' and nrows > ncols")
        tail = None
        if n > k:
            tail = q @ dr[..., k:]
            dq = dq + q @ r[..., k:] @ adjoint(dr[..., k:])
            r, dr = r[..., :k], dr[..., :k]
        inner = (dr @ adjoint(r) - adjoint(q) @ dq).triu()
        diagonal = _torch.diag_embed(_torch.diagonal(inner, 0, -2, -1).real).to(inner.dtype)
        inner = inner.triu(1) + adjoint(inner.triu(1)) + diagonal
        found = _linalg.solve_triangular(adjoint(r), dq + q @ inner, upper=False, left=False)
        return (found if tail is None else _torch.cat([found, tail], -1)), None


def qr(a, mode="reduced"):
    from .return_types import of

    _check("linalg.qr", a)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'")
    q, r = _Qr.apply(a, mode == "complete")
    return of("qr", "Q R")((q.new_zeros(0) if mode == "r" else q, r))


def _gaps(values):
    """values[j] - values[i] at (i, j), and one on the diagonal."""
    return values.unsqueeze(-2) - values.unsqueeze(-1) + _torch.eye(values.shape[-1], dtype=values.dtype, device=values.device)


class _Eigh(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(ctx, a):
        work = _flat(a)
        work = work.tril(-1) + adjoint(work.tril(-1)) + _torch.diag_embed(_torch.diagonal(work, 0, -2, -1).real).to(work.dtype)
        n = work.shape[-1]
        reflectors, beside = [], []
        for j in range(n - 1):
            vector, tau, beta = _reflector(work[:, j + 1:, j].clone())
            _from_left(work[:, j + 1:, j + 1:], vector, tau.conj())
            _from_right(work[:, j + 1:, j + 1:], vector, tau)
            reflectors.append((j + 1, vector, tau))
            beside.append(beta)
        real = _torch.diag_embed(_torch.diagonal(work, 0, -2, -1).real)
        if beside:
            edge = _torch.stack(beside, 1)
            real = real + _torch.diag_embed(edge, 1) + _torch.diag_embed(edge, -1)
        values, vectors = _linalg.eigh(real)
        vectors = _product(reflectors, n, n, work) @ vectors.to(_C.complex128)
        values, vectors = _back(values, a, n), _back(vectors, a, n, n)
        ctx.save_for_backward(values, vectors)
        return values, vectors

    @staticmethod
    def backward(ctx, dw, dv):
        w, v = ctx.saved_tensors
        turn = adjoint(v) @ dv
        inner = (turn - adjoint(turn)) * 0.5 / _gaps(w).to(v.dtype)
        inner = inner.tril(-1) + inner.triu(1) + _torch.diag_embed(dw).to(v.dtype)
        return v @ inner @ adjoint(v)


def eigh(a, UPLO="L"):
    from .return_types import of

    _check("linalg.eigh", a, True)
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return of("eigh", "eigenvalues eigenvectors")(_Eigh.apply(adjoint(a) if UPLO.upper() == "U" else a))


def eigvalsh(a, UPLO="L"):
    return eigh(a, UPLO)[0]


def _tall_svd(work):
    """U (square), S and V (square) of tall matrices."""
    m, n = work.shape[-2:]
    left, right, diagonal, beside = [], [], [], []
    for j in range(n):
        vector, tau, beta = _reflector(work[:, j:, j].clone())
        _from_left(work[:, j:, j + 1:], vector, tau.conj())
        left.append((j, vector, tau))
        diagonal.append(beta)
        if j + 1 < n:
            vector, tau, beta = _reflector(work[:, j, j + 1:].conj().clone())
            _from_right(work[:, j:, j + 1:], vector, tau)
            right.append((j + 1, vector, tau))
            beside.append(beta)
    real = _torch.diag_embed(_torch.stack(diagonal, 1)) if diagonal else _torch.zeros((work.shape[0], 0, 0), dtype=_C.float64)
    if beside:
        real = real + _torch.diag_embed(_torch.stack(beside, 1), 1)
    u, s, vh = _linalg.svd(real, full_matrices=False)
    q = _product(left, m, m, work)
    u = _torch.cat([q[..., :n] @ u.to(q.dtype), q[..., n:]], -1)
    return u, s, _product(right, n, n, work) @ vh.transpose(-2, -1).to(q.dtype)


class _Svd(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(ctx, a, full):
        work = _flat(a)
        m, n = work.shape[-2:]
        k = min(m, n)
        # Squares of the largest numbers overflow, those of the smallest vanish.
        top = float(_torch.view_as_real(work).abs().max()) if work.numel() else 1.0
        scale = 1.0 if 1e-100 < top < 1e100 or top == 0 or not math.isfinite(top) else 2.0 ** math.frexp(top)[1]
        work = work if scale == 1.0 else work / scale
        if m >= n:
            u, s, v = _tall_svd(work)
        else:
            v, s, u = _tall_svd(adjoint(work).clone())
        s = s if scale == 1.0 else s * scale
        u, v = (u, v) if full else (u[..., :k], v[..., :k])
        u, s, vh = _back(u, a, *u.shape[-2:]), _back(s, a, k), _back(adjoint(v), a, v.shape[-1], n)
        ctx.save_for_backward(u, s, vh)
        return u, s, vh

    @staticmethod
    def backward(ctx, du, ds, dvh):
        u, s, vh = ctx.saved_tensors
        k = s.shape[-1]
        u, du, vh, dvh = u[..., :k], du[..., :k], vh[..., :k, :], dvh[..., :k, :]
        sc = s.to(u.dtype)
        gaps = _gaps(s.square()).to(u.dtype)
        turn, other = adjoint(u) @ du, dvh @ adjoint(vh)
        left, right = turn - adjoint(turn), adjoint(other) - other
        inner = left / gaps * sc.unsqueeze(-2) + sc.unsqueeze(-1) * (right / gaps)
        inner = inner.tril(-1) + inner.triu(1) + _torch.diag_embed(ds.to(u.dtype) + _torch.diagonal(left, 0, -2, -1) / (2 * sc))
        found = u @ inner
        if u.shape[-2] > k:
            found = found + (du - u @ turn) / sc.unsqueeze(-2)
        found = found @ vh
        if vh.shape[-1] > k:
            found = found + u @ ((dvh - other @ vh) / sc.unsqueeze(-1))
        return found, None


def svd(a, full_matrices=True, *, driver=None):
    from .return_types import of

    _check("linalg.svd", a)
    return of("svd", "U S Vh")(_Svd.apply(a, full_matrices))


def svdvals(a, *, driver=None):
    return svd(a, False)[1]


# Functions of factors.


def slogdet(a):
    from .return_types import of

    _check("linalg.slogdet", a, True)
    packed, pivots, _ = _Lu.apply(a)
    diagonal = _torch.diagonal(packed, 0, -2, -1)
    exchanges = (pivots != _torch.arange(1, a.shape[-1] + 1, dtype=_C.int32, device=a.device)).sum(-1) % 2
    sign = _torch.where(exchanges == 1, -1.0, 1.0).to(a.dtype) * diagonal.sgn().prod(-1)
    return of("slogdet", "sign logabsdet")((sign, diagonal.abs().log().sum(-1)))


def det(a):
    _check("linalg.det", a, True)
    packed, pivots, _ = _Lu.apply(a)
    exchanges = (pivots != _torch.arange(1, a.shape[-1] + 1, dtype=_C.int32, device=a.device)).sum(-1) % 2
    return _torch.where(exchanges == 1, -1.0, 1.0).to(a.dtype) * _torch.diagonal(packed, 0, -2, -1).prod(-1)


def logdet(a):
    sign, value = slogdet(a)
    return sign.log() + value


def _tolerance(a, values, atol, rtol, tol=None):
    """The smallest value that counts, for each matrix."""
    largest = values.amax(-1)
    if tol is not None:
        return _C.as_tensor(tol, dtype=values.dtype, device=values.device)
    epsilon = 1.1920928955078125e-07 if a.dtype == _C.complex64 else 2.220446049250313e-16
    atol = _C.as_tensor(0.0 if atol is None else atol, dtype=values.dtype, device=values.device)
    if rtol is None:
        rtol = _torch.where(atol > 0, 0.0, epsilon * max(a.shape[-2:])).to(values.dtype)
    return _torch.maximum(atol, _C.as_tensor(rtol, dtype=values.dtype, device=values.device) * largest)


def matrix_rank(a, tol=None, hermitian=False, *, atol=None, rtol=None):
    _check("linalg.matrix_rank", a)
    if a.numel() == 0:
        return _torch.zeros(a.shape[:-2], dtype=_C.int64, device=a.device)
    values = (eigvalsh(a).abs() if hermitian else svdvals(a)).detach()
    return (values > _tolerance(a, values, atol, rtol, tol).unsqueeze(-1)).sum(-1)


class _Pinv(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(ctx, a, atol, rtol, hermitian):
        if hermitian:
            values, u = eigh(a)
            size, vh = values.abs(), adjoint(u)
        else:
            u, values, vh = svd(a, False)
            size = values
        kept = size > _tolerance(a, size, atol, rtol).unsqueeze(-1)
        inverse = _torch.where(kept, 1 / _torch.where(kept, values, _torch.ones_like(values)), _torch.zeros_like(values))
        found = (adjoint(vh) * inverse.unsqueeze(-2).to(a.dtype)) @ adjoint(u)
        ctx.save_for_backward(a, found)
        return found

    @staticmethod
    def backward(ctx, grad):
        a, p = ctx.saved_tensors
        g, ph = adjoint(grad), adjoint(p)
        if a.shape[-2] <= a.shape[-1]:
            k = g @ p
            kp = k @ ph
            return -adjoint(p @ k) + kp - (a @ p) @ kp + (ph @ p) @ (g - k @ a), None, None, None
        k = p @ g
        pk = ph @ k
        return -adjoint(k @ p) + (g - a @ k) @ p @ ph + pk - (pk @ p) @ a, None, None, None


def pinv(a, rcond=None, hermitian=False, *, atol=None, rtol=None):
    _check("linalg.pinv", a)
    if a.numel() == 0:
        return a.new_zeros(*a.shape[:-2], a.shape[-1], a.shape[-2])
    return _Pinv.apply(a, atol, rcond if rtol is None else rtol, hermitian)


def lstsq(a, b, rcond=None, *, driver=None):
    from .return_types import of

    _check("linalg.lstsq", a)
    vector = b.dim() == a.dim() - 1 and b.shape == a.shape[:-1]
    right = b.unsqueeze(-1) if vector else b
    m, n = a.shape[-2:]
    if m >= n:
        q, r = qr(a)
        solution = _linalg.solve_triangular(r, adjoint(q) @ right, upper=True)
    else:
        q, r = qr(adjoint(a))
        solution = q @ _linalg.solve_triangular(adjoint(r), right, upper=False)
    real = _C.float32 if a.dtype == _C.complex64 else _C.float64
    residuals = (right - a @ solution).abs().square().sum(-2) if m > n and driver not in (None, "gelsy") else _torch.zeros(0, dtype=real, device=a.device)
    rank = _torch.zeros(0, dtype=_C.int64, device=a.device) if driver == "gels" else matrix_rank(a.detach(), rtol=rcond)
    values = svdvals(a.detach()) if driver in ("gelss", "gelsd") else _torch.zeros(0, dtype=real, device=a.device)
    return of("lstsq", "solution residuals rank singular_values")((solution.squeeze(-1) if vector else solution, residuals, rank, values))


# Eigenvalues of general matrices.


def _schur(a):
    """A triangular T and a unitary Q with A = Q T Q^H, of a matrix as lists of complex numbers: shifted QR steps on Hessenberg form."""
    n = len(a)
    q = [[complex(i == j) for j in range(n)] for i in range(n)]
    for k in range(n - 2):
        norm = math.sqrt(sum(abs(a[i][k]) ** 2 for i in range(k + 1, n)))
        if norm == 0.0:
            continue
        v = [a[i][k] for i in range(k + 1, n)]
        v[0] += (v[0] / abs(v[0]) if v[0] else 1.0) * norm
        size = sum(abs(c) ** 2 for c in v)
        for j in range(n):
            t = 2.0 * sum(c.conjugate() * a[k + 1 + i][j] for i, c in enumerate(v)) / size
            for i, c in enumerate(v):
                a[k + 1 + i][j] -= t * c
        for matrix in (a, q):
            for row in matrix:
                t = 2.0 * sum(row[k + 1 + i] * c for i, c in enumerate(v)) / size
                for i, c in enumerate(v):
                    row[k + 1 + i] -= t * c.conjugate()
    high, steps = n - 1, 0
    scale = max((abs(c) for row in a for c in row), default=0.0) or 1.0
    while high > 0:
        low = high
        while low > 0:
            near = abs(a[low][low]) + abs(a[low - 1][low - 1]) or scale
            if abs(a[low][low - 1]) <= 2.220446049250313e-16 * near:
                a[low][low - 1] = 0j
                break
            low -= 1
        if low == high:
            high, steps = high - 1, 0
            continue
        steps += 1
        if steps > 300:
            raise LinAlgError("linalg.eig: the QR iteration did not converge")
        p, r, s, t = a[high - 1][high - 1], a[high - 1][high], a[high][high - 1], a[high][high]
        half, root = (p + t) / 2, cmath.sqrt(((p - t) / 2) ** 2 + r * s)
        shift = min(half + root, half - root, key=lambda z: abs(z - t)) if steps % 10 else abs(s) + t
        rotations = []
        for i in range(low, high + 1):
            a[i][i] -= shift
        for i in range(low, high):
            x, y = a[i][i], a[i + 1][i]
            size = math.hypot(abs(x), abs(y)) or 1.0
            c, d = x / size, y / size
            top, bottom = a[i], a[i + 1]
            for j in range(i, n):
                u, w = top[j], bottom[j]
                top[j], bottom[j] = c.conjugate() * u + d.conjugate() * w, c * w - d * u
            rotations.append((i, c, d))
        for i, c, d in rotations:
            for row in a[: min(i + 2, high) + 1]:
                u, w = row[i], row[i + 1]
                row[i], row[i + 1] = u * c + w * d, w * c.conjugate() - u * d.conjugate()
            for row in q:
                u, w = row[i], row[i + 1]
                row[i], row[i + 1] = u * c + w * d, w * c.conjugate() - u * d.conjugate()
        for i in range(low, high + 1):
            a[i][i] += shift
    return a, q


def _eigen(rows, real):
    """Eigenvalues and unit eigenvectors, as columns, of one matrix."""
    n = len(rows)
    t, q = _schur([[complex(c) for c in row] for row in rows])
    scale = max((abs(c) for row in t for c in row), default=0.0) or 1.0
    small = 2.220446049250313e-16 * scale
    values = [t[i][i] for i in range(n)]
    if real:
        values = [complex(z.real, 0.0) if abs(z.imag) < 64 * small else z for z in values]
    columns = []
    for k in range(n):
        y = [0j] * n
        y[k] = 1 + 0j
        for i in range(k - 1, -1, -1):
            total = sum(t[i][j] * y[j] for j in range(i + 1, k + 1))
            gap = t[i][i] - t[k][k]
            y[i] = -total / (gap if abs(gap) > small else complex(small))
        x = [sum(q[i][j] * y[j] for j in range(k + 1)) for i in range(n)]
        size = math.sqrt(sum(abs(c) ** 2 for c in x)) or 1.0
        largest = max(x, key=abs)
        phase = largest / abs(largest) if largest else 1.0
        columns.append([c / phase / size for c in x])
    return values, [[columns[j][i] for j in range(n)] for i in range(n)]


class _Eig(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(ctx, a):
        real = not a.is_complex()
        dtype = _C.complex128 if a.dtype in (_C.float64, _C.complex128) else _C.complex64
        n = a.shape[-1]
        found = [_eigen(one, real) for one in a.detach().cpu().reshape(-1, n, n).tolist()]
        values = _C.tensor([w for w, _ in found], dtype=_C.complex128).reshape(*a.shape[:-1]).to(dtype).to(a.device)
        vectors = _C.tensor([v for _, v in found], dtype=_C.complex128).reshape(a.shape).to(dtype).to(a.device)
        ctx.save_for_backward(values, vectors)
        ctx.real = real
        return values, vectors

    @staticmethod
    def backward(ctx, dw, dv):
        w, v = ctx.saved_tensors
        vh = adjoint(v)
        turn = vh @ dv
        inner = turn - vh @ (v * _torch.diagonal(turn, 0, -2, -1).real.to(v.dtype).unsqueeze(-2))
        inner = inner / _gaps(w).conj()
        inner = inner.tril(-1) + inner.triu(1) + _torch.diag_embed(dw)
        found = _linalg.solve(vh, inner @ vh)
        return found.real if ctx.real else found


@overridable
def eig(A):
    """Eigenvalues and eigenvectors, as columns, of square matrices. It is computed in Python, one matrix after another: for sizes up to a few hundred."""
    from .return_types import of

    _check("linalg.eig", A, True)
    if not (A.is_floating_point() or A.is_complex()):
        raise RuntimeError(f"linalg.eig: Expected a floating point or complex tensor as input. Got {A.dtype}")
    if A.numel() and not bool(_torch.isfinite(A.detach()).all()):
        raise RuntimeError("torch.linalg.eig: input tensor should not contain infs or NaNs.")
    return of("eig", "eigenvalues eigenvectors")(_Eig.apply(A) if A.numel() else (A.sum(-1).to(A.dtype.to_complex()), A.to(A.dtype.to_complex())))


@overridable
def eigvals(A):
    """Eigenvalues of square matrices; see ``eig``."""
    return eig(A)[0]
