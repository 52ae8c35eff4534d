"""Times training steps of whole models on a GPU. The same file runs under PyTorch and, by `python -m rushlight`, under Rushlight; `bench/gpu_models` runs
both and makes the table. Every line is `name mode milliseconds peak-MiB first-seconds`, or `failed` and why.
Usage: gpu_models.py [WORD,WORD...] [--compile] [--only MODE]. Only models whose name has one of the words. Rushlight runs a step op by op and captured;
PyTorch op by op and as a CUDA graph, with --compile also by `torch.compile` in two modes (minutes). Image models in bfloat16 have their channels last."""

import sys
import time

import torch
import torch.nn.functional as F
from whole_models import ConvNext, Dit, Gpt, Llama, Mixer, Moe, Vit, resnet50

OURS = "rushlight" in sys.modules
ONLY = sys.argv[sys.argv.index("--only") + 1] if "--only" in sys.argv else None
WORDS = [word for word in sys.argv[1:] if not word.startswith("--") and word != ONLY]
FILTERS = WORDS[0].split(",") if WORDS else [""]
CUDA = "cuda"


def classified(model, images, size, last):
    x = torch.randn(images, 3, size, size, device=CUDA)
    if last:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    y = torch.randint(0, 1000, (images,), device=CUDA)
    return model, (x,), lambda out: F.cross_entropy(out, y)


def language(model, rows, tokens, vocabulary):
    ids, next_ids = (torch.randint(0, vocabulary, (rows, tokens), device=CUDA) for _ in range(2))
    return model, (ids,), lambda out: F.cross_entropy(out.view(-1, vocabulary), next_ids.view(-1))


def diffusion():
    x, noise = torch.randn(64, 4, 32, 32, device=CUDA), torch.randn(64, 256, 32, device=CUDA)
    t, labels = torch.randint(0, 1000, (64,), device=CUDA), torch.randint(0, 1000, (64,), device=CUDA)
    return Dit().to(CUDA), (x, t, labels), lambda out: F.mse_loss(out.float(), noise)


#: A model, its inputs and its loss; and whether autocast to bfloat16 is on.
MODELS = {
    "convnext_t_bf16": (lambda: classified(ConvNext().to(CUDA), 64, 224, True), True),
    "convnext_t_rows_bf16": (lambda: classified(ConvNext().to(CUDA), 64, 224, False), True),
    "resnet50_rows_f32": (lambda: classified(resnet50().to(CUDA), 64, 224, False), False),
    "resnet50_bf16": (lambda: classified(resnet50().to(CUDA), 128, 224, True), True),
    "mixer_b16_bf16": (lambda: classified(Mixer().to(CUDA), 64, 224, False), True),
    "vit_b16_bf16": (lambda: classified(Vit().to(CUDA), 64, 224, False), True),
    "dit_b2_bf16": (diffusion, True),
    "nanogpt_dropout_bf16": (lambda: language(Gpt(65, 256, 384, 6, 6, 0.2).to(CUDA), 64, 256, 65), True),
    "gpt2_bf16": (lambda: language(Gpt(50304, 1024, 768, 12, 12, 0.0, True).to(CUDA), 16, 1024, 50304), True),
    "gpt_1.5b_bf16": (lambda: language(Gpt(50304, 1024, 1600, 25, 48, 0.0, True).to(CUDA), 4, 1024, 50304), True),
    "llama_190m_bf16": (lambda: language(Llama().to(CUDA), 8, 1024, 32000), True),
    "moe_bf16": (lambda: language(Moe().to(CUDA), 16, 512, 8192), True),
}


def best(step, least=10, seconds=1.5):
    """Milliseconds of the fastest of some groups of steps."""
    step()
    torch.cuda.synchronize()
    fastest, began = float("inf"), time.perf_counter()
    while time.perf_counter() - began < seconds:
        start = time.perf_counter()
        for _ in range(least):
            step()
        torch.cuda.synchronize()
        fastest = min(fastest, (time.perf_counter() - start) / least)
    return fastest * 1e3


def measured(make, lower, mode):
    torch.manual_seed(0)
    model, inputs, loss_of = make()
    # PyTorch's own graphs need the optimizer's counters on the device.
    options = {} if OURS else {"fused": True, "capturable": mode == "graph"}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **options)
    forward = torch.compile(model, mode=mode.split(":")[1]) if mode.startswith("compile:") else model

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(CUDA, torch.bfloat16, enabled=lower):
            loss = loss_of(forward(*inputs))
        loss.backward()
        optimizer.step()

    torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    run = step
    if mode == "captured":
        run = torch.capture(step, device=CUDA)
    elif mode == "graph":
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        run = graph.replay
    run()
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    # Kernels of fused chains are compiled while steps run, and used once they are there.
    began = time.perf_counter()
    while time.perf_counter() - began < (8 if mode == "captured" else 0.5):
        run()
        torch.cuda.synchronize()
    return best(run), torch.cuda.max_memory_allocated() / 2**20, first


def main():
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.benchmark = True
    modes = ["eager", "captured"] if OURS else ["eager", "graph"]
    if "--compile" in sys.argv and not OURS:
        modes += ["compile:default", "compile:reduce-overhead"]
    for name, (make, lower) in MODELS.items():
        if not any(word in name for word in FILTERS):
            continue
        for mode in modes:
            if ONLY and mode != ONLY:
                continue
            try:
                milliseconds, peak, first = measured(make, lower, mode)
                print(name, mode, f"{milliseconds:.3f} {peak:.0f} {first:.2f}", flush=True)
            except Exception as e:
                print(name, mode, "failed", type(e).__name__, (str(e).splitlines() or [""])[0][:160], flush=True)
            if hasattr(torch, "compiler") and not OURS:
                torch.compiler.reset()
            torch.cuda.empty_cache()


main()
