"""PyTorch's half of the GPU benchmark: the cases of bench/src/bin/gpu.rs, one line each. Training steps are timed eagerly and, as PyTorch at its
best, replayed whole as a CUDA graph; with --compile also by torch.compile in its modes "default" and "reduce-overhead". Convolutional networks in half
precision, and ResNet-50, have their channels last. With --first only the time from the start of the process to the end of the first step is taken. Needs a CUDA build of
torch; torchvision is not needed. Usage: torch_gpu.py [FILTER] [--compile | --first]"""

import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

WORDS = [word for word in sys.argv[1:] if not word.startswith("--")]
FILTER = WORDS[0] if WORDS else ""
COMPILE, FIRST = "--compile" in sys.argv, "--first" in sys.argv
DEVICE = "cuda"


def seconds(call, warm, repeats):
    for _ in range(warm):
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / repeats


def bandwidth(name, nbytes, call):
    if FILTER in name:
        s = seconds(call, 10, 50)
        print(f"{name} {s * 1e6:.1f} us {nbytes / s / 1e12:.3f} TB/s", flush=True)


def rate(name, operations, call):
    if FILTER in name:
        s = seconds(call, 5, 20)
        print(f"{name} {s * 1e6:.1f} us {operations / s / 1e12:.1f} TFLOP/s", flush=True)


def kernels():
    x, z = torch.randn(16384, 4096, device=DEVICE), torch.randn(16384, 4096, device=DEVICE)
    n = x.numel() * 4
    bandwidth("copy", 2 * n, lambda: x.clone())
    bandwidth("add", 3 * n, lambda: x + z)
    bandwidth("gelu", 2 * n, lambda: F.gelu(x))
    bandwidth("softmax", 2 * n, lambda: x.softmax(-1))
    bandwidth("layernorm", 2 * n, lambda: F.layer_norm(x, (4096,)))
    bandwidth("sum_rows", n, lambda: x.sum(-1))
    bandwidth("sum_all", n, lambda: x.sum())
    bandwidth("sum_columns", n, lambda: x.sum(0))
    bandwidth("transpose", 2 * n, lambda: x.t().contiguous())
    del x, z
    for name, dtype, tf32 in (("bf16", torch.bfloat16, False), ("f32", torch.float32, False), ("tf32", torch.float32, True)):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        for size in (1024, 4096, 8192):
            a, b = (torch.randn(size, size, device=DEVICE, dtype=dtype) for _ in range(2))
            rate(f"matmul_{name}_{size}", 2 * size**3, lambda: a @ b)
    torch.backends.cuda.matmul.allow_tf32 = False
    for case, heads, size in (("attention", 12, 64), ("attention_d128", 6, 128)):
        q, k, v = (torch.randn(16, heads, 1024, size, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
        g = torch.randn_like(q)
        for causal in (True, False):
            name = case if causal else f"{case}_full"
            operations = 4 * 16 * 12 * 1024 * 1024 * 64 / (2 if causal else 1)

            def forward():
                with torch.no_grad():
                    F.scaled_dot_product_attention(q, k, v, is_causal=causal)

            def both():
                q.grad = k.grad = v.grad = None
                F.scaled_dot_product_attention(q, k, v, is_causal=causal).backward(g)

            rate(name, operations, forward)
            rate(f"{name}_backward", 3.5 * operations, both)
    a, b = torch.randn(8, device=DEVICE), torch.randn(8, device=DEVICE)
    bandwidth("small_add", 96, lambda: a + b)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.ln1, self.ln2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in self.qkv(self.ln1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c)
        x = x + self.proj(y)
        return x + self.out(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary, length, layers=12, heads=12, width=768):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks, self.ln = nn.ModuleList(Block(width, heads) for _ in range(layers)), nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.f1, self.f2, self.f3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        x = F.max_pool2d(F.relu(self.c2(x)), 2).flatten(1)
        return self.f3(F.relu(self.f2(F.relu(self.f1(x)))))


class Basic(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.c2, self.b2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        plain = stride == 1 and inputs == outputs
        self.short = nn.Identity() if plain else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return F.relu(self.b2(self.c2(F.relu(self.b1(self.c1(x))))) + self.short(x))


def resnet18():
    blocks, inputs = [], 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        blocks += [Basic(inputs, outputs, stride), Basic(outputs, outputs, 1)]
        inputs = outputs
    stem = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.c1, self.b1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.c2, self.b2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.c3, self.b3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        plain = stride == 1 and inputs == outputs
        self.short = nn.Identity() if plain else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = F.relu(self.b2(self.c2(F.relu(self.b1(self.c1(x))))))
        return F.relu(self.b3(self.c3(y)) + self.short(x))


def resnet50():
    blocks, inputs = [], 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            blocks.append(Bottleneck(inputs, width, stride if i == 0 else 1))
            inputs = 4 * width
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class LanguageModel(nn.Module):
    def __init__(self, words=10_000, width=650):
        super().__init__()
        self.embedding, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.lstm = nn.LSTM(width, width, num_layers=2, dropout=0.5)

    def forward(self, tokens):
        x = F.dropout(self.embedding(tokens), 0.5)
        return self.head(F.dropout(self.lstm(x)[0], 0.5))


class WrittenBlock(nn.Module):
    """A block of minGPT, as most public code has it: attention and the activation are written out, operation by operation."""

    def __init__(self, width, heads, length):
        super().__init__()
        self.heads, self.ln1, self.ln2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).view(1, 1, length, length))

    def attend(self, x):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in self.qkv(x).split(c, 2))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / (c // self.heads) ** 0.5)
        weights = F.dropout(scores.masked_fill(self.mask == 0, float("-inf")).softmax(-1), 0.1)
        return F.dropout(self.proj((weights @ v).transpose(1, 2).contiguous().view(b, t, c)), 0.1)

    def forward(self, x):
        x = x + self.attend(self.ln1(x))
        y = self.fc(self.ln2(x))
        y = 0.5 * y * (1.0 + torch.tanh((2.0 / 3.141592653589793) ** 0.5 * (y + 0.044715 * torch.pow(y, 3.0))))
        return x + F.dropout(self.out(y), 0.1)


class WrittenGpt(nn.Module):
    def __init__(self, layers, heads, width, vocabulary, length):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks, self.ln = nn.ModuleList(WrittenBlock(width, heads, length) for _ in range(layers)), nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
        x = F.dropout(self.wte(tokens) + self.wpe(places), 0.1)
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


def since_start():
    """Seconds since this process began."""
    ticks = int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19])
    return float(open("/proc/uptime").read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


def graph_of(call):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def step(name, make):
    if FILTER not in name:
        return
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    call = train(*make())
    call()
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    if FIRST:
        print(f"{name} {since_start():.2f}", flush=True)
        return
    times = {"eager": seconds(call, 8, 30)}
    peak = torch.cuda.max_memory_allocated() / 2**20

    def also(mode, made):
        try:
            times[mode] = seconds(made(), 8, 30)
        except Exception as e:
            print(f"# {name}: not as {mode}: {str(e)[:80]}", flush=True)

    also("graph", lambda: graph_of(call))
    del call
    for mode in ("default", "reduce-overhead") if COMPILE else ():
        torch._dynamo.reset()
        also(f"compile {mode}", lambda: train(*make(), compiled=mode))
    best = min(times.values())
    each = ", ".join(f"{mode} {s * 1e6:.1f} us" for mode, s in times.items())
    print(f"{name} {best * 1e6:.1f} us peak {peak:.0f} MiB first {first:.2f} s ({each})", flush=True)


def train(model, loss, optimizer, bf16=False, clip=False, compiled=None):
    run = torch.compile(model, mode=compiled) if compiled else model

    def call():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, torch.bfloat16, enabled=bf16):
            value = loss(run)
        value.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return call


def linear():
    model, x, y = nn.Linear(20, 1).to(DEVICE), torch.rand(32, 20, device=DEVICE), torch.rand(32, 1, device=DEVICE)
    return model, lambda m: F.mse_loss(m(x), y), torch.optim.SGD(model.parameters(), lr=1e-3)


def transformer(bf16=False):
    src, tgt = torch.rand(32, 1, 512, device=DEVICE), torch.rand(32, 20, 512, device=DEVICE)
    model = nn.Transformer(batch_first=True).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True, fused=True)
    return model, lambda m: F.cross_entropy(m(src, tgt), tgt), optimizer, bf16


def encoder():
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    model = nn.ModuleDict({"encoder": nn.TransformerEncoder(layer, 4), "head": nn.Linear(256, 10)}).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True, fused=True)
    x, y = torch.randn(16, 64, 256, device=DEVICE), torch.randint(10, (16,), device=DEVICE)
    return model, lambda m: F.cross_entropy(m["head"](m["encoder"](x).mean(1)), y), optimizer


def gpt(vocabulary, length, batch, bf16):
    model = Gpt(vocabulary, length).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, capturable=True, fused=True)
    x, y = (torch.randint(vocabulary, (batch, length), device=DEVICE) for _ in range(2))
    return model, lambda m: F.cross_entropy(m(x).flatten(0, 1), y.flatten()), optimizer, bf16, True


def language():
    model = LanguageModel().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    x, y = (torch.randint(10_000, (35, 32), device=DEVICE) for _ in range(2))
    return model, lambda m: F.cross_entropy(m(x).flatten(0, 1), y.flatten()), optimizer, False, True


def written(layers, heads, width, vocabulary, length, batch):
    model = WrittenGpt(layers, heads, width, vocabulary, length).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, betas=(0.9, 0.95), weight_decay=0.1, capturable=True, fused=True)
    x, y = (torch.randint(vocabulary, (batch, length), device=DEVICE) for _ in range(2))
    return model, lambda m: F.cross_entropy(m(x).flatten(0, 1), y.flatten()), optimizer, False, True


def images(model, bf16=False, batch=512, size=32, channels_last=None):
    order = torch.channels_last if (bf16 if channels_last is None else channels_last) else torch.contiguous_format
    model = model.to(DEVICE, memory_format=order)
    x, y = torch.rand(batch, 3, size, size, device=DEVICE), torch.randint(10, (batch,), device=DEVICE)
    x = x.to(memory_format=order)
    return model, lambda m: F.cross_entropy(m(x), y), torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), bf16


if __name__ == "__main__":
    torch.manual_seed(0)
    print(f"# {torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    if not FIRST:
        kernels()
    step("train_linear", linear)
    step("train_transformer_f32", transformer)
    torch.backends.cuda.matmul.allow_tf32 = True
    step("train_transformer_tf32", transformer)
    torch.backends.cuda.matmul.allow_tf32 = False
    step("train_transformer_bf16", lambda: transformer(True))
    step("train_encoder_f32", encoder)
    step("train_chargpt_bf16", lambda: gpt(65, 128, 16, True))
    step("train_chargpt_f32", lambda: gpt(65, 128, 16, False))
    step("train_gpt2_bf16", lambda: gpt(50304, 1024, 16, True))
    step("train_cnn_f32", lambda: images(Net()))
    step("train_resnet18_f32", lambda: images(resnet18()))
    step("train_resnet18_bf16", lambda: images(resnet18(), True))
    step("train_resnet50_f32", lambda: images(resnet50(), batch=64, size=224, channels_last=True))
    step("train_resnet50_bf16", lambda: images(resnet50(), True, 128, 224))
    step("train_lstm_f32", language)
    step("train_mingpt_nano_f32", lambda: written(3, 3, 48, 3, 11, 64))
    step("train_mingpt_mini_f32", lambda: written(6, 6, 192, 65, 128, 64))
