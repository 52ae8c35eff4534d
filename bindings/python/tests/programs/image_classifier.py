"""A residual network and its training loop in the manner of timm: registries, configs, channels_last, EMA, mixup, schedules by hand, checkpoints."""

import argparse
import logging
import math
import time
from collections import OrderedDict
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Tuple, Type, Union

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint_sequential

_logger = logging.getLogger("train")
_model_entrypoints: Dict[str, Callable[..., nn.Module]] = {}


def register_model(fn):
    _model_entrypoints[fn.__name__] = fn
    return fn


def create_model(name: str, **kwargs) -> nn.Module:
    kwargs = {k: v for k, v in kwargs.items() if v is not None}
    return _model_entrypoints[name](**kwargs)


@dataclass
class PretrainedCfg:
    num_classes: int = 10
    input_size: Tuple[int, int, int] = (3, 32, 32)
    mean: Tuple[float, ...] = (0.485, 0.456, 0.406)
    tags: List[str] = field(default_factory=list)


def drop_path(x, drop_prob: float = 0.0, training: bool = False, scale_by_keep: bool = True):
    if drop_prob == 0.0 or not training:
        return x
    keep_prob = 1 - drop_prob
    shape = (x.shape[0],) + (1,) * (x.ndim - 1)
    random_tensor = x.new_empty(shape).bernoulli_(keep_prob)
    if keep_prob > 0.0 and scale_by_keep:
        random_tensor.div_(keep_prob)
    return x * random_tensor


class DropPath(nn.Module):
    def __init__(self, drop_prob: float = 0.0, scale_by_keep: bool = True):
        super().__init__()
        self.drop_prob = drop_prob
        self.scale_by_keep = scale_by_keep

    def forward(self, x):
        return drop_path(x, self.drop_prob, self.training, self.scale_by_keep)

    def extra_repr(self):
        return f"drop_prob={round(self.drop_prob, 3):0.3f}"


class SEModule(nn.Module):
    def __init__(self, channels: int, rd_ratio: float = 1.0 / 4):
        super().__init__()
        rd = max(4, int(channels * rd_ratio))
        self.fc1 = nn.Conv2d(channels, rd, kernel_size=1, bias=True)
        self.act = nn.SiLU(inplace=True)
        self.fc2 = nn.Conv2d(rd, channels, kernel_size=1, bias=True)

    def forward(self, x):
        x_se = x.mean((2, 3), keepdim=True)
        return x * self.fc2(self.act(self.fc1(x_se))).sigmoid()


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, inplanes: int, planes: int, stride: int = 1, downsample: Optional[nn.Module] = None,
                 act_layer: Type[nn.Module] = nn.ReLU, norm_layer: Type[nn.Module] = nn.BatchNorm2d, drop_path: Optional[nn.Module] = None):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = norm_layer(planes)
        self.act1 = act_layer(inplace=True)
        self.conv2 = nn.Conv2d(planes, planes, kernel_size=3, padding=1, bias=False)
        self.bn2 = norm_layer(planes)
        self.se = SEModule(planes)
        self.act2 = act_layer(inplace=True)
        self.downsample = downsample
        self.drop_path = drop_path

    def zero_init_last(self):
        if getattr(self.bn2, "weight", None) is not None:
            nn.init.zeros_(self.bn2.weight)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        x = self.act1(self.bn1(self.conv1(x)))
        x = self.se(self.bn2(self.conv2(x)))
        if self.drop_path is not None:
            x = self.drop_path(x)
        if self.downsample is not None:
            shortcut = self.downsample(shortcut)
        x += shortcut
        return self.act2(x)


class ResNet(nn.Module):
    def __init__(self, block: Type[BasicBlock], layers: Tuple[int, ...], num_classes: int = 10, width: int = 8, drop_path_rate: float = 0.1):
        super().__init__()
        self.num_classes = num_classes
        self.grad_checkpointing = False
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.act1 = nn.ReLU(inplace=True)
        dpr = [x.tolist() for x in torch.linspace(0, drop_path_rate, sum(layers)).split(layers)]
        inplanes = width
        for i, depth in enumerate(layers):
            planes, stride, blocks = width * 2**i, 1 if i == 0 else 2, []
            for j in range(depth):
                s = stride if j == 0 else 1
                down = None
                if s != 1 or inplanes != planes:
                    down = nn.Sequential(OrderedDict([
                        ("pool", nn.AvgPool2d(2, s, ceil_mode=True, count_include_pad=False)),
                        ("conv", nn.Conv2d(inplanes, planes, 1, bias=False)), ("norm", nn.BatchNorm2d(planes)),
                    ]))
                blocks.append(block(inplanes, planes, s, down, drop_path=DropPath(dpr[i][j]) if dpr[i][j] > 0.0 else None))
                inplanes = planes
            self.add_module(f"layer{i + 1}", nn.Sequential(*blocks))
        self.num_features = inplanes
        self.global_pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(self.num_features, num_classes) if num_classes > 0 else nn.Identity()
        for n, m in self.named_modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            if hasattr(m, "zero_init_last"):
                m.zero_init_last()

    @torch.jit.ignore
    def set_grad_checkpointing(self, enable=True):
        self.grad_checkpointing = enable

    def forward_features(self, x):
        x = self.act1(self.bn1(self.conv1(x)))
        layers = [self.layer1, self.layer2]
        if self.grad_checkpointing and not torch.jit.is_scripting():
            return checkpoint_sequential(nn.Sequential(*layers), 2, x, use_reentrant=False)
        for layer in layers:
            x = layer(x)
        return x

    def forward_head(self, x, pre_logits: bool = False):
        x = self.global_pool(x).flatten(1)
        return x if pre_logits else self.fc(x)

    def forward(self, x):
        return self.forward_head(self.forward_features(x))


@register_model
def resnet_tiny(**kwargs) -> ResNet:
    return ResNet(BasicBlock, (1, 2), **kwargs)


class ModelEmaV2(nn.Module):
    def __init__(self, model, decay=0.9, device=None):
        super().__init__()
        self.module = deepcopy(model)
        self.module.eval()
        self.decay = decay
        self.device = device

    @torch.no_grad()
    def update(self, model):
        for ema_v, model_v in zip(self.module.state_dict().values(), model.state_dict().values()):
            if self.device is not None:
                model_v = model_v.to(device=self.device)
            ema_v.copy_(self.decay * ema_v + (1.0 - self.decay) * model_v)


def one_hot(x, num_classes, on_value=1.0, off_value=0.0):
    x = x.long().view(-1, 1)
    return torch.full((x.size()[0], num_classes), off_value, device=x.device).scatter_(1, x, on_value)


def mixup_target(target, num_classes, lam=1.0, smoothing=0.0):
    off_value = smoothing / num_classes
    on_value = 1.0 - smoothing + off_value
    y1, y2 = one_hot(target, num_classes, on_value, off_value), one_hot(target.flip(0), num_classes, on_value, off_value)
    return y1 * lam + y2 * (1.0 - lam)


class SoftTargetCrossEntropy(nn.Module):
    def forward(self, x, target):
        return torch.sum(-target * F.log_softmax(x, dim=-1), dim=-1).mean()


def param_groups_weight_decay(model: nn.Module, weight_decay=1e-5, no_weight_decay_list=()):
    decay, no_decay = [], []
    for name, param in model.named_parameters():
        if not param.requires_grad:
            continue
        (no_decay if param.ndim <= 1 or name.endswith(".bias") or name in set(no_weight_decay_list) else decay).append(param)
    return [{"params": no_decay, "weight_decay": 0.0}, {"params": decay, "weight_decay": weight_decay}]


def accuracy(output, target, topk=(1,)):
    maxk = min(max(topk), output.size()[1])
    batch_size = target.size(0)
    _, pred = output.topk(maxk, 1, True, True)
    pred = pred.t()
    correct = pred.eq(target.reshape(1, -1).expand_as(pred))
    return [correct[:min(k, maxk)].reshape(-1).float().sum(0) * 100.0 / batch_size for k in topk]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="resnet_tiny")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--channels-last", action="store_true", default=True)
    parser.add_argument("--amp", action="store_true", default=True)
    parser.add_argument("--grad-checkpointing", action="store_true", default=True)
    parser.add_argument("--torchcompile", nargs="?", type=str, default="inductor")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(42)
    if torch.cuda.is_available():
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cfg = replace(PretrainedCfg(), num_classes=4)
    model = create_model(args.model, num_classes=cfg.num_classes, drop_path_rate=0.2, width=None)
    if args.grad_checkpointing:
        model.set_grad_checkpointing(enable=True)
    _logger.info(f"Model {args.model} created, param count:{sum([m.numel() for m in model.parameters()])}")
    model.to(device=device)
    if args.channels_last:
        model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(param_groups_weight_decay(model, 0.05), lr=1e-2, foreach=True)
    amp_autocast = partial(torch.autocast, device_type=device.type, dtype=torch.bfloat16) if args.amp else suppress
    model_ema = ModelEmaV2(model)
    if args.torchcompile:
        torch._dynamo.reset()
        model = torch.compile(model, backend=args.torchcompile)
    train_loss_fn, validate_loss_fn = SoftTargetCrossEntropy().to(device=device), nn.CrossEntropyLoss(label_smoothing=0.0).to(device=device)
    images, labels = torch.randn(48, *cfg.input_size), torch.randint(0, 4, (48,))
    images += labels.view(-1, 1, 1, 1) * 1.5
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), batch_size=16, shuffle=True, drop_last=True)
    updates, total = 0, args.epochs * len(loader)
    for epoch in range(args.epochs):
        model.train()
        start = time.time()
        for input, target in loader:
            input, target = input.to(device, non_blocking=True), target.to(device)
            lam = float(torch.distributions.Uniform(0.6, 1.0).sample())
            target = mixup_target(target, cfg.num_classes, lam, 0.1)
            input = input.mul_(lam).add_(input.flip(0), alpha=1 - lam)
            if args.channels_last:
                input = input.contiguous(memory_format=torch.channels_last)
            with amp_autocast():
                output = model(input)
                loss = train_loss_fn(output, target)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, norm_type=2.0)
            for group in optimizer.param_groups:
                group["lr"] = 1e-2 * 0.5 * (1 + math.cos(math.pi * updates / total))
            optimizer.step()
            model_ema.update(model)
            updates += 1
            if device.type == "cuda":
                torch.cuda.synchronize()
        model.eval()
        with torch.inference_mode():
            output = model(images.to(device))
            if isinstance(output, (tuple, list)):
                output = output[0]
            acc1, acc2 = accuracy(output, labels.to(device), topk=(1, 2))
            val = validate_loss_fn(output, labels.to(device))
        _logger.info(f"Train: {epoch} loss {loss.item():#.3g} val {val.item():>6.3f} Acc@1: {acc1.item():>7.3f} Acc@2 {acc2:7.3f} ({time.time() - start:.2f}s)")
    state = {"epoch": epoch, "arch": args.model, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "args": vars(args),
             "state_dict_ema": model_ema.module.state_dict()}
    torch.save(state, "last.pth.tar")
    checkpoint = torch.load("last.pth.tar", map_location="cpu")
    missing, unexpected = create_model(args.model, num_classes=4).load_state_dict(
        OrderedDict((k[10:] if k.startswith("_orig_mod.") else k, v) for k, v in checkpoint["state_dict"].items()), strict=False)
    assert not missing and not unexpected and acc1 > 40, acc1


if __name__ == "__main__":
    main()
