"""Jobs of tools around models: loops, agents, privacy, counters of operations, tables, files."""

import io
import os
import tempfile

import torch
from common import fill, job, numbers, step, tokens

nn = torch.nn


def _net():
    return fill(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3)), 0.3)


def _data():
    return torch.utils.data.TensorDataset(numbers(32, 4), tokens(32, vocabulary=3))


def _convolutions():
    return fill(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)), 0.3)


# Counters of operations, pictures of graphs.


@job("ptflops")
def operations():
    from ptflops import get_model_complexity_info

    with open(os.devnull, "w") as file:
        found = get_model_complexity_info(_convolutions(), (3, 16, 16), as_strings=False, print_per_layer_stat=False, ost=file, backend="pytorch")
    return {"operations": found[0], "parameters": found[1]}


@job("ptflops", "calls")
def calls():
    from ptflops import get_model_complexity_info

    with open(os.devnull, "w") as file:
        found = get_model_complexity_info(_convolutions(), (3, 16, 16), as_strings=False, print_per_layer_stat=False, ost=file, backend="aten")
    return {"operations": found[0], "parameters": found[1]}


@job("fvcore")
def counts():
    from fvcore.nn import FlopCountAnalysis, parameter_count

    net = _convolutions().eval()
    found = FlopCountAnalysis(net, numbers(1, 3, 16, 16))
    found.unsupported_ops_warnings(False)
    return {"operations": found.total(), "parameters": parameter_count(net)[""]}


@job("thop")
def products():
    from thop import profile

    found = profile(_convolutions(), inputs=(numbers(1, 3, 16, 16),), verbose=False)
    return {"operations": found[0], "parameters": found[1]}


@job("torchsummary")
def layers():
    import contextlib

    from torchsummary import summary

    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        summary(_convolutions(), (3, 16, 16), device="cpu")
    assert "Conv2d" in text.getvalue() and "Linear" in text.getvalue()
    return {}


@job("torchviz")
def picture():
    from torchviz import make_dot

    net = _net()
    found = make_dot(net(numbers(2, 4)).sum(), params=dict(net.named_parameters()))
    text = str(found.source)
    assert "AccumulateGrad" in text and "0.weight" in text and "TanhBackward0" in text, text
    return {}


@job("tensorboard")
def logs():
    from torch.utils.tensorboard import SummaryWriter

    with tempfile.TemporaryDirectory() as folder:
        with SummaryWriter(folder) as writer:
            writer.add_scalar("loss", 0.5, 1)
            writer.add_histogram("weights", numbers(20), 1)
            writer.add_image("image", numbers(3, 8, 8).abs(), 1)
            writer.add_embedding(numbers(5, 3), metadata=list("abcde"), tag="points")
            writer.add_text("text", "hello", 1)
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(folder)
        events.Reload()
        return {"loss": events.Scalars("loss")[0].value}


@job("wandb")
def offline():
    import wandb

    with tempfile.TemporaryDirectory() as folder:
        run = wandb.init(mode="disabled", dir=folder)
        net = _net()
        run.watch(net, log="all")
        found = step(net, net(numbers(4, 4)).square().mean())
        run.log({"loss": found["loss"], "image": wandb.Image(numbers(3, 8, 8).abs()), "histogram": wandb.Histogram(numbers(20))})
        run.finish()
    return found


# Loops.


@job("pytorch_lightning")
def fit():
    import warnings

    import pytorch_lightning

    warnings.filterwarnings("ignore")

    class Net(pytorch_lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.losses = _net(), []

        def training_step(self, batch, index):
            loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    net = Net()
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    pytorch_lightning.Trainer(max_epochs=2, accelerator="cpu", devices=1, **quiet).fit(net, torch.utils.data.DataLoader(_data(), batch_size=8))
    return {f"loss {at}": loss for at, loss in enumerate(net.losses)}


@job("pytorch_tabnet")
def table():
    from pytorch_tabnet.tab_model import TabNetClassifier
    from pytorch_tabnet.tab_network import TabNet

    group = torch.eye(6)
    net = fill(TabNet(6, 3, n_d=4, n_a=4, n_steps=2, group_attention_matrix=group), 0.2).eval()
    out, extra = net(numbers(8, 6))
    made = TabNetClassifier(n_d=4, n_a=4, n_steps=2, verbose=0, seed=0)
    made.fit(numbers(64, 6).numpy(), tokens(64, vocabulary=2).numpy(), max_epochs=2, batch_size=32, virtual_batch_size=16)
    assert made.predict(numbers(4, 6).numpy()).shape == (4,)
    return {"out": out, "loss": extra}


@job("pytorch_forecasting")
def forecast():
    from pytorch_forecasting.metrics import MAE, QuantileLoss
    from pytorch_forecasting.models.nn.rnn import LSTM

    net = fill(LSTM(input_size=4, hidden_size=8, batch_first=True), 0.2)
    out, _ = net(numbers(2, 6, 4))
    loss = QuantileLoss([0.1, 0.5, 0.9]).loss(out[..., :3], numbers(2, 6)).mean()
    return {"mae": MAE().loss(out[..., :1], numbers(2, 6)).mean(), **step(net, loss)}


@job("avalanche")
def continual():
    from avalanche.benchmarks import tensors_benchmark
    from avalanche.training.supervised import EWC

    net = _net()
    parts = [(numbers(16, 4, step=0.3 + i), tokens(16, vocabulary=3, step=i + 1)) for i in range(2)]
    benchmark = tensors_benchmark(train_tensors=parts, test_tensors=parts, task_labels=[0, 0])
    made = EWC(
        model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), criterion=nn.CrossEntropyLoss(), ewc_lambda=0.4, train_mb_size=16, train_epochs=1, eval_mb_size=16,
        evaluator=None,
    )
    for experience in benchmark.train_stream:
        made.train(experience)
    return {"weight": net[0].weight}


@job("opacus")
def private():
    from opacus import PrivacyEngine
    from opacus.grad_sample import GradSampleModule

    net = GradSampleModule(_net())
    nn.functional.cross_entropy(net(numbers(6, 4)), tokens(6, vocabulary=3)).backward()
    found = {name.removeprefix("_module."): p.grad_sample for name, p in net.named_parameters()}
    other = _net()
    loader = torch.utils.data.DataLoader(_data(), batch_size=8)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=other, optimizer=torch.optim.SGD(other.parameters(), lr=0.1), data_loader=loader, noise_multiplier=1.0, max_grad_norm=1.0,
    )
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return found


@job("deepctr_torch")
def clicks():
    from deepctr_torch.inputs import DenseFeat, SparseFeat
    from deepctr_torch.models import DeepFM

    columns = [SparseFeat("user", 8, embedding_dim=4), DenseFeat("age", 1)]
    net = fill(DeepFM(columns, columns, dnn_hidden_units=(8,), device="cpu"), 0.2)
    return {"out": net(torch.cat([tokens(6, 1, vocabulary=8).float(), numbers(6, 1)], 1))}


# Agents and structures.


@job("tensordict")
def dictionaries():
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential

    data = TensorDict({"x": numbers(5, 4), "more": {"y": numbers(5, 2)}}, batch_size=[5])
    net = TensorDictSequential(TensorDictModule(_net(), in_keys=["x"], out_keys=["z"]), TensorDictModule(lambda z: z.softmax(-1), in_keys=["z"], out_keys=["p"]))
    out = net(data)
    joined = torch.stack([out, out], 0)
    assert joined.batch_size == torch.Size([2, 5]) and joined[:, 1:3]["more", "y"].shape == (2, 2, 2)
    return {"p": out["p"], "mean": joined.apply(lambda t: t.mean(0), batch_size=[5])["x"]}


@job("torchrl")
def returns():
    from torchrl.data import LazyTensorStorage, ReplayBuffer
    from torchrl.modules import MLP
    from torchrl.objectives.value.functional import generalized_advantage_estimate

    net = fill(MLP(in_features=4, out_features=2, num_cells=[8]), 0.3)
    value, after, reward = (numbers(1, 6, 1, step=0.3 + i) for i in range(3))
    done = torch.zeros(1, 6, 1, dtype=torch.bool)
    done[0, 3] = True
    advantage, target = generalized_advantage_estimate(0.9, 0.95, value, after, reward, done)
    buffer = ReplayBuffer(storage=LazyTensorStorage(10), batch_size=4)
    buffer.extend(numbers(10, 3))
    assert buffer.sample().shape == (4, 3)
    return {"out": net(numbers(3, 4)), "advantage": advantage, "target": target}


@job("trl")
def preferences():
    from trl.trainer.utils import pad, selective_log_softmax

    logits = numbers(2, 5, 12)
    return {"chosen": selective_log_softmax(logits, tokens(2, 5, vocabulary=12)), "padded": pad([numbers(3), numbers(5)], padding_value=-1.0)}


@job("trl", "sft")
def supervised_tuning():
    from datasets import Dataset
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer

    words = "[PAD] [UNK] [EOS] a cat sat on the mat dog ran in park".split()
    inner = Tokenizer(WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", eos_token="[EOS]")
    model = fill(LlamaForCausalLM(LlamaConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=32, eos_token_id=2,
    )))
    rows = Dataset.from_dict({"text": ["a cat sat on the mat", "a dog ran in the park"] * 4})
    with tempfile.TemporaryDirectory() as folder:
        options = SFTConfig(folder, max_steps=3, per_device_train_batch_size=2, report_to=[], use_cpu=True, bf16=False, learning_rate=1e-2, disable_tqdm=True, save_strategy="no")
        made = SFTTrainer(model=model, args=options, train_dataset=rows, processing_class=tokenizer)
        loss = made.train().training_loss
    assert loss < 3.0, loss
    return {}


# Libraries whose kernels are for GPUs: they import, and the parts that run on a CPU do.


@job("bitsandbytes")
def quantised():
    import bitsandbytes

    layer = fill(nn.Linear(4, 3))
    assert bitsandbytes.__version__
    from transformers import TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        TrainingArguments(folder, report_to=[], use_cpu=True)
    return {"out": layer(numbers(2, 4))}


@job("torchao")
def integers():
    import torchao
    from transformers import LlamaConfig, LlamaForCausalLM

    assert torchao.__version__
    model = fill(LlamaForCausalLM(LlamaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)))
    return {"logits": model(tokens(1, 5)).logits}


@job("bitsandbytes", "layers")
def quantised_layers():
    """Layers of eight and four bits: outputs, and gradients of their inputs."""
    from bitsandbytes.nn import Embedding4bit, Embedding8bit, Linear4bit, Linear8bitLt

    makes = {
        "int8": lambda: Linear8bitLt(64, 32, has_fp16_weights=False, threshold=6.0), "training": lambda: Linear8bitLt(64, 32, threshold=0.0),
        "nf4": lambda: Linear4bit(64, 32, compute_dtype=torch.float32, quant_type="nf4"),
        "fp4": lambda: Linear4bit(64, 32, compute_dtype=torch.float32, quant_type="fp4", compress_statistics=False),
    }
    found = {}
    for name, make in makes.items():
        layer, x = make(), numbers(4, 64).requires_grad_()
        layer.load_state_dict(fill(nn.Linear(64, 32), 0.5).state_dict())
        out = layer.to("cpu")(x)
        out.square().mean().backward()
        found[name], found[f"{name}, gradient"] = out, x.grad
    for kind in (Embedding8bit, Embedding4bit):
        table = kind(50, 64)
        table.load_state_dict(fill(nn.Embedding(50, 64), 0.5).state_dict())
        found[kind.__name__] = table.to("cpu")(torch.tensor([1, 4]))
    return found


@job("bitsandbytes", "optimizers")
def quantised_optimizers():
    import bitsandbytes

    found = {}
    # RMSprop8bit is left out: the last bit of a square root decides which of its states' 256 numbers a value is
    # rounded to.
    for name in ("AdamW8bit", "Lion8bit", "SGD8bit", "Adagrad8bit", "AdamW"):
        net = fill(nn.Linear(64, 128), 0.5)
        optimizer = getattr(bitsandbytes.optim, name)(net.parameters(), lr=1e-2, **({"momentum": 0.9} if name == "SGD8bit" else {}))
        for _ in range(3):
            step(net, net(numbers(4, 64)).square().mean(), optimizer)
        found[name] = net.weight
    return found


@job("torchao", "layers")
def integer_layers():
    from torchao import quantization

    found = {}
    for name in ("Int8WeightOnly", "Int8DynamicActivationInt8Weight", "Float8WeightOnly", "IntxWeightOnly", "Int8DynamicActivationIntxWeight"):
        net = fill(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)), 0.3)
        quantization.quantize_(net, getattr(quantization, f"{name}Config")())
        found[name] = net(numbers(4, 64))
    return found


@job("torchao", "training")
def aware_of_quantisation():
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.qat import QATConfig

    net = fill(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8)), 0.3)
    quantize_(net, QATConfig(Int8DynamicActivationIntxWeightConfig(), step="prepare"))
    out = net(numbers(4, 64))
    found = {"out": out, **step(net, out.square().mean())}
    quantize_(net, QATConfig(Int8DynamicActivationIntxWeightConfig(), step="convert"))
    return {**found, "converted": net(numbers(4, 64))}
