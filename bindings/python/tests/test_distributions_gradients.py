"""Samples that carry gradients to their parameters, against the derivative of the distribution function."""

import pytest

import rushlight as torch
import rushlight.distributions as D
from rushlight.special import gammainc


@pytest.mark.parametrize("a", [0.02, 0.3, 1.0, 2.5, 30.0, 400.0, 2000.0])
def test_gamma(a):
    concentration = torch.full((300,), a, dtype=torch.float64, requires_grad=True)
    x = D.Gamma(concentration, torch.ones((), dtype=torch.float64)).rsample()
    x.sum().backward()
    x, width = x.detach(), 1e-5 * a
    difference = (gammainc(concentration.detach() + width, x) - gammainc(concentration.detach() - width, x)) / (2 * width)
    expected = -difference / D.Gamma(a, 1.0).log_prob(x).exp()
    middle = (gammainc(concentration.detach(), x) - 0.5).abs() < 0.45
    assert torch.allclose(concentration.grad[middle], expected[middle], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(("a", "b"), [(1.0, 3.0), (5.0, 2.0), (80.0, 120.0)])
def test_beta(a, b):
    pair = [torch.full((200,), v, dtype=torch.float64, requires_grad=True) for v in (a, b)]
    x = D.Beta(*pair).rsample()
    x.sum().backward()
    # Moves each sample along its quantile: the density's integral up to it stays the same.
    grid = torch.linspace(0, 1, 20001, dtype=torch.float64)[1:-1]
    for which in range(2):
        width = [1e-4 * v if i == which else 0.0 for i, v in enumerate((a, b))]
        cdf = [D.Beta(a + s * width[0], b + s * width[1]).log_prob(grid).double().exp().cumsum(0) for s in (1, -1)]
        difference = (cdf[0] / cdf[0][-1] - cdf[1] / cdf[1][-1]) / (2 * max(width))
        place = (x.detach() * 20000).long().clamp(1, 19998)
        expected = -difference[place - 1] / D.Beta(a, b).log_prob(x.detach()).exp()
        inside = (x.detach() > 0.05) & (x.detach() < 0.95)
        assert torch.allclose(pair[which].grad[inside], expected[inside], rtol=0.02, atol=2e-3)


@pytest.mark.parametrize(("a", "b", "x", "by_a", "by_b"), [
    (0.5, 0.5, 0.3, 0.9254290880677964, -0.6748321787765917), (0.5, 0.5, 0.9, 0.26089248560161704, -0.5585312149260891),
    (0.2, 30.0, 0.01, 0.07154136660846065, -0.0003361047049121698), (0.2, 30.0, 0.1, 0.16556978096319735, -0.0032024774595037627),
    (0.01, 0.01, 0.5, 1267.4471192721453, -1267.4471192834008),
])
def test_beta_by_scipy(a, b, x, by_a, by_b):
    both = torch.tensor([a, b], dtype=torch.float64)
    found = torch._dirichlet_grad(torch.tensor([x, 1 - x], dtype=torch.float64), both, both.sum().expand(2))
    assert found.tolist() == pytest.approx([by_a / (1 - x), -by_b / x], rel=1e-5)


def test_other_families_reach_their_parameters():
    for make in (
        lambda p: D.Chi2(p), lambda p: D.StudentT(p), lambda p: D.FisherSnedecor(p, p + 1), lambda p: D.InverseGamma(p, p), lambda p: D.Gamma(p, 2 * p),
        lambda p: D.Wishart(p + 1, torch.eye(2)), lambda p: D.Beta(p, p), lambda p: D.Dirichlet(torch.stack([p, p])),
    ):
        p = torch.tensor(3.0, requires_grad=True)
        sample = make(p).rsample((5,))
        assert sample.requires_grad and not make(p).sample().requires_grad
        (sample**2).sum().backward()
        assert p.grad.isfinite() and p.grad != 0
    # The mean of x squared by the concentration: 2a + 1.
    a = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    (D.Gamma(a, 1.0).rsample((40000,)) ** 2).mean().backward()
    assert a.grad.item() == pytest.approx(5, rel=0.05)


def test_small_concentrations_do_not_reach_the_ends():
    x = D.Beta(torch.full((20000,), 0.01), torch.full((20000,), 0.01)).sample()
    assert 0 < x.min() and x.max() < 1
    # Half of the samples are near each end, and few between.
    assert abs((x < 0.5).float().mean() - 0.5) < 0.03 and ((x > 0.1) & (x < 0.9)).float().mean() < 0.05
    assert D.Gamma(torch.full((1000,), 1e-3), 1.0).sample().min() > 0
