"""Distributions by numbers that PyTorch gave, and by what must hold of all of them."""

import math

import pytest

import rushlight as torch
import rushlight.distributions as D
from rushlight.distributions import constraints


def t(*values):
    return torch.tensor(values, dtype=torch.float64)


P, POS, V = t(0.2, 0.5, 0.9), t(0.5, 1.0, 2.5), t(0.3, 0.7, 1.5)
COV = torch.tensor([[2.0, 0.3], [0.3, 1.0]], dtype=torch.float64)

#: Distribution, value, PyTorch's log_prob and entropy (None where it has none).
CASES = {
    "Normal": (lambda: D.Normal(V, POS), V, [-0.225791352645, -0.918938533205, -1.835229265079], [0.725791352645, 1.418938533205, 2.335229265079]),
    "Geometric": (lambda: D.Geometric(P), t(0, 1, 4), [-1.609437912434, -1.38629436112, -9.315700887634], [2.502012117691, 1.38629436112, 0.361203303768]),
    "Binomial": (lambda: D.Binomial(5, P), t(0, 2, 5), [-1.115717756571, -1.163150809806, -0.526802578289], [1.243024162312, 1.523670872043, 0.91020512019]),
    "NegativeBinomial": (lambda: D.NegativeBinomial(t(3, 3, 3), P), t(0, 2, 5), [-0.669430653943, -1.673976433572, -4.390035419548], None),
    "ContinuousBernoulli": (lambda: D.ContinuousBernoulli(P), t(0.1, 0.5, 0.8), [0.475686896318, 0.0, 0.465533128366], [-0.076414452803, 0.0, -0.179631116]),
    "FisherSnedecor": (lambda: D.FisherSnedecor(t(3, 5, 6), t(5, 6, 7)), POS, [-0.534410247409, -0.809566895036, -2.304789276753], None),
    "InverseGamma": (lambda: D.InverseGamma(t(3, 4, 5), POS), POS, [-1.0, -2.791759469228, -5.094344562222], [-0.691137340394, -0.488828872931, 0.057638551631]),
    "HalfCauchy": (lambda: D.HalfCauchy(POS), POS, [-0.451582705289, -1.144729885849, -2.061020617724], [1.144729885849, 1.837877066409, 2.754167798284]),
    "Kumaraswamy": (lambda: D.Kumaraswamy(t(1.5, 2, 3), t(2, 2, 1.5)), P, [0.200194862135, 0.405465108108, 0.640538136409], [-0.098612288668, -0.13629436112, -0.317162526412]),
    "Pareto": (lambda: D.Pareto(t(0.5, 0.5, 0.5), t(3, 4, 5)), t(0.7, 1.2, 2.5), [0.445870522743, -2.29790214509, -7.354042381611], [-0.458426135895, -0.82944154168, -1.102585092994]),
    "Weibull": (lambda: D.Weibull(POS, t(1.5, 2, 3)), POS, [0.098612288668, -0.30685281944, -0.817678443206], [0.093792932966, 0.595460651891, 1.202488886474]),
    "LogisticNormal": (lambda: D.LogisticNormal(t(0.1, 0.2), POS[:2]), t(0.2, 0.3, 0.5), [0.851026577709], None),
    "RelaxedBernoulli": (lambda: D.RelaxedBernoulli(t(0.7), P), P, [0.046679468001, -0.356674943939, 0.558262326125], None),
    "RelaxedOneHotCategorical": (lambda: D.RelaxedOneHotCategorical(t(0.7), P / P.sum()), t(0.2, 0.3, 0.5), [0.005819958391], None),
    "Multinomial": (lambda: D.Multinomial(5, P / P.sum()), t(1, 2, 2), [-2.155274069436], [2.407169945256]),
    "Mixture": (lambda: D.MixtureSameFamily(D.Categorical(P), D.Normal(V, POS)), t(0.4)[0], [-1.209237591132], None),
    "LowRank": (lambda: D.LowRankMultivariateNormal(V, torch.ones(3, 1, dtype=torch.float64), POS), P, [-3.664644191188], [5.109189645733]),
    "VonMises": (lambda: D.VonMises(V, POS), t(0.1, 0.5, 3.0), [-1.409393471524, -1.093724823603, -2.851872742051], None),
    "LKJCholesky": (lambda: D.LKJCholesky(2, t(1.5)[0]), torch.linalg.cholesky(torch.tensor([[1, 0.2], [0.2, 1]], dtype=torch.float64)), [-0.47199370255], None),
    "Wishart": (lambda: D.Wishart(t(4.0)[0], covariance_matrix=COV), COV, [-5.194826290617], [7.272041955519]),
    "Transformed": (lambda: D.TransformedDistribution(D.Normal(V, POS), [D.SigmoidTransform(), D.AffineTransform(1.0, 2.0)]), t(1.5, 2.0, 2.5), [-3.15719476766, -0.470791352645, -0.867288979652], None),
    "Independent": (lambda: D.Independent(D.Normal(V, POS), 1), V, [-2.979959150928], [4.479959150928]),
}


@pytest.mark.parametrize("name", CASES)
def test_log_prob_and_entropy(name):
    make, value, log_prob, entropy = CASES[name]
    d = make()
    assert torch.allclose(d.log_prob(value).reshape(-1), t(*log_prob), rtol=1e-6, atol=1e-9)
    if entropy is not None:
        assert torch.allclose(d.entropy().reshape(-1), t(*entropy), rtol=1e-6, atol=1e-9)
    assert d.support.check(value).all()
    more = d.expand((2, *d.batch_shape))
    assert more.batch_shape == (2, *d.batch_shape) and torch.allclose(more.log_prob(value)[0], d.log_prob(value))
    sample = d.sample((200,))
    assert sample.shape == (200, *d.batch_shape, *d.event_shape) and d.support.check(sample).all()


@pytest.mark.parametrize("name", ["Normal", "Weibull", "VonMises", "Binomial", "NegativeBinomial", "Kumaraswamy", "Wishart", "Mixture", "Multinomial", "LowRank"])
def test_samples_have_the_mean(name):
    d = CASES[name][0]()
    n = 20000
    if name == "VonMises":
        # Angles have a mean direction.
        away = (d.sample((n,)) - d.loc).sin().mean(0)
        assert (away.abs() < 0.03).all()
        return
    assert ((d.sample((n,)).mean(0) - d.mean).abs() < 6 * (d.variance / n).sqrt() + 1e-9).all()


def test_transforms_undo_themselves_and_know_their_derivative():
    x = t(0.3, -0.7, 1.2)
    plain = [D.ExpTransform(), D.SigmoidTransform(), D.TanhTransform(), D.SoftplusTransform(), D.AffineTransform(0.5, -2.0), D.ComposeTransform([D.TanhTransform(), D.ExpTransform()])]
    for transform in plain:
        y = transform(x)
        assert torch.allclose(transform.inv(y), x, atol=1e-9) and transform.codomain.check(y).all()
        points = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(transform(points).sum(), points)
        assert torch.allclose(transform.log_abs_det_jacobian(x, y), slope.abs().log(), atol=1e-9)
        assert torch.allclose(transform.inv.log_abs_det_jacobian(y, x), -slope.abs().log(), atol=1e-9)
    for transform in (D.StickBreakingTransform(), D.CorrCholeskyTransform()):
        assert torch.allclose(transform.inv(transform(x)), x, atol=1e-7) and transform.codomain.check(transform(x)).all()
    for constraint in (constraints.positive, constraints.interval(-2.0, 3.0), constraints.simplex, constraints.less_than(4.0), constraints.corr_cholesky):
        assert constraint.check(D.transform_to(constraint)(x)).all() and constraint.check(D.biject_to(constraint)(x)).all()
    for constraint in (constraints.lower_cholesky, constraints.positive_definite):
        assert constraint.check(D.transform_to(constraint)(COV)).all()
    cached = D.TanhTransform(cache_size=1)
    assert cached.inv(y := cached(x)) is x and y is cached(x)


def test_divergences():
    for p, q in (
        (D.Gumbel(V, POS), D.Gumbel(V + 1, POS * 2)), (D.Laplace(V, POS), D.Laplace(V + 1, POS * 2)), (D.Exponential(POS), D.Gamma(POS + 1, POS)),
        (D.Uniform(V, V + 1), D.Normal(V, POS)), (D.HalfNormal(POS), D.HalfNormal(2 * POS)), (D.Cauchy(V, POS), D.Cauchy(V + 1, POS)),
    ):
        divergence = D.kl_divergence(p, q)
        x = p.sample((200000,))
        terms = p.log_prob(x) - q.log_prob(x)
        assert ((terms.mean(0) - divergence).abs() < 6 * terms.std(0) / math.sqrt(200000)).all()

    class Mine(D.Normal):
        pass

    @D.register_kl(Mine, D.Normal)
    def mine(p, q):
        return "mine"

    assert D.kl_divergence(Mine(0.0, 1.0), D.Normal(0.0, 1.0)) == "mine" and D.kl_divergence(D.Normal(0.0, 1.0), D.Normal(0.0, 1.0)) == 0
    with pytest.raises(NotImplementedError, match="No KL"):
        D.kl_divergence(D.Normal(0.0, 1.0), D.Cauchy(0.0, 1.0))


def test_parameters_and_values_are_checked():
    with pytest.raises(ValueError, match="probs.*Interval"):
        D.Geometric(t(1.5))
    with pytest.raises(ValueError, match="support"):
        D.TransformedDistribution(D.Normal(V, POS), D.ExpTransform(), validate_args=True).log_prob(t(-1.0, 1.0, 1.0))
    assert D.Geometric(t(1.5), validate_args=False).probs == 1.5
    assert D.normal.Normal is D.Normal and D.relaxed_bernoulli.RelaxedBernoulli is D.RelaxedBernoulli
    from rushlight.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal

    assert LowRankMultivariateNormal is D.LowRankMultivariateNormal
