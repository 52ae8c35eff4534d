"""A classifier in the manner of public training scripts: options, workers, mixed precision, schedule, checkpoints that are resumed, plots where there is matplotlib."""

import argparse
import copy
import os
import random
import time
from collections import OrderedDict, defaultdict

import numpy as np
import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.autograd import Variable
from torch.cuda.amp import GradScaler, autocast
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch.utils.data import DataLoader, Dataset, Subset, WeightedRandomSampler, random_split

try:
    from torch.utils.tensorboard import SummaryWriter
except ImportError:
    SummaryWriter = None
try:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
except ImportError:
    plt = None

parser = argparse.ArgumentParser(description="spirals")
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("-b", "--batch-size", type=int, default=32)
parser.add_argument("--lr", "--learning-rate", default=3e-2, type=float, dest="lr")
parser.add_argument("-j", "--workers", default=2, type=int)
parser.add_argument("--seed", default=7, type=int)
parser.add_argument("--resume", default="", type=str)
parser.add_argument("--amp", action="store_true")
parser.add_argument("--out", default="runs")


class AverageMeter(object):
    def __init__(self, name, fmt=":f"):
        self.name, self.fmt = name, fmt
        self.reset()

    def reset(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        return ("{name} {val" + self.fmt + "} ({avg" + self.fmt + "})").format(**self.__dict__)


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    cudnn.deterministic, cudnn.benchmark = True, False


class Spirals(Dataset):
    def __init__(self, n=600, classes=3, transform=None):
        turn = np.linspace(0, 3, n // classes)
        points = [np.stack([t * np.sin(4 * t + c), t * np.cos(4 * t + c)], 1) for c in (2 * np.pi * np.arange(classes) / classes) for t in [turn]]
        self.data = np.concatenate(points).astype(np.float32) + np.random.randn(n, 2).astype(np.float32) * 0.02
        self.targets = np.repeat(np.arange(classes), n // classes)
        self.transform = transform

    def __getitem__(self, index):
        point = torch.from_numpy(self.data[index])
        return {"x": self.transform(point) if self.transform else point, "y": int(self.targets[index]), "name": f"p{index}"}

    def __len__(self):
        return len(self.targets)


class Residual(nn.Module):
    def __init__(self, width, p=0.0):
        super(Residual, self).__init__()
        self.body = nn.Sequential(OrderedDict([
            ("norm", nn.BatchNorm1d(width)), ("act", nn.LeakyReLU(0.1, inplace=True)), ("fc", nn.Linear(width, width)), ("drop", nn.Dropout(p)),
        ]))

    def forward(self, x):
        return x + self.body(x.clone())


class Net(nn.Module):
    def __init__(self, width=48, depth=3, classes=3):
        super().__init__()
        self.stem = nn.Linear(6, width)
        self.blocks = nn.ModuleList([Residual(width, 0.05) for _ in range(depth)])
        self.head = nn.utils.parametrizations.weight_norm(nn.Linear(width, classes))
        self.apply(self._init_weights)

    @staticmethod
    def _init_weights(module):
        if isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="leaky_relu", a=0.1)
            if module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, x):
        x = torch.cat([x, x.pow(2), torch.sin(3 * x)], dim=1)
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(F.elu(x, inplace=False))


def worker_init_fn(worker_id):
    np.random.seed(torch.initial_seed() % 2**32)


def collate(samples):
    batch = torch.utils.data.default_collate([{k: s[k] for k in ("x", "y")} for s in samples])
    return batch["x"], batch["y"], [s["name"] for s in samples]


@torch.no_grad()
def evaluate(model, loader, device, criterion):
    model.eval()
    losses, correct, confusion = AverageMeter("loss"), 0, torch.zeros(3, 3, dtype=torch.long)
    for x, y, _ in loader:
        x, y = x.to(device, non_blocking=True), y.to(device)
        out = model(x)
        losses.update(criterion(out, y).item(), x.size(0))
        pred = out.data.max(1, keepdim=True)[1]
        correct += pred.eq(y.data.view_as(pred)).cpu().sum().item()
        for t, p in zip(y.view(-1), pred.view(-1)):
            confusion[t.long(), p.long()] += 1
    assert confusion.sum().item() == losses.count and confusion.diag().sum().item() == correct
    return losses.avg, 100.0 * correct / len(loader.dataset)


def main(argv=None):
    args = parser.parse_args(argv)
    set_seed(args.seed)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    os.makedirs(args.out, exist_ok=True)
    data = Spirals(transform=lambda p: p * 1.0)
    train_set, val_set = random_split(data, [480, 120], generator=torch.Generator().manual_seed(42))
    labels = torch.tensor([data.targets[i] for i in train_set.indices])
    weights = 1.0 / torch.bincount(labels).float()
    sampler = WeightedRandomSampler(weights[labels], len(labels), replacement=True)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler, num_workers=args.workers, collate_fn=collate, drop_last=True,
                              pin_memory=device.type == "cuda", worker_init_fn=worker_init_fn, persistent_workers=args.workers > 0)
    val_loader = DataLoader(Subset(data, val_set.indices), batch_size=64, shuffle=False, collate_fn=collate)

    model = Net().to(device)
    if torch.cuda.device_count() > 1:
        model = nn.DataParallel(model)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05).to(device)
    decay = [p for n, p in model.named_parameters() if p.dim() >= 2]
    no_decay = [p for n, p in model.named_parameters() if p.dim() < 2]
    optimizer = optim.AdamW([{"params": decay, "weight_decay": 1e-2}, {"params": no_decay, "weight_decay": 0.0}], lr=args.lr, betas=(0.9, 0.95))
    steps = len(train_loader)
    scheduler = SequentialLR(optimizer, [LinearLR(optimizer, 0.1, total_iters=steps), CosineAnnealingLR(optimizer, args.epochs * steps)], [steps])
    scaler = GradScaler(enabled=args.amp and device.type == "cuda")
    start_epoch, best, history = 0, 0.0, defaultdict(list)
    if args.resume:
        checkpoint = torch.load(args.resume, map_location=device, weights_only=False)
        start_epoch, best, history = checkpoint["epoch"], checkpoint["best"], defaultdict(list, checkpoint["history"])
        model.load_state_dict(checkpoint["state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        scheduler.load_state_dict(checkpoint["scheduler"])
        print("=> loaded checkpoint '{}' (epoch {})".format(args.resume, checkpoint["epoch"]))
    ema = copy.deepcopy(model).eval()
    for p in ema.parameters():
        p.requires_grad_(False)

    for epoch in range(start_epoch, args.epochs):
        model.train()
        loss_meter, end = AverageMeter("loss", ":.4f"), time.time()
        for i, (x, y, names) in enumerate(train_loader):
            x, y = Variable(x.to(device)), Variable(y.to(device).type(torch.LongTensor).to(device))
            optimizer.zero_grad(set_to_none=True)
            with autocast(enabled=scaler.is_enabled()):
                loss = criterion(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=5.0)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            assert torch.isfinite(norm) and len(names) == x.shape[0]
            loss_meter.update(loss.item(), x.size(0))
            with torch.no_grad():
                for a, b in zip(ema.parameters(), model.parameters()):
                    a.mul_(0.9).add_(b.detach(), alpha=0.1)
                for a, b in zip(ema.buffers(), model.buffers()):
                    a.copy_(b)
        val_loss, accuracy = evaluate(model, val_loader, device, criterion)
        history["train"].append(loss_meter.avg)
        history["val"].append(val_loss)
        best = max(best, accuracy)
        print(f"epoch {epoch}: {loss_meter}, val {val_loss:.4f}, accuracy {accuracy:.1f}%, lr {optimizer.param_groups[0]['lr']:.2e}, {time.time() - end:.1f} s")
        torch.save({"epoch": epoch + 1, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(),
                    "best": best, "history": dict(history), "args": vars(args)}, os.path.join(args.out, "checkpoint.pth.tar"))
    if plt is not None:
        plt.plot(history["train"])
        plt.savefig(os.path.join(args.out, "loss.png"))
    print(f"parameters: {sum(p.numel() for p in model.parameters() if p.requires_grad):,}")
    return history, best, evaluate(ema, val_loader, device, criterion)[1]


if __name__ == "__main__":
    history, best, _ = main()
    assert history["train"][-1] < 0.7 * history["train"][0], history
    resumed, best, averaged = main(["--resume", "runs/checkpoint.pth.tar", "--epochs", "9", "--workers", "0", "--amp"])
    assert len(resumed["train"]) == 9 and best > 60, (best, dict(resumed))
    print("done", best, averaged)
