"""Jobs of further libraries: attacks, transport, geometry, quantisation, detection, language, chemistry, time series."""

import os
import tempfile

import torch
from common import fill, job, numbers, step, tokens

nn = torch.nn


def _net():
    return fill(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3)), 0.3)


def _convolutions():
    return fill(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)), 0.3).eval()


def _pictures(*shape):
    return numbers(*shape).mul(0.5).add(0.5)


def _descended(module, loss):
    """The sum of a module's gradients and its loss after a step of SGD."""
    return step(module, loss, torch.optim.SGD(module.parameters(), lr=1e-2))


# Attacks and attributions.


@job("torchattacks")
def attacks():
    import torchattacks

    net, x, y = _convolutions(), _pictures(2, 3, 16, 16), torch.tensor([1, 4])
    return {
        "fgsm": torchattacks.FGSM(net, eps=0.03)(x, y), "pgd": torchattacks.PGD(net, eps=0.03, steps=3, random_start=False)(x, y),
        "cw": torchattacks.CW(net, steps=3)(x, y), "mifgsm": torchattacks.MIFGSM(net, steps=3)(x, y),
    }


@job("foolbox")
def perturbations():
    import foolbox

    model, x, y = foolbox.PyTorchModel(_convolutions(), bounds=(0, 1)), _pictures(2, 3, 16, 16), torch.tensor([1, 4])
    found = {}
    for name, attack in (("fgsm", foolbox.attacks.FGSM()), ("deepfool", foolbox.attacks.LinfDeepFoolAttack(steps=3)), ("l2", foolbox.attacks.L2FastGradientAttack())):
        found[name] = attack(model, x, y, epsilons=0.05)[1]
    return found


@job("pytorch_grad_cam")
def class_activations():
    from pytorch_grad_cam import GradCAM, GradCAMPlusPlus, XGradCAM
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    net, x = _convolutions(), _pictures(2, 3, 16, 16)
    found = {}
    for kind in (GradCAM, GradCAMPlusPlus, XGradCAM):
        with kind(model=net, target_layers=[net[0]]) as made:
            found[kind.__name__] = torch.from_numpy(made(input_tensor=x, targets=[ClassifierOutputTarget(1)] * 2))
    return found


@job("zennit")
def relevances():
    from zennit.attribution import Gradient
    from zennit.composites import EpsilonGammaBox

    x = _pictures(1, 3, 16, 16)
    net = fill(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 256, 5)), 0.3)
    with Gradient(model=net, composite=EpsilonGammaBox(low=0.0, high=1.0)) as made:
        out, relevance = made(x, torch.eye(5)[[1]])
    return {"out": out, "relevance": relevance}


@job("shap")
def contributions():
    import shap

    net, x = _net(), numbers(12, 4)
    found = shap.DeepExplainer(net, x[:8]).shap_values(x[8:], check_additivity=False)
    return {"deep": torch.from_numpy(found)}


@job("quantus")
def explanations():
    import quantus

    net, x = _convolutions(), _pictures(2, 3, 16, 16)
    found = quantus.explain(net, x.numpy(), torch.tensor([1, 4]).numpy(), method="Saliency", device="cpu")
    return {"saliency": torch.from_numpy(found), "complexity": torch.tensor(quantus.Complexity(disable_warnings=True)(net, x.numpy(), torch.tensor([1, 4]).numpy(), a_batch=found))}


# Transport, geometry, wavelets.


@job("geomloss")
def transport():
    from geomloss import SamplesLoss

    found = {}
    for name in ("sinkhorn", "energy", "gaussian", "laplacian"):
        x, y = numbers(10, 3).requires_grad_(), numbers(12, 3, step=0.53)
        loss = SamplesLoss(name, p=2, blur=0.1, backend="tensorized")(x, y)
        loss.backward()
        found[name], found[f"{name}, gradient"] = loss, x.grad
    return found


@job("ot")
def plans():
    import ot

    x, y = numbers(6, 2).double(), numbers(7, 2, step=0.53).double()
    a, b = torch.full((6,), 1 / 6, dtype=torch.float64), torch.full((7,), 1 / 7, dtype=torch.float64)
    cost = ot.dist(x, y).requires_grad_()
    loss = ot.emd2(a, b, cost)
    loss.backward()
    return {
        "emd": loss, "gradient": cost.grad, "sinkhorn": ot.sinkhorn(a, b, cost.detach(), reg=0.5), "sliced": ot.sliced_wasserstein_distance(x, y, seed=1) * 0,
        "unbalanced": ot.unbalanced.sinkhorn_unbalanced(a, b, cost.detach(), 0.5, 1.0), "gromov": ot.gromov_wasserstein2(ot.dist(x, x), ot.dist(y, y), a, b),
    }


@job("geoopt")
def manifolds():
    import geoopt

    ball = geoopt.PoincareBall()
    x, y = ball.expmap0(numbers(5, 3, scale=0.3)), ball.expmap0(numbers(5, 3, step=0.53, scale=0.3))
    found = {"distance": ball.dist(x, y), "sum": ball.mobius_add(x, y), "logarithm": ball.logmap(x, y)}
    for kind, manifold in (("sphere", geoopt.Sphere()), ("stiefel", geoopt.Stiefel())):
        # Of full rank, so that the nearest orthogonal matrix is one.
        p = geoopt.ManifoldParameter(manifold.projx(numbers(5, 3) + torch.eye(5, 3)), manifold=manifold)
        for optimizer in (geoopt.optim.RiemannianAdam([p], lr=0.1), geoopt.optim.RiemannianSGD([p], lr=0.1, momentum=0.9)):
            for _ in range(2):
                optimizer.zero_grad()
                (p * numbers(5, 3, step=0.7)).sum().backward()
                optimizer.step()
        found[kind] = p.detach()
    return found


# Layers, optimizers, quantisation.


@job("torchcrf")
def tags():
    from torchcrf import CRF

    net = fill(CRF(5, batch_first=True), 0.3)
    scores, labels = numbers(2, 6, 5).requires_grad_(), tokens(2, 6, vocabulary=5)
    mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]], dtype=torch.bool)
    loss = -net(scores, labels, mask=mask)
    loss.backward()
    return {"loss": loss, "gradient": scores.grad, "best": torch.tensor(sum(net.decode(scores, mask=mask), []))}


@job("loralib")
def low_ranks():
    import loralib

    net = fill(nn.Sequential(loralib.Linear(4, 16, r=2), nn.ReLU(), loralib.MergedLinear(16, 6, r=2, enable_lora=[True, False])), 0.3)
    loralib.mark_only_lora_as_trainable(net)
    x = numbers(5, 4)
    found = _descended(net, net(x).square().mean())
    return {**found, "merged": net.eval()(x), "state": sum(v.abs().sum() for v in loralib.lora_state_dict(net).values())}


@job("pytorch_optimizer")
def many_optimizers():
    import pytorch_optimizer

    found = {}
    for name in ("adabelief", "adan", "sophiah", "lamb", "madgrad", "tiger", "ranger21", "shampoo", "soap", "came", "adopt", "grokfastadamw", "lion", "novograd", "yogi"):
        net = _net()
        try:
            cls = pytorch_optimizer.load_optimizer(name)
        except NotImplementedError:
            continue
        options = {"num_iterations": 10} if name == "ranger21" else {}
        optimizer = cls(net.parameters(), lr=1e-2, **options)
        for _ in range(2):
            optimizer.zero_grad()
            net(numbers(5, 4)).square().mean().backward(create_graph=name == "sophiah")
            optimizer.step()
        if name not in ("sophiah", "soap"):
            # One's estimate of the Hessian is random, the other's basis is arbitrary where eigenvalues are equal.
            found[name] = net[0].weight
    return found


@job("optimum", "quanto")
def quanto():
    from optimum.quanto import Calibration, freeze, qint8, quantize

    found = {}
    for name, options in (("int8", {"weights": qint8}), ("activations", {"weights": qint8, "activations": qint8})):
        net = fill(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)), 0.3)
        quantize(net, **options)
        if "activations" in options:
            with Calibration():
                net(numbers(4, 64))
        freeze(net)
        found[name] = net(numbers(4, 64))
    return found


@job("hqq")
def half_quadratic():
    from hqq.core.quantize import BaseQuantizeConfig, HQQLinear

    found = {}
    for bits in (8, 4):
        layer = HQQLinear(fill(nn.Linear(64, 32), 0.3), BaseQuantizeConfig(nbits=bits, group_size=16), compute_dtype=torch.float32, device="cpu")
        found[f"{bits} bits"] = layer(numbers(4, 64))
    return found


@job("fairscale")
def scaled():
    from fairscale.nn import FlattenParamsWrapper, checkpoint_wrapper
    from fairscale.optim import AdaScale  # noqa: F401

    net = nn.Sequential(checkpoint_wrapper(_net()), nn.Linear(3, 2))
    fill(net[1], 0.3)
    found = _descended(net, net(numbers(5, 4)).square().mean())
    return {**found, "flat": FlattenParamsWrapper(_net())(numbers(5, 4))}


# Training systems.


@job("keras")
def keras_model():
    os.environ["KERAS_BACKEND"] = "torch"
    import keras
    import numpy

    keras.utils.set_random_seed(0)
    net = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3, activation="softmax")])
    net.set_weights([numbers(*w.shape, step=0.3 + at, scale=0.3).numpy() for at, w in enumerate(net.get_weights())])
    net.compile(optimizer=keras.optimizers.Adam(1e-2), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    done = net.fit(numbers(32, 4).numpy(), tokens(32, vocabulary=3).numpy(), epochs=2, batch_size=8, shuffle=False, verbose=0)
    pictures = keras.Sequential([keras.layers.Input((16, 16, 3)), keras.layers.Conv2D(4, 3), keras.layers.BatchNormalization(), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(2)])
    pictures.set_weights([numbers(*w.shape, step=0.3 + at, scale=0.3).abs().numpy() for at, w in enumerate(pictures.get_weights())])
    words = keras.Sequential([keras.layers.Input((6,)), keras.layers.Embedding(20, 8), keras.layers.LSTM(8), keras.layers.Dense(2)])
    words.set_weights([numbers(*w.shape, step=0.3 + at, scale=0.3).numpy() for at, w in enumerate(words.get_weights())])
    return {
        **{f"{k} {at}": v for k, values in done.history.items() for at, v in enumerate(values)},
        "predicted": torch.from_numpy(numpy.array(net.predict(numbers(4, 4).numpy(), verbose=0))),
        "pictures": torch.from_numpy(numpy.array(pictures.predict(numbers(2, 16, 16, 3).numpy(), verbose=0))),
        "words": torch.from_numpy(numpy.array(words.predict(tokens(2, 6, vocabulary=20).numpy(), verbose=0))),
    }


@job("mmengine")
def runner():
    from mmengine.model import BaseModel
    from mmengine.runner import Runner

    losses = []

    class Model(BaseModel):
        def __init__(self):
            super().__init__()
            self.net = _net()

        def forward(self, x, y, mode):
            loss = nn.functional.cross_entropy(self.net(x), y)
            losses.append(loss.item())
            return {"loss": loss}

    data = torch.utils.data.TensorDataset(numbers(32, 4), tokens(32, vocabulary=3))
    with tempfile.TemporaryDirectory() as folder:
        Runner(
            Model(), work_dir=folder, train_dataloader=torch.utils.data.DataLoader(data, batch_size=8), train_cfg=dict(by_epoch=True, max_epochs=2),
            optim_wrapper=dict(optimizer=dict(type="SGD", lr=0.1)), log_level="ERROR",
            # Of another name each time: it keeps the first run's folder otherwise.
            experiment_name=os.path.basename(folder),
        ).train()
    return {f"loss {at}": loss for at, loss in enumerate(losses)}


@job("torchtuples")
def tuples():
    import torchtuples

    net = _net()
    model = torchtuples.Model(net, nn.MSELoss(), torchtuples.optim.SGD(0.1))
    done = model.fit(numbers(32, 4), numbers(32, 3, step=0.53), batch_size=8, epochs=2, verbose=False, shuffle=False)
    return {"loss": torch.tensor(done.to_pandas()["train_loss"].to_numpy()), "predicted": model.predict(numbers(4, 4))}


@job("webdataset")
def shards():
    import io
    import tarfile

    import webdataset

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "part.tar")
        with tarfile.open(path, "w") as archive:
            for at in range(6):
                data = io.BytesIO()
                torch.save(numbers(3, step=0.3 + at), data)
                for name, content in ((f"{at}.pth", data.getvalue()), (f"{at}.cls", str(at % 3).encode())):
                    info = tarfile.TarInfo(name)
                    info.size = len(content)
                    archive.addfile(info, io.BytesIO(content))
        rows = webdataset.WebDataset(path, shardshuffle=False).decode().to_tuple("pth", "cls").batched(3)
        found = list(torch.utils.data.DataLoader(rows, batch_size=None))
    return {f"x {at}": x for at, (x, _) in enumerate(found)} | {f"y {at}": torch.as_tensor(y) for at, (_, y) in enumerate(found)}


@job("torchdata")
def nodes():
    from torchdata.nodes import Batcher, IterableWrapper, Loader, Mapper
    from torchdata.stateful_dataloader import StatefulDataLoader

    node = Mapper(Batcher(IterableWrapper(range(10)), 4, drop_last=False), torch.tensor)
    loader = StatefulDataLoader(torch.utils.data.TensorDataset(numbers(8, 2)), batch_size=2)
    rows = iter(loader)
    next(rows)
    state = loader.state_dict()
    again = StatefulDataLoader(torch.utils.data.TensorDataset(numbers(8, 2)), batch_size=2)
    again.load_state_dict(state)
    return {"nodes": torch.cat(list(Loader(node))), "resumed": torch.cat([row[0] for row in again])}
