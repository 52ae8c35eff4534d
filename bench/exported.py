"""Exported models beside PyTorch and onnxruntime: milliseconds for one run on this machine's CPU.

    PYTHON bench/exported.py --ours PYTHON [--torch PYTHON] [--threads N] [--runs N] [--quick]

Each engine runs in a process of its own: ours (eager, and the frozen program of torch.export), PyTorch (eager, torch.jit, torch.compile) and onnxruntime, whose
files our torch.onnx.export writes. Ratios above one mean that the other takes longer than our exported program. --quick takes small models.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time


def models(torch, quick):
    """Names, modules and example inputs."""
    import transformers

    try:
        import torchvision
    except ImportError:
        torchvision = None
    torch.manual_seed(0)
    if torchvision is not None:
        size = 64 if quick else 224
        make = torchvision.models.resnet18 if quick else torchvision.models.resnet50
        yield "ResNet-18" if quick else "ResNet-50", make(weights=None).eval(), (torch.randn(1, 3, size, size),)
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128} if quick else {}
    bert = transformers.BertModel(transformers.BertConfig(**small), add_pooling_layer=False).eval()
    yield "BERT", bert, (torch.randint(0, 1000, (1, 128)),)
    small = {"n_embd": 64, "n_layer": 2, "n_head": 4} if quick else {}
    gpt = transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False, **small)).eval()
    yield "GPT-2, a token after 64", gpt, (torch.randint(0, 1000, (1, 64)),)


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


def timed(call, runs):
    for _ in range(3):
        call()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def ours(settings):
    import torch

    torch.set_num_threads(settings["threads"])
    out = {}
    with torch.no_grad():
        for name, model, args in models(torch, settings["quick"]):
            model = First(torch, model)
            program = torch.export.export(model, args)
            module = torch.jit.freeze(torch.jit.trace(model, args))
            path = pathlib.Path(settings["folder"]) / f"{len(out)}.onnx"
            torch.onnx.export(program, f=str(path))
            out[name] = {
                "eager": timed(lambda: model(*args), settings["runs"]), "exported": timed(lambda: module(*args), settings["runs"]),
                "file": str(path), "input": args[0].tolist() if args[0].dim() == 2 else list(args[0].shape),
            }
    return out


def pytorch(settings):
    import torch

    torch.set_num_threads(settings["threads"])
    out = {}
    with torch.no_grad():
        for name, model, args in models(torch, settings["quick"]):
            model = First(torch, model)
            out[name] = {"eager": timed(lambda: model(*args), settings["runs"])}
            script = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(model, args)))
            out[name]["torch.jit"] = timed(lambda: script(*args), settings["runs"])
            try:
                compiled = torch.compile(model)
                out[name]["torch.compile"] = timed(lambda: compiled(*args), settings["runs"])
            except Exception as error:  # A machine without a compiler.
                print(f"torch.compile: {str(error).splitlines()[0]}", file=sys.stderr)
    return out


def runtime(settings):
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = settings["threads"]
    out = {}
    for name, (file, given) in settings["files"].items():
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        value = np.array(given, dtype=np.int64) if isinstance(given[0], list) else np.random.default_rng(0).standard_normal(given, dtype=np.float32)
        feed = {session.get_inputs()[0].name: value}
        out[name] = {"onnxruntime": timed(lambda: session.run(None, feed), settings["runs"])}
    return out


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
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = {"threads": given.threads, "runs": given.runs, "quick": given.quick, "folder": folder}
        mine = child([given.ours, "-m", "rushlight"], "ours", settings)
        theirs = child([given.torch], "pytorch", settings)
        files = {name: (entry["file"], entry["input"]) for name, entry in mine.items()}
        session = child([given.torch], "runtime", {**settings, "files": files})
    columns = ["eager", "torch.jit", "torch.compile", "onnxruntime"]
    print("| model | ours, eager | ours, exported | " + " | ".join(f"{c} | ratio" for c in columns) + " |")
    print("|---" * (3 + 2 * len(columns)) + "|")
    for name, entry in mine.items():
        others = {**theirs.get(name, {}), **session.get(name, {})}
        cells = [f"{others[c]:.2f} | {others[c] / entry['exported']:.2f}" if c in others else " | " for c in columns]
        print(f"| {name} | {entry['eager']:.2f} | {entry['exported']:.2f} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
