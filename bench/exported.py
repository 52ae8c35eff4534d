"""Exported models beside PyTorch and onnxruntime: milliseconds for one run on this machine's CPU.

    PYTHON bench/exported.py --ours PYTHON [--torch PYTHON] [--models NAME,...] [--threads N] [--runs N] [--rounds N] [--without NAME,...] [--quick]

Each engine runs in a process of its own: ours (eager, and the frozen program of torch.export), PyTorch (eager, torch.jit, torch.compile) and onnxruntime, whose
files our torch.onnx.export writes. Ratios above one mean that the other takes longer than our exported program. --models selects models by the beginning of
their names and --without leaves columns out; a model's row is printed when it is complete. The engines take turns, --rounds times, and the median run of
the fastest round counts. --quick takes small models.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time


NAMES = ["ResNet", "BERT", "GPT-2"]


def model(torch, name, quick):
    """A module and example inputs."""
    torch.manual_seed(0)
    if name == "ResNet":
        import torchvision

        size = 64 if quick else 224
        make = torchvision.models.resnet18 if quick else torchvision.models.resnet50
        return make(weights=None).eval(), (torch.randn(1, 3, size, size),)
    import transformers

    if name == "BERT":
        small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128} if quick else {}
        return transformers.BertModel(transformers.BertConfig(**small), add_pooling_layer=False).eval(), (torch.randint(0, 1000, (1, 128)),)
    small = {"n_embd": 64, "n_layer": 2, "n_head": 4} if quick else {}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False, **small)).eval(), (torch.randint(0, 1000, (1, 64)),)


def title(name, quick):
    return {"ResNet": "ResNet-18" if quick else "ResNet-50", "GPT-2": "GPT-2, a token after 64"}.get(name, name)


class First:
    """The first output of a model, as a tensor."""

    def __new__(cls, torch, model):
        class Wrapped(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, x):
                out = self.model(x)
                return out if isinstance(out, torch.Tensor) else out[0]

        return Wrapped().eval()


def timed(call, settings):
    # With one thread the processor's time counts, which other programs on the machine change little.
    clock = time.process_time if settings["threads"] == 1 else time.perf_counter
    for _ in range(3):
        call()
    times = []
    for _ in range(settings["runs"]):
        start = clock()
        call()
        times.append(1e3 * (clock() - start))
    return statistics.median(times)


def measured(settings, calls):
    """Milliseconds by name, of the calls that are wanted."""
    return {name: timed(call, settings) for name, call in calls.items() if name not in settings["without"]}


def ours(settings):
    import torch

    torch.set_num_threads(settings["threads"])
    with torch.no_grad():
        module, args = model(torch, settings["model"], settings["quick"])
        module = First(torch, module)
        frozen = torch.jit.freeze(torch.jit.trace(module, args))
        if not pathlib.Path(settings["file"]).exists():
            torch.onnx.export(torch.export.export(module, args), f=settings["file"])
        return measured(settings, {"ours, eager": lambda: module(*args), "ours, exported": lambda: frozen(*args)})


def pytorch(settings):
    import torch

    torch.set_num_threads(settings["threads"])
    with torch.no_grad():
        module, args = model(torch, settings["model"], settings["quick"])
        module = First(torch, module)
        out = measured(settings, {"eager": lambda: module(*args)})
        if "torch.jit" not in settings["without"]:
            script = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(module, args)))
            out |= measured(settings, {"torch.jit": lambda: script(*args)})
        if "torch.compile" not in settings["without"]:
            try:
                compiled = torch.compile(module)
                out |= measured(settings, {"torch.compile": lambda: compiled(*args)})
            except Exception as error:  # A machine without a compiler.
                print(f"torch.compile: {str(error).splitlines()[0]}", file=sys.stderr)
        return out


def runtime(settings):
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = settings["threads"]
    session = onnxruntime.InferenceSession(settings["file"], options, providers=["CPUExecutionProvider"])
    given, generator = session.get_inputs()[0], np.random.default_rng(0)
    shape = [int(size) for size in given.shape]
    value = generator.integers(0, 1000, shape) if given.type == "tensor(int64)" else generator.standard_normal(shape, dtype=np.float32)
    return measured(settings, {"onnxruntime": lambda: session.run(None, {given.name: value})})


def child(command, which, settings):
    run = subprocess.run([*command, __file__, "--child", which, json.dumps(settings)], capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(f"{which} failed:\n{run.stderr[-2000:]}")
    return json.loads(run.stdout.strip().splitlines()[-1])


def main():
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps({"ours": ours, "pytorch": pytorch, "runtime": runtime}[sys.argv[2]](json.loads(sys.argv[3]))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", required=True, help="a Python that has Rushlight")
    parser.add_argument("--torch", default=sys.executable, help="a Python that has PyTorch and onnxruntime")
    parser.add_argument("--models", default=",".join(NAMES), help=f"of {', '.join(NAMES)}")
    parser.add_argument("--without", default="", help="columns to leave out, such as torch.compile")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    wanted = given.models.split(",")
    unknown = [name for name in wanted if not any(known.lower().startswith(name.lower()) for known in NAMES)]
    if unknown:
        parser.error(f"--models: no {', '.join(unknown)}; there are {', '.join(NAMES)}")
    columns = ["eager", "torch.jit", "torch.compile", "onnxruntime"]
    without = [name for name in given.without.split(",") if name]
    if unknown := [name for name in without if name not in columns + ["ours, eager"]]:
        parser.error(f"--without: no {', '.join(unknown)}; there are {', '.join(columns)}")
    print("| model | ours, eager | ours, exported | " + " | ".join(f"{c} | ratio" for c in columns) + " |")
    print("|---" * (3 + 2 * len(columns)) + "|", flush=True)
    for name in NAMES:
        if not any(name.lower().startswith(start.lower()) for start in wanted):
            continue
        found = {}
        with tempfile.TemporaryDirectory() as folder:
            settings = {"model": name, "threads": given.threads, "runs": given.runs, "quick": given.quick, "without": without, "file": f"{folder}/model.onnx"}
            for _ in range(given.rounds):
                times = child([given.ours, "-m", "rushlight"], "ours", settings) | child([given.torch], "pytorch", settings)
                if "onnxruntime" not in without:
                    times |= child([given.torch], "runtime", settings)
                for column, time_ in times.items():
                    found[column] = min(found.get(column, time_), time_)
        cells = [f"{found[c]:.2f} | {found[c] / found['ours, exported']:.2f}" if c in found else " | " for c in columns]
        eager = f"{found['ours, eager']:.2f}" if "ours, eager" in found else ""
        print(f"| {title(name, given.quick)} | {eager} | {found['ours, exported']:.2f} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
