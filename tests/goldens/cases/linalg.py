"""Decompositions and solvers on well-conditioned matrices."""

import math

import torch

from family import arrange, f32, f64

TOLERANCE = {f32: (2e-4, 2e-5), f64: (1e-8, 1e-9)}


def build(f):
    for dtype in (f32, f64):
        tol = TOLERANCE[dtype]
        draw = lambda *shape, **kw: f.uniform(*shape, lo=-1, hi=1, dtype=dtype, **kw)

        def regular(*shape, layout="dense"):
            return arrange(draw(*shape) + 2.5 * torch.eye(shape[-1], dtype=dtype), layout)

        def definite(*shape, layout="dense"):
            a = draw(*shape)
            return arrange(a @ a.mT + 1.5 * torch.eye(shape[-1], dtype=dtype), layout)

        def spread(rows, columns, batch=()):
            """Singular values well apart, so that their vectors are well defined."""
            u = torch.linalg.qr(draw(*batch, rows, rows))[0]
            v = torch.linalg.qr(draw(*batch, columns, columns))[0]
            s = torch.diag_embed(torch.arange(1, min(rows, columns) + 1, dtype=dtype) * 0.8)
            middle = torch.zeros(*batch, rows, columns, dtype=dtype)
            middle[..., :s.shape[-1], :s.shape[-1]] = s
            return (u @ middle @ v).contiguous()

        for op in ("det", "slogdet", "logdet", "inv"):
            f.case(op, regular(3, 3), tol=tol)
            f.case(op, regular(4, 4, layout="transposed"), tol=tol)
            f.case(op, regular(2, 3, 3, layout="strided"), tol=tol)
            f.case(op, regular(1, 1), tol=tol)
            f.case(op, -regular(3, 3), tol=tol)
            f.case(op, torch.zeros(0, 0, dtype=dtype), grad=False, tol=tol)
        f.case("det", torch.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=dtype), grad=False, tol=tol)
        f.case("slogdet", torch.zeros(2, 2, dtype=dtype), grad=False, tol=tol)
        # A singular matrix has -inf, a negative determinant NaN.
        f.case("logdet", torch.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=dtype), grad=False, tol=tol)
        f.case("logdet", torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=dtype), grad=False, tol=tol)

        f.case("solve", regular(3, 3), draw(3, 2), tol=tol)
        f.case("solve", regular(3, 3, layout="transposed"), draw(3), tol=tol)
        f.case("solve", regular(2, 3, 3), draw(2, 3, 2, layout="transposed"), tol=tol)
        f.case("solve", regular(3, 3), draw(2, 3, 2, layout="strided"), tol=tol)
        f.case("solve", regular(3, 3), draw(2, 3), left=False, tol=tol)
        for upper in (False, True):
            triangle = (torch.triu if upper else torch.tril)(regular(3, 3))
            f.case("solve_triangular", triangle, draw(3, 2), upper=upper, tol=tol)
            f.case("solve_triangular", triangle, draw(2, 3), upper=upper, left=False, tol=tol)
            f.case("solve_triangular", regular(2, 3, 3, layout="transposed"), draw(2, 3, 2), upper=upper,
                   unitriangular=True, tol=tol)
            f.case("cholesky", definite(3, 3), upper=upper, tol=tol)
            f.case("cholesky", definite(2, 4, 4, layout="strided"), upper=upper, tol=tol)
        f.case("cholesky", definite(3, 3, layout="transposed"), tol=tol)

        f.case("qr", regular(3, 3), tol=tol)
        f.case("qr", draw(4, 2) + torch.eye(4, 2, dtype=dtype), tol=tol)
        f.case("qr", draw(2, 4) + torch.eye(2, 4, dtype=dtype), tol=tol)
        f.case("qr", regular(2, 3, 3, layout="transposed"), tol=tol)
        f.case("qr", draw(4, 2), mode="complete", grad=False, tol=tol)
        for op in ("svd", "svdvals"):
            f.case(op, spread(3, 3), tol=tol)
            f.case(op, spread(4, 2), tol=tol)
            f.case(op, arrange(spread(2, 4), "transposed"), tol=tol)
            f.case(op, arrange(spread(3, 3, (2,)), "strided"), tol=tol)
        for op in ("eigh", "eigvalsh"):
            f.case(op, definite(3, 3), tol=tol)
            f.case(op, definite(2, 3, 3, layout="strided"), tol=tol)
            f.case(op, definite(4, 4) - 3 * torch.eye(4, dtype=dtype), UPLO="U", tol=tol)
            f.case(op, arrange(draw(3, 3) + torch.diag(torch.tensor([0.0, 3.0, 6.0], dtype=dtype)), "transposed"),
                   grad=False, tol=tol)
        f.case("lstsq", spread(4, 2), draw(4, 3), tol=tol)
        f.case("lstsq", arrange(spread(5, 3), "transposed"), draw(5, 1, layout="strided"), tol=tol)
        f.case("lstsq", spread(4, 2, (2,)), draw(2, 4, 2), tol=tol)

        for ord in ("fro", "nuc", math.inf, -math.inf, 1, -1, 2, -2):
            f.case("matrix_norm", spread(3, 3), ord=ord, tol=tol)
            f.case("matrix_norm", arrange(spread(3, 2, (2,)), "strided"), ord=ord, keepdim=True, tol=tol)
        f.case("matrix_norm", draw(2, 3, 2), ord="fro", dim=[0, 2], tol=tol)
        f.case("cross", draw(3), draw(3))
        f.case("cross", draw(2, 3), draw(2, 3, layout="transposed"))
        f.case("cross", draw(3, 2, layout="strided"), draw(3, 1), dim=0)
        f.case("cross", draw(1, 3, 2), draw(4, 3, 2), dim=-2)

        for shape in ((3, 3), (4, 2), (2, 4), (1, 3), (2, 3, 3)):
            f.case("lu", draw(*shape), tol=tol)
        f.case("lu", regular(4, 4, layout="transposed"), tol=tol)
        f.case("lu", draw(0, 0), grad=False, tol=tol)
        for left in (True, False):
            for adjoint in (True, False):
                f.case("lu_solve", regular(3, 3), draw(3, 3), left=left, adjoint=adjoint, tol=tol)
        f.case("lu_solve", regular(2, 3, 3), draw(2, 3, 1), tol=tol)
