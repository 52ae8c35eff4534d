"""Jobs of libraries of probability, differential equations, physics and optimisation."""

import math

import torch
from common import fill, job, numbers, step, tokens

nn = torch.nn


@job("pyro")
def inference():
    import pyro
    import pyro.distributions as dist
    from pyro.infer import SVI, Trace_ELBO
    from pyro.optim import Adam

    pyro.clear_param_store()
    data = numbers(20, step=0.7) + 1.0

    def model(data):
        centre = pyro.sample("centre", dist.Normal(pyro.param("prior", torch.tensor(0.5)), 2.0))
        with pyro.plate("data", len(data)):
            pyro.sample("seen", dist.Normal(centre, 1.0), obs=data)

    def guide(data):
        pyro.sample("centre", dist.Delta(pyro.param("place", torch.tensor(0.0))))

    svi = SVI(model, guide, Adam({"lr": 0.1}), loss=Trace_ELBO())
    losses = {f"loss {at}": svi.step(data) for at in range(5)}
    return {**losses, "place": pyro.param("place")}


@job("pyro", "hamiltonian")
def hamiltonian():
    import pyro
    import pyro.distributions as dist
    from pyro.infer import MCMC, NUTS

    def model():
        pyro.sample("x", dist.Normal(torch.tensor(2.0), torch.tensor(0.5)))

    pyro.set_rng_seed(0)
    chain = MCMC(NUTS(model), num_samples=60, warmup_steps=30, disable_progbar=True)
    chain.run()
    mean = chain.get_samples()["x"].mean().item()
    # Random numbers differ between the two.
    assert abs(mean - 2.0) < 0.4, mean
    return {}


@job("pyro", "tutorial")
def tutorial():
    """The introduction's model, a regression whose slope depends on a group, fitted at its mode: nothing is drawn."""
    import pyro
    import pyro.distributions as dist
    from pyro.infer import SVI, Trace_ELBO
    from pyro.infer.autoguide import AutoDelta, init_to_mean

    pyro.clear_param_store()
    group, ruggedness = (torch.arange(30) % 3 == 0).float(), numbers(30, step=0.7).abs() * 3
    income = 8.5 + 0.3 * numbers(30, step=1.3) + group * (0.4 * ruggedness - 1.5) - (1 - group) * 0.2 * ruggedness

    def model(group, ruggedness, income=None):
        a, bA = pyro.sample("a", dist.Normal(0.0, 10.0)), pyro.sample("bA", dist.Normal(0.0, 1.0))
        bR, bAR = pyro.sample("bR", dist.Normal(0.0, 1.0)), pyro.sample("bAR", dist.Normal(0.0, 1.0))
        sigma = pyro.sample("sigma", dist.Uniform(0.0, 10.0))
        mean = a + bA * group + bR * ruggedness + bAR * group * ruggedness
        with pyro.plate("data", len(ruggedness)):
            return pyro.sample("obs", dist.Normal(mean, sigma), obs=income)

    guide = AutoDelta(model, init_loc_fn=init_to_mean)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
    losses = [svi.step(group, ruggedness, income) for _ in range(60)]
    found = guide.median(group, ruggedness)
    assert set(found) == {"a", "bA", "bR", "bAR", "sigma"}, found
    return {**{f"loss {at}": losses[at] for at in (0, 1, 20, 59)}, **found}


@job("botorch", "tutorial")
def getting_started():
    """The first tutorial: a model of noisy values, and the point that the acquisition function prefers."""
    from botorch.acquisition import LogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.models.transforms import Normalize, Standardize
    from botorch.optim import optimize_acqf
    from gpytorch.mlls import ExactMarginalLogLikelihood

    x = numbers(20, 2, step=1.7).double() + 1
    y = 1 - torch.linalg.norm(x - 0.5, dim=-1, keepdim=True) + 0.05 * numbers(20, 1, step=2.9).double()
    model = SingleTaskGP(train_X=x, train_Y=y, input_transform=Normalize(d=2), outcome_transform=Standardize(m=1))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    bounds = torch.stack([torch.zeros(2), torch.full((2,), 2.0)]).to(torch.double)
    candidate, value = optimize_acqf(LogExpectedImprovement(model, best_f=y.max()), bounds=bounds, q=1, num_restarts=8, raw_samples=64)
    return {"candidate": candidate, "value": value, "mean": model.posterior(x).mean}


@job("botorch")
def acquisition():
    from botorch.acquisition import ExpectedImprovement, UpperConfidenceBound
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from gpytorch.mlls import ExactMarginalLogLikelihood

    x = torch.linspace(0, 1, 8, dtype=torch.float64)[:, None]
    y = (x * 6).sin() + 0.1 * (x * 50).cos()
    model = SingleTaskGP(x, y)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    places = torch.linspace(0, 1, 5, dtype=torch.float64)[:, None, None]
    with torch.no_grad():
        return {"mean": model.posterior(places).mean, "ucb": UpperConfidenceBound(model, beta=0.2)(places), "ei": ExpectedImprovement(model, best_f=y.max())(places)}


@job("linear_operator")
def operators():
    from linear_operator import to_linear_operator
    from linear_operator.operators import DiagLinearOperator, ToeplitzLinearOperator

    a = numbers(6, 6)
    matrix = to_linear_operator(a @ a.T + 6 * torch.eye(6))
    toeplitz = ToeplitzLinearOperator(torch.tensor([4.0, 1.0, 0.5, 0.2, 0.1, 0.0]))
    return {
        "solve": matrix.solve(numbers(6, 2)), "logdet": matrix.logdet(), "sum": (matrix + DiagLinearOperator(torch.ones(6))).to_dense(),
        "product": toeplitz.matmul(numbers(6, 2)),
    }


@job("zuko")
def flows():
    import zuko

    flow = fill(zuko.flows.NSF(features=3, context=2, transforms=2, hidden_features=(16,)), 0.2, buffers=False)
    loss = -flow(numbers(5, 2)).log_prob(numbers(5, 3, step=0.5)).mean()
    return step(flow, loss)


@job("normflows")
def couplings():
    import normflows

    base = normflows.distributions.base.DiagGaussian(2)
    layers = [normflows.flows.AffineCouplingBlock(normflows.nets.MLP([1, 8, 2], init_zeros=False)), normflows.flows.Permute(2, mode="swap")]
    model = fill(normflows.NormalizingFlow(base, layers), 0.2)
    return step(model, model.forward_kld(numbers(6, 2)))


@job("nflows")
def autoregressive():
    from nflows.distributions.normal import StandardNormal
    from nflows.flows.base import Flow
    from nflows.transforms.autoregressive import MaskedAffineAutoregressiveTransform
    from nflows.transforms.base import CompositeTransform
    from nflows.transforms.permutations import ReversePermutation

    layers = [ReversePermutation(features=3), MaskedAffineAutoregressiveTransform(features=3, hidden_features=8)]
    flow = fill(Flow(CompositeTransform(layers), StandardNormal([3])), 0.2)
    return step(flow, -flow.log_prob(numbers(6, 3)).mean())


@job("laplace")
def posterior():
    from laplace import Laplace

    net = fill(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)), 0.3)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(numbers(16, 3), numbers(16, 1, step=0.5)), batch_size=8)
    found = Laplace(net, "regression", subset_of_weights="last_layer", hessian_structure="full")
    found.fit(loader)
    mean, variance = found(numbers(4, 3))
    return {"mean": mean, "variance": variance, "evidence": found.log_marginal_likelihood()}


@job("torchsde")
def stochastic():
    import torchsde

    class Field(nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self):
            super().__init__()
            self.net = fill(nn.Linear(2, 2), 0.3)

        def f(self, t, y):
            return self.net(y)

        def g(self, t, y):
            return torch.zeros_like(y)

    # Without noise the path is the same in both.
    return {"path": torchsde.sdeint(Field(), numbers(3, 2), torch.linspace(0, 1, 4), method="euler", dt=0.1)}


@job("torchcde")
def controlled():
    import torchcde

    x = torch.cat([torch.linspace(0, 1, 6)[None, :, None].expand(2, -1, -1), numbers(2, 6, 2)], -1)
    path = torchcde.CubicSpline(torchcde.hermite_cubic_coefficients_with_backward_differences(x))

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = fill(nn.Linear(4, 12), 0.2)

        def forward(self, t, z):
            return self.net(z).tanh().view(*z.shape[:-1], 4, 3)

    return {"out": torchcde.cdeint(path, Field(), numbers(2, 4), path.interval, method="rk4", options={"step_size": 0.1}, adjoint=False)}


@job("torchode")
def batched():
    import torchode

    term = torchode.ODETerm(lambda t, y: -y)
    solver = torchode.AutoDiffAdjoint(torchode.Dopri5(term=term), torchode.IntegralController(atol=1e-6, rtol=1e-4, term=term))
    found = solver.solve(torchode.InitialValueProblem(y0=numbers(3, 2), t_eval=torch.linspace(0, 1, 5).repeat(3, 1)))
    return {"path": found.ys}


@job("torchdyn")
def dynamics():
    from torchdyn.numerics import odeint

    field = fill(nn.Linear(2, 2), 0.3)
    return {"path": odeint(lambda t, x: field(x), numbers(3, 2), torch.linspace(0, 1, 4), solver="dopri5")[1]}


@job("e3nn")
def rotations():
    from e3nn import o3

    x = o3.Irreps("4x0e + 2x1o").randn(3, -1)
    x = numbers(*x.shape)
    product = o3.FullyConnectedTensorProduct("4x0e + 2x1o", "1x1o", "3x0e + 2x1o")
    fill(product, 0.3)
    return {"harmonics": o3.spherical_harmonics([0, 1, 2], numbers(5, 3), normalize=True), "wigner": o3.wigner_3j(1, 1, 2), "product": product(x, numbers(3, 3))}


@job("neuralop")
def fourier():
    from neuralop.models import FNO

    net = fill(FNO(n_modes=(4, 4), in_channels=1, out_channels=1, hidden_channels=8, n_layers=2), 0.1)
    out = net(numbers(1, 1, 12, 12))
    return {"out": out, **step(net, out.square().mean())}


@job("neuralop", "training")
def operator():
    """A Fourier neural operator that learns a smoothing of functions: its loss in Sobolev space, several steps."""
    from neuralop import H1Loss
    from neuralop.models import FNO

    net = fill(FNO(n_modes=(6, 6), in_channels=1, out_channels=1, hidden_channels=12, n_layers=2), 0.1)
    x = numbers(4, 1, 16, 16, step=0.11)
    y = torch.fft.irfft2(torch.fft.rfft2(x) * torch.exp(-torch.arange(9) * 0.4))
    optimizer, loss = torch.optim.AdamW(net.parameters(), lr=5e-3), H1Loss(d=2)
    found = {f"loss {epoch}": step(net, loss(net(x), y), optimizer)["loss"] for epoch in range(6)}
    with torch.no_grad():
        return {**found, "finer": net(numbers(1, 1, 24, 24, step=0.11))}


@job("torchquad")
def quadrature():
    from torchquad import Simpson, Trapezoid, set_up_backend

    set_up_backend("torch", data_type="float32")
    domain = [[0.0, 1.0], [0.0, 2.0]]
    return {kind.__name__: kind().integrate(lambda x: (x[:, 0] * x[:, 1]).sin(), dim=2, N=441, integration_domain=torch.tensor(domain)) for kind in (Simpson, Trapezoid)}


@job("tensorly")
def decompositions():
    import tensorly
    from tensorly.decomposition import parafac, tucker

    tensorly.set_backend("pytorch")
    x = numbers(4, 5, 6)
    rebuilt = tensorly.cp_to_tensor(parafac(x, rank=3, init="svd", n_iter_max=20))
    return {"parafac": rebuilt, "tucker": tensorly.tucker_to_tensor(tucker(x, rank=[2, 3, 3], n_iter_max=10))}


@job("tntorch")
def trains():
    import tntorch

    x = numbers(4, 5, 6)
    t = tntorch.Tensor(x, ranks_tt=3)
    return {"whole": t.torch(), "norm": tntorch.norm(t)}


@job("entmax")
def sparse_maps():
    from entmax import entmax15, entmax_bisect, sparsemax

    x = numbers(4, 6, scale=3.0).requires_grad_()
    found = {"sparsemax": sparsemax(x, dim=-1), "entmax": entmax15(x, dim=-1), "bisected": entmax_bisect(x, alpha=1.3, dim=-1)}
    found["entmax"].square().sum().backward()
    return {**found, "gradient": x.grad}


@job("autoray")
def arrays():
    import autoray

    x = numbers(4, 4)
    assert autoray.infer_backend(x) == "torch"
    u, s, v = autoray.do("linalg.svd", x)
    return {"values": s, "sum": autoray.do("sum", x, 0), "einsum": autoray.do("einsum", "ab,cb->ac", x, x)}


@job("einx")
def notation():
    import einx

    x = numbers(2, 6, 4)
    return {"mean": einx.mean("b [n] c", x), "split": einx.id("b (n m) c -> b n (m c)", x, m=3), "dot": einx.dot("b n c, c d -> b n d", x, numbers(4, 3))}


@job("jaxtyping")
def shapes():
    from jaxtyping import Float, jaxtyped
    from torch import Tensor

    assert isinstance(numbers(3, 4), Float[Tensor, "a b"]) and not isinstance(numbers(3), Float[Tensor, "a b"])
    assert jaxtyped is not None
    return {}


# Optimisers.


def _optimised(make, steps=4):
    layer = fill(nn.Linear(4, 3))
    optimizer = make(layer.parameters())
    if hasattr(optimizer, "train"):
        optimizer.train()
    for _ in range(steps):
        step(layer, layer(numbers(5, 4)).square().mean(), optimizer)
    return layer.weight.detach().clone()


@job("torch_optimizer")
def optimisers():
    import torch_optimizer

    names = ("AdaBound", "AdaMod", "DiffGrad", "Lamb", "NovoGrad", "QHAdam", "RAdam", "Yogi", "SGDW", "Shampoo", "SWATS", "PID")
    return {name: _optimised(lambda p: getattr(torch_optimizer, name)(p, lr=1e-2)) for name in names}


@job("lion_pytorch")
def lion():
    from lion_pytorch import Lion

    return {"weight": _optimised(lambda p: Lion(p, lr=1e-2))}


@job("schedulefree")
def schedule_free():
    import schedulefree

    return {kind.__name__: _optimised(lambda p: kind(p, lr=1e-2)) for kind in (schedulefree.AdamWScheduleFree, schedulefree.SGDScheduleFree)}


@job("prodigyopt")
def prodigy():
    from prodigyopt import Prodigy

    return {"weight": _optimised(lambda p: Prodigy(p))}


@job("adabelief_pytorch")
def belief():
    from adabelief_pytorch import AdaBelief

    return {"weight": _optimised(lambda p: AdaBelief(p, lr=1e-2, eps=1e-12, weight_decouple=True, rectify=True, print_change_log=False))}


@job("heavyball")
def heavy():
    import heavyball

    heavyball.utils.compile_mode = None
    return {"weight": _optimised(lambda p: heavyball.AdamW(list(p), lr=1e-2))}


@job("torchopt")
def differentiable():
    import torchopt

    net = fill(nn.Linear(3, 1), 0.3)
    inner = torchopt.MetaSGD(net, lr=0.1)
    for _ in range(2):
        inner.step(net(numbers(5, 3)).square().mean())
    scale = net(numbers(5, 3, step=0.5)).square().mean()
    return {"loss": scale, "adam": _optimised(lambda p: torchopt.Adam(p, lr=1e-2))}


@job("pytorch_warmup")
def warmup():
    import pytorch_warmup

    optimizer = torch.optim.AdamW([nn.Parameter(torch.zeros(2))], lr=0.1)
    schedule, found = pytorch_warmup.LinearWarmup(optimizer, warmup_period=5), {}
    for at in range(4):
        optimizer.step()
        with schedule.dampening():
            pass
        found[str(at)] = optimizer.param_groups[0]["lr"]
    return found


@job("torch_ema")
def averages():
    from torch_ema import ExponentialMovingAverage

    net = fill(nn.Linear(4, 3))
    ema = ExponentialMovingAverage(net.parameters(), decay=0.9)
    with torch.no_grad():
        net.weight.add_(1.0)
    ema.update()
    with ema.average_parameters():
        return {"out": net(numbers(2, 4))}


@job("higher")
def inner_loops():
    import higher

    net = fill(nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)), 0.3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with higher.innerloop_ctx(net, optimizer, copy_initial_weights=False) as (inner, changed):
        for _ in range(2):
            changed.step((inner(numbers(5, 3)) - numbers(5, 1, step=0.5)).square().mean())
        (inner(numbers(4, 3, step=0.2)) ** 2).mean().backward()
    return {"gradient": net[0].weight.grad}


@job("pytorch_metric_learning")
def metric_losses():
    from pytorch_metric_learning import losses, miners

    net = fill(nn.Linear(6, 4), 0.5)
    out, labels = net(numbers(12, 6)), tokens(12, vocabulary=3, step=1)
    found = {"mined": losses.TripletMarginLoss()(out, labels, miners.MultiSimilarityMiner()(out, labels))}
    for kind in (losses.ContrastiveLoss, losses.NTXentLoss, losses.CircleLoss, losses.SupConLoss, losses.MultiSimilarityLoss):
        found[kind.__name__] = kind()(out, labels)
    return {**found, **step(net, found["NTXentLoss"])}


@job("torchdiffeq", "events")
def events():
    from torchdiffeq import odeint_event

    time, path = odeint_event(lambda t, y: torch.ones_like(y), torch.tensor([0.0]), torch.tensor(0.0), event_fn=lambda t, y: y[0] - 0.5, method="dopri5")
    return {"time": time, "path": path[-1], "half": math.pi / 2}
