"""Matrix functions that the Python front composes: each by the property that defines it."""

import pytest

import rushlight as torch


def close(a, b):
    return torch.allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", [(3, 3), (5, 2), (2, 4, 3)])
def test_polar_factors_multiply_to_the_matrix(shape):
    a = torch.randn(shape, dtype=torch.float64)
    u, h = torch.linalg.polar(a)
    assert close(u @ h, a) and close(u.mT @ u, torch.eye(shape[-1], dtype=torch.float64).expand(h.shape)) and close(h, h.mT)
    assert (torch.linalg.eigvalsh(h) > 0).all()


def test_polar_refuses_wide_matrices():
    with pytest.raises(RuntimeError, match="at least as many rows"):
        torch.linalg.polar(torch.ones(2, 3))


def test_a_square_root_squared_is_the_matrix():
    a = torch.randn(2, 4, 4, dtype=torch.float64)
    a = a @ a.mT + torch.eye(4, dtype=torch.float64)
    root = torch.linalg.matrix_sqrth(a)
    assert close(root @ root, a) and close(root, root.mT)


def test_householder_product_is_the_product_of_reflections():
    a, tau = torch.randn(2, 5, 3, dtype=torch.float64), torch.rand(2, 3, dtype=torch.float64)
    for item in range(2):
        product = torch.eye(5, dtype=torch.float64)
        for i in range(3):
            v = torch.cat([torch.zeros(i, dtype=torch.float64), torch.ones(1, dtype=torch.float64), a[item, i + 1 :, i]])
            product = product @ (torch.eye(5, dtype=torch.float64) - tau[item, i] * torch.outer(v, v))
        assert close(torch.linalg.householder_product(a, tau)[item], product[:, :3])
    with pytest.raises(RuntimeError, match="reflections <= columns <= rows"):
        torch.linalg.householder_product(torch.ones(2, 3), torch.ones(3))


def test_lu_without_pivoting_says_what_to_use():
    with pytest.raises(NotImplementedError, match="pivot=True"):
        torch.linalg.lu_factor(torch.eye(2), pivot=False)
    singular = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
    assert torch.linalg.lu_factor_ex(singular).info.item() == 2
    with pytest.raises(torch.linalg.LinAlgError, match="zero on its diagonal"):
        torch.linalg.lu_factor_ex(singular, check_errors=True)


@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 5), (2, 5, 4)])
def test_reflectors_multiply_to_the_factors(shape):
    a = torch.randn(shape, dtype=torch.float64)
    packed, tau = torch.geqrf(a)
    if shape[-2] >= shape[-1]:
        assert close(torch.orgqr(packed, tau) @ packed.triu()[..., : shape[-1], :], a)
    # The whole orthogonal matrix, from either side.
    assert close(torch.ormqr(packed, tau, packed.triu()), a)
    assert close(torch.ormqr(packed, tau, a, transpose=True), packed.triu())
    assert close(torch.ormqr(packed, tau, a.mT, left=False), packed.triu().mT)


@pytest.mark.parametrize("diagonal", [0.0, 1.0, 20.0])
def test_symmetric_systems(diagonal):
    a = torch.randn(3, 7, 7, dtype=torch.float64)
    a = a + a.mT
    a.diagonal(dim1=-2, dim2=-1).mul_(diagonal)
    ld, pivots, info = torch.linalg.ldl_factor_ex(a)
    b = torch.randn(7, 2, dtype=torch.float64)
    assert not info.any() and close(a @ torch.linalg.ldl_solve(ld, pivots, b), b.expand(3, 7, 2))


def test_pivots_that_no_factorisation_gives_are_refused():
    with pytest.raises(RuntimeError, match="pivot"):
        torch.linalg.ldl_solve(torch.eye(2), torch.tensor([5, 1], dtype=torch.int32), torch.ones(2, 1))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("shapes", [((1, 1), (1, 1)), ((3, 17), (17, 5)), ((2, 1, 4, 3), (5, 3, 9)), ((4, 0), (0, 3)), ((0, 4), (4, 3)), ((33, 20), (20, 40))])
def test_products_of_complex_matrices_are_those_of_their_parts(shapes, dtype):
    a, b = (torch.randn(shape, dtype=dtype) for shape in shapes)
    for left, right in [(a, b), (a.conj(), b.mT.contiguous().mT)]:
        product = left @ right
        expected = torch.complex(left.real @ right.real - left.imag @ right.imag, left.real @ right.imag + left.imag @ right.real)
        assert product.dtype == dtype and torch.allclose(product, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("count", [1, 7, 16, 40])
def test_products_of_complex_numbers_are_those_of_their_parts(count):
    a, b = torch.randn(count, dtype=torch.complex64), torch.randn(count, dtype=torch.complex64)
    for left, right in [(a, b), (a, b[:1]), (a[:1], b), (a, a.conj())]:
        expected = torch.complex(left.real * right.real - left.imag * right.imag, left.real * right.imag + left.imag * right.real)
        assert torch.allclose(left * right, expected, rtol=1e-5, atol=1e-6)
