"""Jobs of larger libraries: detection, speech, language, chemistry, agents, spiking networks, curvature."""

import torch
from common import fill, job, numbers, step, tokens

nn = torch.nn


def _net():
    return fill(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3)), 0.3)


def _sgd(module):
    return torch.optim.SGD(module.parameters(), lr=1e-3)


def _passed(module, *inputs, scale=0.05, pick=lambda out: out, **options):
    """The output of a module with weights from a formula, and the sum of its gradients."""
    fill(module, scale).eval()
    out = pick(module(*inputs, **options))
    return {"out": out, "gradients": step(module, out.square().mean(), _sgd(module))["gradients"]}


# Pictures.


@job("ultralytics")
def detector():
    from ultralytics.nn.tasks import ClassificationModel, DetectionModel, SegmentationModel
    from ultralytics.utils.nms import non_max_suppression

    found = {}
    for name, make, size in (
        ("detection", lambda: DetectionModel("yolov8n.yaml", nc=3, verbose=False), 64), ("segmentation", lambda: SegmentationModel("yolov8n-seg.yaml", nc=3, verbose=False), 64),
        ("classes", lambda: ClassificationModel("yolov8n-cls.yaml", nc=3, verbose=False), 64),
    ):
        net = fill(make(), 0.02).eval()
        out = net(numbers(1, 3, size, size))
        while isinstance(out, (list, tuple)):
            out = out[0]
        found[name] = out
    boxes = torch.cat([numbers(1, 2, 12).abs() * 40, numbers(1, 2, 12, step=0.7).abs() * 20, numbers(1, 3, 12, step=0.9).abs()], 1)
    found["kept"] = non_max_suppression(boxes, conf_thres=0.2, iou_thres=0.5)[0]
    return found


@job("torchxrayvision")
def xrays():
    import torchxrayvision

    return _passed(torchxrayvision.models.DenseNet(num_classes=4, in_channels=1, growth_rate=4, block_config=(2, 2), num_init_features=8), numbers(1, 1, 64, 64))


@job("easyocr")
def letters():
    from easyocr.craft import CRAFT
    from easyocr.model.vgg_model import Model

    return {
        "letters": fill(Model(1, 16, 8, 12), 0.05).eval()(numbers(1, 1, 32, 64), None), "places": fill(CRAFT(pretrained=False), 0.02).eval()(numbers(1, 3, 32, 32))[0],
    }


@job("deepinv")
def inverse():
    import deepinv

    physics = deepinv.physics.Blur(filter=torch.ones(1, 1, 3, 3) / 9, padding="circular")
    x = numbers(1, 1, 16, 16).abs()
    y = physics(x)
    return {"blurred": y, "adjoint": physics.A_adjoint(y), "norm": deepinv.optim.L2()(x, y, physics), "total": deepinv.models.TVDenoiser(n_it_max=10)(y, 0.1)}


# Sounds and words.


@job("whisper")
def openai_whisper():
    import whisper

    sizes = whisper.model.ModelDimensions(n_mels=80, n_audio_ctx=1500, n_audio_state=16, n_audio_head=2, n_audio_layer=1, n_vocab=60, n_text_ctx=16, n_text_state=16, n_text_head=2, n_text_layer=1)
    net = fill(whisper.model.Whisper(sizes), 0.1).eval()
    heard = whisper.log_mel_spectrogram(whisper.pad_or_trim(numbers(16000)))
    out = net(heard[None], tokens(1, 6, vocabulary=60))
    return {"heard": heard[:, :120], "out": out}


@job("demucs")
def stems():
    from demucs.htdemucs import HTDemucs

    net = fill(HTDemucs(sources=["a", "b"], channels=16, nfft=256, depth=2, t_layers=1, t_heads=2, segment=1, samplerate=4000), 0.05).eval()
    with torch.no_grad():
        return {"out": net(numbers(1, 2, 4000))}


@job("openunmix")
def unmixed():
    import openunmix.model

    net = fill(openunmix.model.OpenUnmix(nb_bins=65, nb_channels=2, hidden_size=16, nb_layers=1), 0.05).eval()
    return {"out": net(numbers(1, 2, 65, 12).abs())}


@job("stanza")
def parser():
    from stanza.models.common.biaffine import DeepBiaffineScorer
    from stanza.models.common.packed_lstm import PackedLSTM

    net = fill(PackedLSTM(4, 6, 1, bidirectional=True, batch_first=True), 0.3)
    out, _ = net(numbers(2, 5, 4), [5, 3])
    scorer = fill(DeepBiaffineScorer(4, 4, 5, 3, dropout=0.0), 0.3)
    return {"out": out.data, "scores": scorer(numbers(2, 4, 4), numbers(2, 4, 4, step=0.5))}


@job("liger_kernel")
def refused_kernels():
    """Its layers are Triton kernels; what it has without them is losses over chunks."""
    from liger_kernel.chunked_loss import LigerFusedLinearDPOLoss

    weight, x = numbers(20, 8, scale=0.3).requires_grad_(), numbers(4, 6, 8)
    loss, *_ = LigerFusedLinearDPOLoss(compiled=False, use_ref_model=False)(weight, x, tokens(4, 6, vocabulary=20))
    loss.backward()
    return {"loss": loss, "gradient": weight.grad}


@job("xformers")
def composed():
    """Its kernels are for GPUs; layers made of functions of torch, masks and lists of ops run without."""
    import xformers.ops
    from xformers.checkpoint import list_operators

    net, x = xformers.ops.SwiGLU(8, 16), numbers(4, 8)
    blocks = xformers.ops.fmha.attn_bias.BlockDiagonalMask.from_seqlens([2, 3]).materialize((5, 5))
    return {**_passed(net, x, scale=0.3), "blocks": (blocks == 0).double(), "ops": len(list_operators(nn.Sequential(nn.Linear(8, 4), nn.ReLU()), x))}


# Molecules.


@job("torchani")
def potential():
    from torchani.aev import AEVComputer

    computer = AEVComputer.like_2x()
    atoms = torch.tensor([[0, 1, 0, 2]])
    places = (numbers(1, 4, 3) * 1.5).requires_grad_()
    found = computer(atoms, places)
    found.square().sum().backward()
    return {"features": found, "gradient": places.grad}


# Agents.


@job("tianshou")
def policy():
    from tianshou.data import Batch, ReplayBuffer
    from tianshou.utils.net.common import MLP, Net

    net = fill(Net(state_shape=4, action_shape=3, hidden_sizes=[8]), 0.3)
    buffer = ReplayBuffer(size=8)
    for at in range(4):
        buffer.add(Batch(obs=numbers(4).numpy(), act=at % 3, rew=1.0, terminated=at == 3, truncated=False, obs_next=numbers(4).numpy(), info={}))
    assert len(buffer) == 4
    return {"out": net(numbers(5, 4).numpy())[0], "mlp": fill(MLP(input_dim=4, output_dim=2, hidden_sizes=[8]), 0.3)(numbers(5, 4))}


@job("d3rlpy")
def offline_agent():
    import d3rlpy
    import numpy

    data = d3rlpy.dataset.MDPDataset(
        observations=numbers(40, 4).numpy(), actions=tokens(40, 1, vocabulary=2).numpy(), rewards=numbers(40, 1).numpy(), terminals=(numpy.arange(40) % 10 == 9).astype(numpy.float32),
    )
    made = d3rlpy.algos.DQNConfig(batch_size=8).create(device="cpu")
    made.build_with_dataset(data)
    assert made.predict(numbers(3, 4).numpy()).shape == (3,)
    made.update(d3rlpy.dataset.TransitionMiniBatch.from_transitions([data.sample_transition() for _ in range(8)]))
    return {}


# Spikes, trees, curvature, physics.


@job("snntorch")
def spikes():
    import snntorch
    from snntorch import surrogate

    layer, neuron = fill(nn.Linear(4, 6), 0.5), snntorch.Leaky(beta=0.9, spike_grad=surrogate.fast_sigmoid())
    state, total = neuron.init_leaky(), 0
    for at in range(5):
        spike, state = neuron(layer(numbers(3, 4, step=0.3 + at)), state)
        total = total + spike
    return {"spikes": total, "state": state, **step(layer, (total + state).square().mean(), _sgd(layer))}


@job("spikingjelly")
def spiking():
    from spikingjelly.activation_based import functional, layer, neuron

    net = nn.Sequential(layer.Linear(4, 8), neuron.LIFNode(), layer.Linear(8, 3), neuron.IFNode())
    fill(net, 0.5)
    functional.set_step_mode(net, "m")
    out = net(numbers(5, 2, 4, scale=3.0))
    return {"out": out, **step(net, out.mean(), _sgd(net))}


@job("backpack")
def second_order():
    import backpack
    from backpack.extensions import BatchGrad, DiagGGNExact, KFLR, Variance

    net, loss = backpack.extend(_net()), backpack.extend(nn.CrossEntropyLoss())
    with backpack.backpack(BatchGrad(), Variance(), DiagGGNExact(), KFLR()):
        loss(net(numbers(6, 4)), tokens(6, vocabulary=3)).backward()
    first = net[0].weight
    return {"each": first.grad_batch, "variance": first.variance, "diagonal": first.diag_ggn_exact, "factor": first.kflr[0]}


@job("curvlinops")
def curvature():
    from curvlinops import GGNLinearOperator, HessianLinearOperator

    net, data = _net(), [(numbers(6, 4), tokens(6, vocabulary=3))]
    parameters = list(net.parameters())
    found = {}
    for kind in (HessianLinearOperator, GGNLinearOperator):
        made = kind(net, nn.CrossEntropyLoss(), parameters, data, check_deterministic=False)
        found[kind.__name__] = made @ torch.ones(made.shape[1])
    return found


@job("torchjd")
def jacobians():
    from torchjd.aggregation import MGDA, UPGrad
    from torchjd.autojac import backward

    found = {"mgda": MGDA()(numbers(3, 5)), "upgrad": UPGrad()(numbers(3, 5))}
    net = _net()
    out = net(numbers(4, 4))
    backward([out.square().mean(), out.mean()])
    return {**found, "jacobian": net[0].weight.jac}


@job("torch_pruning")
def pruned():
    import torch_pruning

    net = fill(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3)), 0.3).eval()
    x = numbers(1, 3, 12, 12)
    torch_pruning.MagnitudePruner(net, x, importance=torch_pruning.importance.MagnitudeImportance(p=2), pruning_ratio=0.5, ignored_layers=[net[3]]).step()
    return {"out": net(x), "width": net[0].out_channels}


@job("torch_lr_finder")
def rates():
    from torch_lr_finder import LRFinder

    net = _net()
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(numbers(32, 4), tokens(32, vocabulary=3)), batch_size=8)
    made = LRFinder(net, torch.optim.SGD(net.parameters(), lr=1e-3), nn.CrossEntropyLoss())
    made.range_test(data, end_lr=1, num_iter=8)
    return {"loss": torch.tensor(made.history["loss"])}


@job("torchnmf")
def factors():
    from torchnmf.nmf import NMF

    made = NMF(H=numbers(8, 3).abs() + 0.1, W=numbers(6, 3, step=0.5).abs() + 0.1)
    made.fit(numbers(8, 6).abs() + 0.1, max_iter=20, beta=1)
    return {"H": made.H, "W": made.W}


@job("pennylane")
def circuits():
    import pennylane

    @pennylane.qnode(pennylane.device("default.qubit", wires=2), interface="torch", diff_method="backprop")
    def circuit(weights):
        pennylane.RX(weights[0], wires=0)
        pennylane.CNOT(wires=[0, 1])
        pennylane.RY(weights[1], wires=1)
        return pennylane.expval(pennylane.PauliZ(1))

    weights = torch.tensor([0.4, 0.7], dtype=torch.float64, requires_grad=True)
    out = circuit(weights)
    out.backward()
    return {"out": out, "gradient": weights.grad}


@job("kan")
def splines():
    import kan

    net = kan.KAN(width=[2, 3, 1], grid=3, k=3, seed=0, auto_save=False)
    fill(net, 0.3, buffers=False)
    return {"out": net(numbers(5, 2))}


@job("pytorch_widedeep")
def wide_and_deep():
    from pytorch_widedeep.models import TabMlp, WideDeep

    columns = {"a": 0, "b": 1, "c": 2}
    net = WideDeep(deeptabular=TabMlp(column_idx=columns, cat_embed_input=[("a", 4, 4)], continuous_cols=["b", "c"], mlp_hidden_dims=[8, 4]), pred_dim=1)
    x = torch.cat([tokens(6, 1, vocabulary=4).float(), numbers(6, 2)], 1)
    return _passed(net, {"deeptabular": x})


@job("rtdl_revisiting_models")
def revisited():
    import rtdl_revisiting_models as rtdl

    net = rtdl.FTTransformer(n_cont_features=3, cat_cardinalities=[4], d_out=1, **rtdl.FTTransformer.get_default_kwargs(1))
    return {**_passed(net, numbers(5, 3), tokens(5, 1, vocabulary=4)), "resnet": fill(rtdl.ResNet(**{**_RESNET, "d_in": 4, "d_out": 2}), 0.1).eval()(numbers(5, 4))}


_RESNET = dict(n_blocks=1, d_block=8, d_hidden=None, d_hidden_multiplier=2.0, dropout1=0.1, dropout2=0.0)


@job("tsai")
def series():
    from tsai.models.InceptionTime import InceptionTime
    from tsai.models.TST import TST

    return {"inception": fill(InceptionTime(2, 3), 0.05).eval()(numbers(2, 2, 20)), "transformer": fill(TST(2, 3, 20, d_model=16, n_heads=2, n_layers=1, d_ff=16), 0.05).eval()(numbers(2, 2, 20))}


@job("sbi")
def posteriors():
    from sbi.neural_nets import posterior_nn

    net = fill(posterior_nn("mdn", hidden_features=8)(numbers(20, 2), numbers(20, 3)), 0.1, buffers=False)
    return {"log": net.log_prob(numbers(1, 4, 2), condition=numbers(4, 3))}


@job("galore_torch")
def projected():
    from galore_torch import GaLoreAdamW

    net = fill(nn.Linear(16, 12), 0.3)
    optimizer = GaLoreAdamW([{"params": [net.weight], "rank": 2, "update_proj_gap": 10, "scale": 0.25, "proj_type": "std"}, {"params": [net.bias]}], lr=1e-2)
    for _ in range(3):
        step(net, net(numbers(5, 16)).square().mean(), optimizer)
    return {"weight": net.weight}


@job("setfit")
def few_shots():
    from setfit import SetFitHead

    head = fill(SetFitHead(in_features=8, out_features=3), 0.3)
    found = head(numbers(4, 8))
    return {"logits": found[0], "chances": found[1]}
