"""Jobs of libraries of layers and whole networks: a forward and a backward pass with weights from a formula."""

import math

import torch
from common import fill, job, numbers, step, tokens

nn = torch.nn


def _passed(module, *inputs, scale=0.05, pick=lambda out: out, **options):
    """The output of a module with weights from a formula, and the sum of its gradients."""
    fill(module, scale).eval()
    out = pick(module(*inputs, **options))
    return {"out": out, "gradients": step(module, out.square().mean(), torch.optim.SGD(module.parameters(), lr=1e-3))["gradients"]}


# Transformers.


@job("x_transformers")
def decoder():
    from x_transformers import Decoder, TransformerWrapper

    net = TransformerWrapper(num_tokens=50, max_seq_len=16, attn_layers=Decoder(dim=32, depth=2, heads=4, rotary_pos_emb=True, attn_dim_head=8))
    return _passed(net, tokens(2, 12))


@job("vit_pytorch")
def vit():
    from vit_pytorch import ViT
    from vit_pytorch.simple_vit import SimpleViT

    options = dict(image_size=32, patch_size=8, num_classes=5, dim=32, depth=2, heads=4, mlp_dim=64)
    found = _passed(ViT(**options), numbers(2, 3, 32, 32))
    return {**found, **{f"simple {k}": v for k, v in _passed(SimpleViT(**options), numbers(2, 3, 32, 32)).items()}}


@job("linformer")
def linear_attention():
    from linformer import Linformer

    return _passed(Linformer(dim=32, seq_len=16, depth=1, heads=4, k=8), numbers(2, 16, 32))


@job("reformer_pytorch")
def feed_forward_chunks():
    from reformer_pytorch import LSHSelfAttention

    # Buckets come from random rotations: with one bucket all tokens attend to all.
    layer = LSHSelfAttention(dim=32, heads=4, bucket_size=4, n_hashes=1, full_attn_thres=64)
    return _passed(layer, numbers(1, 16, 32))


@job("axial_attention")
def axial():
    from axial_attention import AxialAttention

    return _passed(AxialAttention(dim=8, dim_index=1, heads=2, num_dimensions=2), numbers(1, 8, 6, 6))


@job("local_attention")
def windows():
    from local_attention import LocalAttention

    layer = LocalAttention(dim=8, window_size=4, causal=True, autopad=True)
    q, k, v = (numbers(2, 4, 10, 8, step=0.3 + i) for i in range(3))
    return {"out": layer(q, k, v)}


@job("g_mlp_pytorch")
def gated():
    from g_mlp_pytorch import gMLPVision

    return _passed(gMLPVision(image_size=16, patch_size=4, num_classes=5, dim=16, depth=1), numbers(2, 3, 16, 16))


@job("rotary_embedding_torch")
def rotations():
    from rotary_embedding_torch import RotaryEmbedding

    return {"out": RotaryEmbedding(dim=8).rotate_queries_or_keys(numbers(1, 2, 10, 16))}


@job("vector_quantize_pytorch")
def codes():
    from vector_quantize_pytorch import FSQ, VectorQuantize

    layer = fill(VectorQuantize(dim=8, codebook_size=16, commitment_weight=1.0), 0.5).eval()
    out, index, loss = layer(numbers(2, 10, 8))
    finite, places = FSQ(levels=[5, 4, 3])(numbers(2, 10, 3))
    return {"out": out, "index": index, "loss": loss, "finite": finite, "places": places}


@job("ema_pytorch")
def average():
    from ema_pytorch import EMA

    net = fill(nn.Linear(4, 3))
    ema = EMA(net, beta=0.9, update_after_step=0, update_every=1)
    for at in range(4):
        with torch.no_grad():
            net.weight.add_(0.1)
        ema.update()
    return {"out": ema(numbers(2, 4))}


@job("denoising_diffusion_pytorch")
def diffusion():
    from denoising_diffusion_pytorch import Unet

    net = Unet(dim=8, dim_mults=(1, 2), flash_attn=False)
    return _passed(net, numbers(1, 3, 16, 16), torch.tensor([3]))


@job("performer_pytorch")
def kernels():
    from performer_pytorch.performer_pytorch import FastAttention

    layer = FastAttention(dim_heads=8, nb_features=16)
    # Random projections differ between the two.
    layer.projection_matrix.copy_(numbers(16, 8))
    q, k, v = (numbers(1, 2, 10, 8, step=0.3 + i) for i in range(3))
    return {"out": layer(q, k, v)}


# Images.


@job("segmentation_models_pytorch")
def unet():
    import segmentation_models_pytorch as smp

    x = numbers(1, 3, 32, 32)
    found = _passed(smp.Unet("resnet18", encoder_weights=None, classes=2), x, scale=0.02)
    target = (numbers(1, 1, 32, 32) > 0).float()
    found["dice"] = smp.losses.DiceLoss("binary")(numbers(1, 1, 32, 32, step=0.5), target)
    return found


@job("efficientnet_pytorch")
def efficientnet():
    from efficientnet_pytorch import EfficientNet

    return _passed(EfficientNet.from_name("efficientnet-b0", num_classes=5), numbers(1, 3, 64, 64))


@job("pretrainedmodels")
def squeezed():
    import pretrainedmodels

    return _passed(pretrainedmodels.__dict__["se_resnet50"](num_classes=1000, pretrained=None), numbers(1, 3, 224, 224), scale=0.02)


@job("facenet_pytorch")
def faces():
    from facenet_pytorch import InceptionResnetV1

    # A classifier: embeddings have length one, so the gradient of their squares is zero.
    return _passed(InceptionResnetV1(pretrained=None, classify=True, num_classes=7), numbers(2, 3, 96, 96), scale=0.02)


@job("open_clip")
def clip():
    import open_clip
    from open_clip.model import CLIP

    net = CLIP(
        embed_dim=16, vision_cfg=dict(image_size=32, layers=2, width=32, head_width=8, patch_size=8),
        text_cfg=dict(context_length=12, vocab_size=50, width=32, heads=4, layers=2),
    )
    fill(net).eval()
    images, texts, scale = net(numbers(2, 3, 32, 32), tokens(2, 12))
    loss = open_clip.ClipLoss()(images, texts, scale)
    return {"images": images, "texts": texts, **step(net, loss)}


@job("lightly")
def self_supervised():
    from lightly.loss import BarlowTwinsLoss, NTXentLoss, VICRegLoss
    from lightly.models.modules import SimCLRProjectionHead

    head = fill(SimCLRProjectionHead(16, 16, 8), 0.3)
    a, b = head(numbers(6, 16)), head(numbers(6, 16, step=0.41))
    found = {"contrastive": NTXentLoss()(a, b), "twins": BarlowTwinsLoss()(a, b), "vicreg": VICRegLoss()(a, b)}
    return {**found, **step(head, found["contrastive"])}


@job("monai")
def medical():
    from monai.inferers import sliding_window_inference
    from monai.losses import DiceCELoss
    from monai.metrics import DiceMetric
    from monai.networks.nets import UNet

    net = fill(UNet(spatial_dims=3, in_channels=1, out_channels=2, channels=(4, 8), strides=(2,), num_res_units=1)).eval()
    x = numbers(1, 1, 16, 16, 16)
    out = net(x)
    target = (numbers(1, 1, 16, 16, 16, step=0.2) > 0).float()
    loss = DiceCELoss(to_onehot_y=True, softmax=True)(out, target)
    metric = DiceMetric()((out.argmax(1, keepdim=True)), target)
    with torch.no_grad():
        tiled = sliding_window_inference(x, (8, 8, 8), 2, net)
    return {"out": out, "metric": metric, "tiled": tiled, **step(net, loss)}


@job("torchio")
def volumes():
    import torchio

    subject = torchio.Subject(image=torchio.ScalarImage(tensor=numbers(1, 12, 12, 12)))
    changed = torchio.Compose([torchio.CropOrPad(10), torchio.RescaleIntensity((0, 1)), torchio.Resample(2)])(subject)
    return {"image": changed.image.data}


@job("pytorch_msssim")
def similarity():
    from pytorch_msssim import ms_ssim, ssim

    a, b = numbers(1, 3, 176, 176).abs(), numbers(1, 3, 176, 176, step=0.41).abs()
    return {"ssim": ssim(a, b, data_range=1.0), "ms": ms_ssim(a, b, data_range=1.0)}


@job("piq")
def quality():
    import piq

    # Pictures that are alike: of others some measures are noise around zero.
    a = numbers(1, 3, 64, 64).abs()
    b = 0.8 * a + 0.2 * numbers(1, 3, 64, 64, step=0.41).abs()
    names = ("ssim", "psnr", "gmsd", "haarpsi", "mdsi", "vif_p", "total_variation")
    return {name: getattr(piq, name)(a) if name == "total_variation" else getattr(piq, name)(a, b) for name in names}


@job("lpips")
def perceptual():
    import lpips

    # Without files of trained weights.
    net = fill(lpips.LPIPS(net="squeeze", pretrained=False, pnet_rand=True, verbose=False)).eval()
    return {"distance": net(numbers(1, 3, 64, 64), numbers(1, 3, 64, 64, step=0.41))}


@job("torch_fidelity")
def distance():
    from torch_fidelity.metric_fid import fid_statistics_to_metric
    from torch_fidelity.metric_isc import isc_features_to_metric

    probabilities = numbers(20, 6).softmax(-1)
    a, b = numbers(30, 4).numpy(), numbers(30, 4, step=0.5).numpy()
    import numpy

    stats = [{"mu": numpy.mean(v, 0), "sigma": numpy.cov(v, rowvar=False)} for v in (a, b)]
    return {"fid": fid_statistics_to_metric(*stats, False)["frechet_inception_distance"], "isc": isc_features_to_metric(probabilities, splits=2, shuffle=False)["inception_score_mean"]}


# Sound.


@job("julius")
def filters():
    import julius

    x = numbers(1, 2, 400)
    found = {"resampled": julius.resample_frac(x, 4, 3), "low": julius.lowpass_filter(x, 0.1), "fft": julius.fft_conv1d(x, numbers(3, 2, 9))}
    return {**found, "bands": julius.split_bands(x, 16000, n_bands=3)}


@job("auraloss")
def spectra():
    import auraloss

    # Double precision: the gradient of a logarithm of empty frequencies is noise in single precision.
    torch.set_default_dtype(torch.float64)
    try:
        times = torch.arange(4096, dtype=torch.float64)
        a, b = (torch.stack([(times * times * rate).sin(), (times * times * rate * 1.3).sin()])[:, None] for rate in (0.00037, 0.00041))
        a.requires_grad_()
        loss = auraloss.freq.MultiResolutionSTFTLoss(fft_sizes=[256, 512], hop_sizes=[64, 128], win_lengths=[256, 512])(a, b)
        loss.backward()
        return {"loss": loss, "gradient": a.grad, "sisdr": auraloss.time.SISDRLoss()(a, b)}
    finally:
        torch.set_default_dtype(torch.float32)


@job("nnAudio")
def spectrograms():
    from nnAudio.features import MelSpectrogram, STFT

    x = numbers(1, 2000)
    return {"stft": STFT(n_fft=128, hop_length=64, output_format="Magnitude", verbose=False)(x), "mel": MelSpectrogram(sr=8000, n_fft=128, n_mels=16, hop_length=64, verbose=False)(x)}


@job("asteroid_filterbanks")
def filterbanks():
    from asteroid_filterbanks import Decoder, Encoder, FreeFB

    encoder, decoder = fill(Encoder(FreeFB(16, 8, stride=4))), fill(Decoder(FreeFB(16, 8, stride=4)))
    return {"out": decoder(encoder(numbers(2, 1, 64)))}


@job("encodec")
def codec():
    from encodec.modules import SEANetDecoder, SEANetEncoder

    encoder, decoder = (fill(kind(dimension=8, n_filters=2, ratios=[2, 2], n_residual_layers=1), 0.3) for kind in (SEANetEncoder, SEANetDecoder))
    inner = encoder(numbers(1, 1, 64))
    return {"inner": inner, "out": decoder(inner)}


@job("torchaudio")
def spoken():
    """A classifier of sounds by their mel spectrograms: two kinds of tones, a convolution, a recurrent layer."""
    from torchaudio import functional, transforms

    times = torch.arange(1600, dtype=torch.float64) / 8000
    pitches = torch.tensor([220.0, 330.0, 440.0, 523.0, 660.0, 880.0], dtype=torch.float64)[:, None]
    labels = torch.arange(6) % 2
    # The second kind rises.
    waves = (2 * math.pi * pitches * times * (1 + 0.5 * labels[:, None] * times / times[-1])).sin().float()
    waves = functional.resample(waves, 8000, 4000)
    features = nn.Sequential(transforms.MelSpectrogram(4000, n_fft=256, hop_length=64, n_mels=20, f_max=2000.0), transforms.AmplitudeToDB(top_db=60))
    cepstra = transforms.MFCC(4000, n_mfcc=8, melkwargs={"n_fft": 256, "hop_length": 64, "n_mels": 20})(waves)
    seen = features(waves) / 40

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution, self.norm = nn.Conv1d(20, 12, 5, padding=2), nn.BatchNorm1d(12)
            self.recurrent, self.head = nn.GRU(12, 8, batch_first=True), nn.Linear(8, 2)

        def forward(self, x):
            x = torch.relu(self.norm(self.convolution(x))).transpose(1, 2)
            return self.head(self.recurrent(x)[0][:, -1])

    net = fill(Classifier(), 0.2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    found = {"features": seen, "cepstra": cepstra}
    for epoch in range(5):
        found[f"loss {epoch}"] = step(net, nn.functional.cross_entropy(net(seen), labels), optimizer)["loss"]
    return {**found, "answers": net.eval()(seen)}


@job("torch_audiomentations")
def augmented():
    from torch_audiomentations import Gain, PolarityInversion

    x = numbers(2, 1, 800)
    loud = Gain(min_gain_in_db=5.9, max_gain_in_db=6.1, p=1.0, output_type="tensor")(x, sample_rate=8000)
    ratio = (loud.square().sum() / x.square().sum()).log10() * 10
    assert 5.8 < ratio < 6.2, ratio
    return {"turned": PolarityInversion(p=1.0, output_type="tensor")(x, sample_rate=8000)}


@job("speechbrain")
def speech():
    from speechbrain.lobes.features import Fbank
    from speechbrain.nnet.losses import nll_loss
    from speechbrain.nnet.RNN import LiGRU

    x = Fbank(n_mels=20)(numbers(2, 1600))
    net = fill(LiGRU(hidden_size=8, input_shape=x.shape, num_layers=1), 0.1).eval()
    out, _ = net(x)
    loss = nll_loss(out.log_softmax(-1), tokens(2, out.shape[1], vocabulary=8))
    return {"features": x, "out": out, **step(net, loss)}
