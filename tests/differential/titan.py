"""torchtitan's Llama debug model, with its settings of FSDP, TP, PP and their compositions, on PyTorch over gloo and on Rushlight: the losses of training steps.

    PYTHON tests/differential/titan.py SOURCES [CASE ...] [--reference PYTHON] [--revision v0.2.2] [--steps 4]

with a Python that has the front (built or installed) and torchtitan's requirements (datasets, tokenizers, torchdata, tyro, tensorboard). SOURCES is a git directory of
github.com/pytorch/torchtitan; nothing of it is part of this project. ``--reference`` is a Python that has PyTorch (this one by default). The sources run as they stand
but for names of GPUs (``NAMES``). The text is this project's documentation. PyTorch writes a seed checkpoint by torchtitan's own command; both load it.
"""

import argparse
import json
import os
import pathlib
import re
import secrets
import socket
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FRONT = ROOT / "bindings" / "python" / "python"

#: What stands for a GPU's name or a GPU's functions, by file: the CPU's.
NAMES = {
    "torchtitan/tools/utils.py": [("device_type, device_module = get_device_info()", "from types import SimpleNamespace as _Space\n\n" + (
        "device_type, device_module = 'cpu', _Space(\n"
        "    current_device=lambda: 0, set_device=lambda device: None, synchronize=lambda: None, empty_cache=lambda: None, reset_peak_memory_stats=lambda: None,\n"
        "    get_device_name=lambda device: 'CPU', get_device_properties=lambda device: _Space(total_memory=1 << 34), memory_stats=lambda device: {\n"
        "        'active_bytes.all.peak': 0, 'reserved_bytes.all.peak': 0, 'num_alloc_retries': 0, 'num_ooms': 0})\n"
    ))],
    "torchtitan/distributed/utils.py": [
        ("barrier(device_ids=[device_module.current_device()])", "barrier()"), ("if enable_cpu_backend:", "if enable_cpu_backend and device_type != 'cpu':"),
    ],
    # Gloo has no sums with a factor.
    "torchtitan/models/llama3/infra/parallelize.py": [
        ("module.set_gradient_divide_factor(1.0)", "module.set_gradient_divide_factor(1.0); module.set_force_sum_reduction_for_comms(True)")
    ],
    "torchtitan/train.py": [('torch.device(f"{device_type}:{int(os.environ[\'LOCAL_RANK\'])}")', "torch.device(device_type)")],
}

#: By name: ranks, options, the largest difference of losses that is allowed (in relation to the loss), and
#: PyTorch's own ranks and options where it cannot do the same on CPUs: it has no context parallelism there, and its
#: offload pins memory.
EXACT = ["--training.mixed_precision_param", "float32"]
SEQUENTIAL = ["--parallelism.pipeline_parallel_microbatch_size", "2"]
CASES = {
    "fsdp": (2, EXACT, 1e-5),
    "fsdp bf16": (2, [], 2e-3),
    "fsdp never resharded": (2, [*EXACT, "--parallelism.fsdp_reshard_after_forward", "never"], 1e-5),
    "fsdp full recomputation": (2, [*EXACT, "--activation_checkpoint.mode", "full"], 1e-5),
    "fsdp selected ops": (2, [*EXACT, "--activation_checkpoint.selective_ac_option", "op"], 1e-5),
    "fsdp offload": (2, [*EXACT, "--training.enable_cpu_offload"], 1e-5, (2, EXACT)),
    "ddp": (2, [*EXACT, "--parallelism.data_parallel_shard_degree", "1", "--parallelism.data_parallel_replicate_degree", "2"], 1e-5),
    "hsdp": (4, [*EXACT, "--parallelism.data_parallel_replicate_degree", "2"], 1e-5),
    "tp": (2, [*EXACT, "--parallelism.tensor_parallel_degree", "2"], 1e-5),
    "tp without loss parallel": (2, [*EXACT, "--parallelism.tensor_parallel_degree", "2", "--parallelism.disable_loss_parallel"], 1e-5),
    "fsdp x tp": (4, [*EXACT, "--parallelism.tensor_parallel_degree", "2"], 1e-5),
    "cp": (2, [*EXACT, "--parallelism.context_parallel_degree", "2"], 1e-5, (1, EXACT)),
    "pp 1f1b": (2, [*EXACT, *SEQUENTIAL, "--parallelism.pipeline_parallel_degree", "2", "--parallelism.pipeline_parallel_schedule", "1F1B"], 1e-5),
    "pp interleaved": (2, [*EXACT, *SEQUENTIAL, "--parallelism.pipeline_parallel_degree", "2"], 1e-5),
    "pp gpipe": (2, [*EXACT, *SEQUENTIAL, "--parallelism.pipeline_parallel_degree", "2", "--parallelism.pipeline_parallel_schedule", "GPipe"], 1e-5),
    "pp zero bubble": (2, [*EXACT, *SEQUENTIAL, "--parallelism.pipeline_parallel_degree", "2", "--parallelism.pipeline_parallel_schedule", "ZBVZeroBubble"], 1e-5),
    "pp x fsdp": (4, [*EXACT, *SEQUENTIAL, "--parallelism.pipeline_parallel_degree", "2", "--parallelism.pipeline_parallel_schedule", "1F1B"], 1e-5),
    "pp x tp": (4, [*EXACT, *SEQUENTIAL, "--parallelism.pipeline_parallel_degree", "2", "--parallelism.tensor_parallel_degree", "2"], 1e-5),
}


def prepare(sources, revision, folder):
    """The sources of a revision, with the names of GPUs replaced, the tokenizer and a text."""
    packed = subprocess.run(["git", f"--git-dir={sources}", "archive", revision, "torchtitan", "tests/assets/tokenizer"], capture_output=True, check=True).stdout
    subprocess.run(["tar", "x", "-C", folder], input=packed, check=True)
    for name, changes in NAMES.items():
        text = (folder / name).read_text(encoding="utf-8")
        for old, new in changes:
            if old not in text:
                raise SystemExit(f"{name} of {revision} does not contain {old!r}")
            text = text.replace(old, new)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "tests/assets/c4_test").mkdir(parents=True)
    pages = sorted((ROOT / "docs/book/src").glob("*.md"))
    lines = [json.dumps({"text": page.read_text(encoding="utf-8")}) for page in pages]
    (folder / "tests/assets/c4_test/data.json").write_text("\n".join(lines) + "\n", encoding="utf-8")


def launch(command, ranks, folder, options, environment, timeout=900):
    """The lines of rank 0, or of the last rank, that have losses."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = {**os.environ, **environment, "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    env |= {"OMP_NUM_THREADS": "1", "RUSHLIGHT_NUM_THREADS": "1", "RUSHLIGHT_JOB_SECRET": secrets.token_hex(16), "HF_HUB_OFFLINE": "1", "LOG_RANK": str(ranks - 1)}
    config = "torchtitan/models/llama3/train_configs/debug_model.toml"
    arguments = ["-m", "torchtitan.train", "--job.config_file", config, *options]
    started = [
        subprocess.Popen([*command, *arguments], cwd=folder, env=env | {"RANK": str(r), "LOCAL_RANK": str(r)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for r in range(ranks)
    ]
    try:
        printed = [one.communicate(timeout=timeout)[0] for one in started]
    finally:
        for one in started:
            one.kill()
    for rank, one in enumerate(started):
        if one.returncode:
            raise RuntimeError(f"rank {rank} ended with {one.returncode}:\n{printed[rank][-3000:]}")
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", text) for text in printed]
    found = [re.findall(r"step:\s*(\d+)\s+loss:\s*(-?[\d.]+)\s+grad_norm:\s*([\d.]+)", text) for text in plain]
    # Ranks without the last stage of a pipeline print -1.
    return next(([(float(loss), float(norm)) for _, loss, norm in rows] for rows in reversed(found) if rows and float(rows[0][1]) > 0), [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=pathlib.Path)
    parser.add_argument("cases", nargs="*", help=", ".join(CASES))
    parser.add_argument("--reference", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--revision", default="v0.2.2")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--recorded", type=pathlib.Path, help="a file of PyTorch's results: read for the cases that it has, and added to")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder to work in, kept")
    options = parser.parse_args()
    unknown = [name for name in options.cases if name not in CASES]
    if unknown:
        parser.error(f"no case {unknown[0]!r}: {', '.join(CASES)}")
    failed = False
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or pathlib.Path(temporary)
        if not (folder / "torchtitan").is_dir():
            folder.mkdir(exist_ok=True)
            prepare(options.sources, options.revision, folder)
        paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        peers = {
            "torch": ([options.reference], {"PYTHONPATH": os.pathsep.join(paths)}),
            "rushlight": ([sys.executable, "-m", "rushlight"], {"PYTHONPATH": os.pathsep.join([str(FRONT), *paths])}),
        }
        # Small enough for a CPU: rows, tokens.
        small = ["--training.local_batch_size", "8", "--training.seq_len", "128", "--training.steps", str(options.steps)]
        seed = folder / "seed" / "checkpoint" / "step-0"
        if not seed.is_dir():
            command, environment = peers["torch"]
            kept = ["--checkpoint.enable", "--checkpoint.create_seed_checkpoint", "--job.dump_folder", str(folder / "seed")]
            launch(command, 1, folder, [*small, *kept, "--parallelism.data_parallel_shard_degree", "1"], environment)
        loaded = ["--checkpoint.enable", "--checkpoint.initial_load_path", str(seed), "--checkpoint.load_only", "--debug.seed", "0"]
        recorded = json.loads(options.recorded.read_text()) if options.recorded and options.recorded.exists() else {}
        for name in options.cases or CASES:
            ranks, chosen, allowed, *other = CASES[name]
            results = {"torch": recorded[name]} if name in recorded else {}
            for peer, (command, environment) in peers.items():
                if peer in results:
                    continue
                count, settings = other[0] if other and peer == "torch" else (ranks, chosen)
                dump = ["--job.dump_folder", str(folder / f"out-{peer}-{name.replace(' ', '-')}")]
                try:
                    results[peer] = launch(command, count, folder, [*small, *loaded, *dump, *settings], environment)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    print(f"{name}: {peer} failed: {error}", flush=True)
                    results[peer] = []
            theirs, mine = results["torch"], results["rushlight"]
            if options.recorded and theirs:
                recorded[name] = theirs
                options.recorded.write_text(json.dumps(recorded))
            # The norms of gradients are printed with four digits.
            apart, norms = (max((abs(a[i] - b[i]) / max(1.0, abs(b[i])) for a, b in zip(mine, theirs)), default=None) for i in (0, 1))
            agrees = len(theirs) == len(mine) == options.steps and apart <= allowed and norms <= max(2e-4, 10 * allowed)
            failed |= not agrees
            row = {"case": name, "ranks": ranks, "losses": [x for x, _ in mine], "torch": [x for x, _ in theirs], "largest difference": apart, "of norms": norms, "agrees": agrees}
            print(json.dumps(row), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
