"""The largest singular values and principal components of large matrices."""

from . import _C, linalg

__all__ = ["pca_lowrank", "svd_lowrank"]


def _basis(a, columns, steps):
    """Orthonormal columns whose span holds most of a matrix's, by repeated products with random vectors."""
    q = linalg.qr(a @ _C._torch.randn([a.shape[-1], columns], dtype=a.dtype, device=a.device))[0]
    for _ in range(steps):
        q = linalg.qr(a.mH @ q)[0]
        q = linalg.qr(a @ q)[0]
    return q


def svd_lowrank(A, q=6, niter=2, M=None):
    """The largest ``q`` singular values of ``A`` (minus ``M``, if given) and their vectors. Nearly exact if the others are small."""
    a = A if M is None else A - M
    columns = min(6 if q is None else q, *a.shape[-2:])
    turned = a.shape[-2] < a.shape[-1]
    a = a.mH if turned else a
    basis = _basis(a, columns, niter)
    u, s, vh = linalg.svd(basis.mH @ a, full_matrices=False)
    u, v = basis @ u, vh.mH
    return (v, s, u) if turned else (u, s, v)


def pca_lowrank(A, q=None, center=True, niter=2):
    """Principal components of the rows of ``A``."""
    q = min(6, *A.shape[-2:]) if q is None else q
    if not 0 <= q <= min(A.shape[-2:]):
        raise ValueError(f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(A.shape[-2:])}")
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, q, niter)
