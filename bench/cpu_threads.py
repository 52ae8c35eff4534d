"""Times training steps on the CPU with 1, 2, 4, 8 and 16 threads. The same file runs under PyTorch and, by `python -m rushlight`, under Rushlight;
`bench/cpu_threads` runs both in turns and makes the table. Every line is `name threads milliseconds`.
Usage: cpu_threads.py [WORD,WORD...] [--threads 1,16] [--seconds 2] [--profile]. Only models whose name has one of the words; --profile prints the
ops of one step by their time. One process may time several counts of threads."""

import argparse
import time

import torch
from torch_models import step

MODELS = [f"{model}_{precision}" for model in ("chargpt", "transformer", "resnet18", "gpt768", "cnn") for precision in ("f32", "bf16")]


def measured(run, seconds):
    """Milliseconds of the fastest step."""
    run()
    run()
    fastest, began = float("inf"), time.perf_counter()
    while time.perf_counter() - began < seconds:
        start = time.perf_counter()
        run()
        fastest = min(fastest, time.perf_counter() - start)
    return fastest * 1e3


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("words", nargs="?", default="")
    options.add_argument("--threads", default="1,2,4,8,16")
    options.add_argument("--seconds", type=float, default=2.0)
    options.add_argument("--profile", action="store_true")
    options = options.parse_args()
    for name in MODELS:
        if not any(word in name for word in options.words.split(",")):
            continue
        torch.manual_seed(0)
        run = step(*name.split("_"))
        for threads in map(int, options.threads.split(",")):
            torch.set_num_threads(threads)
            print(name, threads, f"{measured(run, options.seconds):.3f}", flush=True)
            if options.profile:
                with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
                    run()
                print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=20), flush=True)


if __name__ == "__main__":
    main()
