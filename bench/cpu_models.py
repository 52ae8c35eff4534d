"""Times training steps of whole models on the CPU. The same file runs under PyTorch and, by `python -m rushlight`, under Rushlight; `bench/cpu_models`
runs both and makes the table. Every line is `name mode milliseconds peak-MiB first-seconds`, or `failed` and why.
Usage: cpu_models.py [WORD,WORD...] [--threads 2] [--seconds 5] [--mode MODE] [--bf16]. Only models whose name has one of the words. Each model and mode
runs in a process of its own. Either side runs a step op by op and with the model under `torch.compile`, Rushlight also with the whole step captured.
--bf16: under autocast to bfloat16."""

import argparse
import resource
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from whole_models import ConvNext, Dit, Gpt, Llama, Mixer, Moe, Vit, resnet50

OURS = "rushlight" in sys.modules
MODES = ["eager", "compile", "captured"] if OURS else ["eager", "compile"]


def classified(model, images):
    x, y = torch.randn(images, 3, 224, 224), torch.randint(0, 1000, (images,))
    return model, (x,), lambda out: F.cross_entropy(out, y)


def language(model, rows, tokens, vocabulary):
    ids, next_ids = (torch.randint(0, vocabulary, (rows, tokens)) for _ in range(2))
    return model, (ids,), lambda out: F.cross_entropy(out.view(-1, vocabulary), next_ids.view(-1))


def diffusion(images):
    x, noise = torch.randn(images, 4, 32, 32), torch.randn(images, 256, 32)
    t, labels = torch.randint(0, 1000, (images,)), torch.randint(0, 1000, (images,))
    return Dit(384, 6, 4), (x, t, labels), lambda out: F.mse_loss(out.float(), noise)


#: Of a precision: a model, its inputs and its loss. Sizes that two cores train in about a second.
MODELS = {
    "convnext": lambda _: classified(ConvNext((96, 192, 384, 768), (1, 1, 3, 1)), 4),
    "resnet50": lambda _: classified(resnet50(), 4),
    "mixer": lambda _: classified(Mixer(384, 4), 8),
    "vit": lambda _: classified(Vit(384, 6, 4), 8),
    "dit": lambda _: diffusion(4),
    "nanogpt_dropout": lambda _: language(Gpt(65, 256, 384, 6, 6, 0.2), 4, 256, 65),
    "gpt2": lambda _: language(Gpt(8192, 256, 768, 12, 3, 0.0, True), 2, 256, 8192),
    "llama": lambda dtype: language(Llama(8192, 512, 8, 2, 1408, 4, 256, dtype), 2, 256, 8192),
    "moe": lambda _: language(Moe(8192, 256, 4, 3), 4, 256, 8192),
}


def measured(name, mode, seconds, lower):
    """Milliseconds of the fastest step, peak memory in MiB, seconds of the first step."""
    torch.manual_seed(0)
    model, inputs, loss_of = MODELS[name](torch.bfloat16 if lower else torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **({} if OURS else {"fused": True}))
    forward = torch.compile(model) if mode == "compile" else model

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=lower):
            loss = loss_of(forward(*inputs))
        loss.backward()
        optimizer.step()

    start = time.perf_counter()
    run = torch.capture(step) if mode == "captured" else step
    run()
    first = time.perf_counter() - start
    run()
    fastest, count, began = float("inf"), 0, time.perf_counter()
    while count < 3 or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        run()
        fastest, count = min(fastest, time.perf_counter() - start), count + 1
    return fastest * 1e3, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, first


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="?", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--mode", choices=MODES)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--alone", action="store_true", help="measure in this process: one model, one mode")
    args = parser.parse_args()
    names = [name for name in MODELS if any(word in name for word in args.words.split(","))]
    if args.alone:
        torch.set_num_threads(args.threads)
        milliseconds, peak, first = measured(args.words, args.mode, args.seconds, args.bf16)
        print(f"{milliseconds:.3f} {peak:.0f} {first:.2f}", flush=True)
        return
    start = [sys.executable, *(["-m", "rushlight"] if OURS else []), __file__]
    for name in names:
        for mode in [args.mode] if args.mode else MODES:
            options = ["--alone", "--mode", mode, "--threads", str(args.threads), "--seconds", str(args.seconds)]
            done = subprocess.run([*start, name, *options, *(["--bf16"] if args.bf16 else [])], capture_output=True, text=True)
            answer = done.stdout.strip().splitlines()
            reason = (done.stderr.strip().splitlines() or [f"the process ended with {done.returncode}"])[-1][:160]
            print(name, mode, answer[-1] if done.returncode == 0 and answer else f"failed {reason}", flush=True)


if __name__ == "__main__":
    main()
