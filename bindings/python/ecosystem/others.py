"""Jobs of libraries around models: metrics, training loops, attributions, differential equations, processes, graphs, agents."""

import math

import torch
from common import fill, job, numbers, step, tokens

nn = torch.nn


def _net():
    return fill(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3)), 0.3)


# torchmetrics.


@job("torchmetrics")
def classification():
    import torchmetrics

    scores, labels = numbers(32, 4).softmax(-1), tokens(32, vocabulary=4, step=5)
    found = {}
    for name in ("Accuracy", "F1Score", "Precision", "Recall", "AUROC", "ConfusionMatrix", "CohenKappa"):
        metric = getattr(torchmetrics, name)(task="multiclass", num_classes=4)
        metric.update(scores[:16], labels[:16])
        metric.update(scores[16:], labels[16:])
        found[name] = metric.compute().float()
    return found


@job("torchmetrics")
def regression_and_images():
    import torchmetrics
    from torchmetrics.image import PeakSignalNoiseRatio, StructuralSimilarityIndexMeasure

    a, b = numbers(2, 3, 24, 24).abs(), numbers(2, 3, 24, 24, step=0.41).abs()
    found = {"psnr": PeakSignalNoiseRatio(data_range=1.0)(a, b), "ssim": StructuralSimilarityIndexMeasure(data_range=1.0)(a, b)}
    for name in ("MeanSquaredError", "MeanAbsoluteError", "R2Score", "PearsonCorrCoef", "SpearmanCorrCoef"):
        found[name] = getattr(torchmetrics, name)()(a.reshape(-1), b.reshape(-1))
    both = torchmetrics.MetricCollection([torchmetrics.MeanSquaredError(), torchmetrics.MeanAbsoluteError()])
    return {**found, **{f"collection {k}": v for k, v in both(a, b).items()}}


# einops.


@job("einops")
def layers():
    from einops import einsum, rearrange, reduce, repeat
    from einops.layers.torch import Rearrange, Reduce

    x = numbers(2, 3, 8, 8)
    net = nn.Sequential(Rearrange("b c (h p) (w q) -> b (h w) (c p q)", p=4, q=4), fill(nn.Linear(48, 5)), Reduce("b n d -> b d", "mean"))
    return {
        "rearranged": rearrange(x, "b c h w -> b (h w) c"), "reduced": reduce(x, "b c (h 2) (w 2) -> b c h w", "max"), "repeated": repeat(x[:, :, 0, 0], "b c -> b c n", n=3),
        "einsum": einsum(x, x, "b c h w, b d h w -> b c d"), "net": net(x),
    }


# Training loops.


@job("skorch")
def classifier():
    import numpy
    from skorch import NeuralNetClassifier

    x, y = numbers(64, 4).numpy(), tokens(64, vocabulary=3).numpy().astype(numpy.int64)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = _net()

        def forward(self, x):
            return self.net(x).softmax(-1)

    net = NeuralNetClassifier(Net, max_epochs=3, lr=0.1, verbose=0, train_split=None, iterator_train__shuffle=False)
    net.fit(x, y)
    return {f"loss {at}": loss for at, loss in enumerate(net.history[:, "train_loss"])}


@job("ignite")
def engine():
    from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
    from ignite.metrics import Accuracy, Loss

    net, criterion = _net(), nn.CrossEntropyLoss()
    data = [(numbers(8, 4, step=0.3 + i), tokens(8, vocabulary=3, step=i + 1)) for i in range(4)]
    trainer = create_supervised_trainer(net, torch.optim.SGD(net.parameters(), lr=0.1), criterion)
    evaluator = create_supervised_evaluator(net, metrics={"accuracy": Accuracy(), "loss": Loss(criterion)})
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda: evaluator.run(data))
    trainer.run(data, max_epochs=3)
    return dict(evaluator.state.metrics)


@job("fastai")
def learner():
    import fastai.callback.progress  # noqa: F401  (gives learners no_bar)
    from fastai.data.core import DataLoaders
    from fastai.learner import Learner

    data = torch.utils.data.TensorDataset(numbers(64, 4), tokens(64, vocabulary=3))
    loaders = [torch.utils.data.DataLoader(data, batch_size=16) for _ in range(2)]
    made = Learner(DataLoaders(*loaders, device="cpu"), _net(), loss_func=nn.CrossEntropyLoss(), opt_func=_sgd())
    with made.no_bar(), made.no_logging():
        made.fit(2, lr=0.1)
        loss = made.validate()[0]
    return {"loss": float(loss)}


def _sgd():
    from functools import partial

    from fastai.optimizer import OptimWrapper

    return partial(OptimWrapper, opt=torch.optim.SGD)


# Models that are looked at.


@job("captum")
def attributions():
    from captum.attr import DeepLift, IntegratedGradients, LayerConductance, Occlusion, Saliency

    net, x = _net(), numbers(2, 4).requires_grad_()
    return {
        "integrated": IntegratedGradients(net).attribute(x, target=1, n_steps=20), "saliency": Saliency(net).attribute(x, target=1),
        "deeplift": DeepLift(net).attribute(x, target=1), "conductance": LayerConductance(net, net[0]).attribute(x, target=1, n_steps=20),
        "occlusion": Occlusion(net).attribute(x, sliding_window_shapes=(1,), target=1),
    }


@job("torchinfo")
def summary():
    from torchinfo import summary

    found = summary(_net(), input_size=(2, 4), verbose=0)
    return {"parameters": found.total_params, "operations": found.total_mult_adds}


# Mathematics.


@job("torchdiffeq")
def solvers():
    from torchdiffeq import odeint, odeint_adjoint

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = fill(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2)), 0.3)

        def forward(self, t, y):
            return self.net(y)

    field, start, times = Field(), numbers(3, 2), torch.linspace(0, 1, 5)
    found = {name: odeint(field, start, times, method=name) for name in ("dopri5", "rk4", "euler")}
    odeint_adjoint(field, start, times).square().sum().backward()
    return {**found, "gradient": field.net[0].weight.grad}


@job("gpytorch")
def process():
    import gpytorch

    x = torch.linspace(0, 1, 20)
    y = (x * 2 * math.pi).sin() + 0.5 * x

    class Process(gpytorch.models.ExactGP):
        def __init__(self, x, y, likelihood):
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Process(x, y, likelihood)
    model.train(), likelihood.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    found = {}
    for at in range(3):
        optimizer.zero_grad()
        loss = -objective(model(x), y)
        loss.backward()
        optimizer.step()
        found[f"loss {at}"] = loss
    model.eval(), likelihood.eval()
    with torch.no_grad():
        found["mean"] = likelihood(model(torch.tensor([0.25, 0.75]))).mean
    return found


@job("kornia")
def images():
    import kornia

    x = numbers(1, 3, 16, 16).abs()
    return {
        "gray": kornia.color.rgb_to_grayscale(x), "blurred": kornia.filters.gaussian_blur2d(x, (5, 5), (1.5, 1.5)), "edges": kornia.filters.sobel(x),
        "rotated": kornia.geometry.transform.rotate(x, torch.tensor([30.0])), "hsv": kornia.color.rgb_to_hsv(x), "ssim": kornia.metrics.ssim(x, x * 0.9, 5),
    }


# Further models.


@job("diffusers")
def unet():
    from diffusers import DDIMScheduler, UNet2DModel

    model = fill(UNet2DModel(
        sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(16, 32), down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"), norm_num_groups=8, attention_head_dim=8,
    ))
    scheduler = DDIMScheduler(num_train_timesteps=50)
    clean, noise, at = numbers(2, 3, 16, 16), numbers(2, 3, 16, 16, step=0.9), torch.tensor([5, 20])
    out = model(scheduler.add_noise(clean, noise, at), at).sample
    found = {"out": out, **step(model, nn.functional.mse_loss(out, noise))}
    scheduler.set_timesteps(3)
    x = noise
    with torch.no_grad():
        for t in scheduler.timesteps:
            x = scheduler.step(model(x, t).sample, t, x).prev_sample
    return {**found, "sampled": x}


@job("sentence_transformers")
def embeddings():
    import tempfile

    from sentence_transformers import SentenceTransformer, losses, models, util
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = "[PAD] [UNK] [CLS] [SEP] [MASK] a cat sat on the mat dog ran in park".split()
    inner = Tokenizer(WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
    bert = fill(BertModel(BertConfig(vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32))).eval()
    with tempfile.TemporaryDirectory() as folder:
        bert.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        word = models.Transformer(folder, max_seq_length=16)
        model = SentenceTransformer(modules=[word, models.Pooling(word.get_word_embedding_dimension())], device="cpu")
    found = model.encode(["a cat sat on the mat", "a dog ran in the park"], convert_to_tensor=True)
    assert losses.MultipleNegativesRankingLoss(model) is not None
    return {"embeddings": found, "similarity": util.cos_sim(found[0], found[1])}


@job("torch_geometric")
def graph_network():
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv, global_mean_pool

    edges = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 0], [1, 0, 2, 1, 3, 2, 0, 3]])
    batch = Batch.from_data_list([Data(x=numbers(4, 5, step=0.3 + i), edge_index=edges) for i in range(2)])
    found = {}
    for layer in (GCNConv(5, 3), SAGEConv(5, 3), GATConv(5, 3, heads=2)):
        fill(layer, 0.3)
        out = global_mean_pool(layer(batch.x, batch.edge_index), batch.batch)
        name = type(layer).__name__
        found[name] = out
        found[f"{name} gradients"] = step(layer, out.square().sum())["gradients"]
    return found


@job("stable_baselines3")
def agent():
    import gymnasium
    from stable_baselines3 import A2C, DQN, PPO

    found = {}
    for kind in (PPO, A2C, DQN):
        options = {"n_steps": 32, "batch_size": 16} if kind is PPO else {"learning_starts": 20, "buffer_size": 200} if kind is DQN else {}
        model = kind("MlpPolicy", gymnasium.make("CartPole-v1"), seed=0, device="cpu", policy_kwargs={"net_arch": [8]}, **options)
        model.learn(64)
        action, _ = model.predict(numbers(4).numpy(), deterministic=True)
        assert int(action) in (0, 1)
    # Random numbers differ between the two: that it runs is what counts.
    return found


@job("lightning")
def trainer_fit():
    import tempfile
    import warnings

    import lightning

    warnings.filterwarnings("ignore")

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.losses = _net(), []

        def training_step(self, batch, index):
            x, y = batch
            loss = nn.functional.cross_entropy(self.net(x), y)
            self.log("loss", loss)
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]

    data = torch.utils.data.TensorDataset(numbers(32, 4), tokens(32, vocabulary=3))
    net = Net()
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            max_epochs=2, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder, gradient_clip_val=1.0,
        )
        trainer.fit(net, torch.utils.data.DataLoader(data, batch_size=8))
        path = f"{folder}/last.ckpt"
        trainer.save_checkpoint(path)
        again = Net.load_from_checkpoint(path)
    assert torch.equal(again.net[0].weight, net.net[0].weight)
    return {f"loss {at}": loss for at, loss in enumerate(net.losses)}


@job("lightning")
def trainer_options():
    """One training run under each of the options of ``Trainer`` that change its arithmetic."""
    import warnings

    import lightning

    warnings.filterwarnings("ignore")

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = _net()

        def training_step(self, batch, index):
            loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    data = torch.utils.data.TensorDataset(numbers(32, 4), tokens(32, vocabulary=3))
    options = {
        "clipped by value": {"gradient_clip_val": 0.1, "gradient_clip_algorithm": "value"},
        "accumulated": {"accumulate_grad_batches": 3},
        "double": {"precision": "64-true"},
        "few steps": {"max_steps": 3},
        "overfit": {"overfit_batches": 2},
        "averaged": {"max_epochs": 4, "callbacks": lambda: [lightning.pytorch.callbacks.StochasticWeightAveraging(1e-2)]},
    }
    found = {}
    for name, extra in options.items():
        extra = {key: value() if callable(value) else value for key, value in extra.items()}
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
        trainer = lightning.Trainer(**{"max_epochs": 2, "accelerator": "cpu", "devices": 1, **quiet, **extra})
        net = Net()
        trainer.fit(net, torch.utils.data.DataLoader(data, batch_size=8))
        found[name] = net.net[0].weight.detach().double()
    return found
