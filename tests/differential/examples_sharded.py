"""Programs of pytorch/examples that shard their models, on PyTorch over gloo and on Rushlight: FSDP2 and tensor_parallelism.

    PYTHON tests/differential/examples_sharded.py SOURCES [CASE ...] [--reference PYTHON]

with a Python that has the front, built or installed. SOURCES is a checkout or a git directory of github.com/pytorch/examples; nothing of it is part of this project.
``--reference`` is a Python that has PyTorch (this one by default). The programs run as they stand but for names of accelerators (``NAMES``); random numbers,
which differ, come from formulas on both sides. Compares the parameters after every step.
"""

import argparse
import json
import os
import pathlib
import secrets
import socket
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
FRONT = HERE.parents[1] / "bindings" / "python" / "python"

#: The program, its options, the ranks, and how often it runs: the second run loads what the first has saved.
CASES = {
    "FSDP2": ("FSDP2/example.py", [], 2, 2),
    "FSDP2 prefetching": ("FSDP2/example.py", ["--explicit-prefetching"], 2, 1),
    "FSDP2 mixed precision": ("FSDP2/example.py", ["--mixed-precision"], 2, 1),
    "FSDP2 dcp": ("FSDP2/example.py", ["--dcp-api"], 2, 2),
    "tensor parallel": ("tensor_parallelism/tensor_parallel_example.py", [], 2, 1),
    "sequence parallel": ("tensor_parallelism/sequence_parallel_example.py", [], 2, 1),
    "fsdp x tp": ("tensor_parallelism/fsdp_tp_example.py", [], 4, 1),
}
#: The names of accelerators, and what stands for them.
NAMES = {
    "torch.accelerator.is_available()": "True", "torch.accelerator.device_count()": "8", "torch.accelerator.current_accelerator()": 'torch.device("cpu")',
    "torch.accelerator.device_index(rank)": "None",
}
#: Of an element or a norm, in relation to it where it is above 1. In bf16 an element with a gradient near zero moves
#: with Adam either way, which grows: the norms are compared alone, after the first step.
TOLERANCE = {"FSDP2 mixed precision": 3e-3, "fsdp x tp": 1e-3}
NORMS_ONLY = {"FSDP2 mixed precision"}


def child(program, options):
    """Runs a program in this process."""
    import torch
    import torch.nn.attention
    from torch.distributed.tensor import DTensor, distribute_tensor
    from torch.distributed.tensor.experimental import implicit_replication
    from torch.optim.optimizer import register_optimizer_step_post_hook

    drawn = [0]

    def formula(shape, scale):
        drawn[0] += 1
        count = 1
        for size in shape:
            count *= size
        return torch.arange(count, dtype=torch.float64).mul(0.7310585).add(drawn[0] * 0.37).sin().mul(scale).float().reshape(tuple(shape))

    def fill(tensor, *args, **kwargs):
        value = formula(tensor.shape, 0.1)
        if isinstance(tensor, DTensor):
            value = distribute_tensor(value, tensor.device_mesh, tensor.placements)
        with torch.no_grad():
            return tensor.copy_(value)

    for name in ("kaiming_uniform_", "uniform_", "normal_", "trunc_normal_", "xavier_uniform_"):
        setattr(torch.nn.init, name, fill)
    torch.rand = lambda *shape, **kwargs: formula(shape[0] if isinstance(shape[0], tuple) else shape, 0.5) + 0.5
    torch.randint = lambda *args, **kwargs: ((formula(args[-1], 0.5) + 0.5) * (args[-2] - 1)).long()
    def report(optimizer, args, kwargs):
        sums = []
        for group in optimizer.param_groups:
            for p in group["params"]:
                value = (p.full_tensor() if isinstance(p, DTensor) else p).detach().double()
                sums.append([value.norm().item(), value.flatten()[value.numel() // 3].item()])
        if os.environ["RANK"] == "0":
            print("REPORT", json.dumps(sums), flush=True)

    register_optimizer_step_post_hook(report)
    sys.argv = [program, *options]
    sys.path.insert(0, str(pathlib.Path(program).parent))
    os.chdir(pathlib.Path(program).parent)
    to_empty = torch.nn.Module.to_empty

    def emptied(module, **kwargs):
        """FSDP2 leaves the layers' parameters as they come."""
        made = to_empty(module, **kwargs)
        for p in made.parameters():
            fill(p)
        return made

    torch.nn.Module.to_empty = emptied
    # PyTorch's other kernels of attention have no sharding rules for CPUs; this one has a mask that is no distributed
    # tensor.
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), implicit_replication():
        execute(program)


def execute(program):
    exec(compile(pathlib.Path(program).read_text(encoding="utf-8"), program, "exec"), {"__name__": "__main__", "__file__": program})


def unpack(sources, folder):
    """The programs, from a checkout or a git directory."""
    if (sources / "distributed").is_dir():
        command = ["tar", "c", "-C", str(sources / "distributed"), "FSDP2", "tensor_parallelism"]
    else:
        command = ["git", f"--git-dir={sources}", "archive", "HEAD:distributed", "FSDP2", "tensor_parallelism"]
    packed = subprocess.run(command, capture_output=True, check=True).stdout
    subprocess.run(["tar", "x", "-C", str(folder)], input=packed, check=True)
    for file in pathlib.Path(folder).rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for name, stand_in in NAMES.items():
            text = text.replace(name, stand_in)
        file.write_text(text, encoding="utf-8")


def run(command, environment, program, options, ranks):
    """What rank 0 reports of the parameters."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = {**os.environ, **environment, "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    env |= {"OMP_NUM_THREADS": "1", "RUSHLIGHT_NUM_THREADS": "1", "RUSHLIGHT_JOB_SECRET": secrets.token_hex(16)}
    started = [
        subprocess.Popen(
            [*command, str(pathlib.Path(__file__).resolve()), "--child", str(program), *options], env=env | {"RANK": str(r), "LOCAL_RANK": str(r)}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )
        for r in range(ranks)
    ]
    try:
        printed = [one.communicate(timeout=600)[0] for one in started]
    finally:
        for one in started:
            one.kill()
    for rank, one in enumerate(started):
        if one.returncode:
            print(f"rank {rank} of {' '.join(command)} ended with {one.returncode}:\n{printed[rank][-3000:]}", flush=True)
            return []
    return [json.loads(line.split("REPORT", 1)[1]) for line in printed[0].splitlines() if "REPORT" in line]


def main():
    if sys.argv[1:2] == ["--child"]:
        return child(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=pathlib.Path)
    parser.add_argument("cases", nargs="*", help=", ".join(CASES))
    parser.add_argument("--reference", default=sys.executable, help="a Python that has PyTorch")
    options = parser.parse_args()
    peers = {"torch": ([options.reference], {"PYTHONPATH": ""}), "rushlight": ([sys.executable, "-m", "rushlight"], {"PYTHONPATH": str(FRONT)})}
    failed = False
    for name in options.cases or CASES:
        program, arguments, ranks, times = CASES[name]
        found = {}
        for peer, (command, environment) in peers.items():
            with tempfile.TemporaryDirectory() as folder:
                unpack(options.sources, folder)
                found[peer] = [report for _ in range(times) for report in run(command, environment, pathlib.Path(folder) / program, arguments, ranks)]
        theirs, mine = found["torch"], found["rushlight"]
        compared = 1 if name in NORMS_ONLY else len(theirs)
        apart = [abs(x - y) / max(1.0, abs(y)) for a, b in list(zip(mine, theirs))[:compared] for p, q in zip(a, b) for x, y in list(zip(p, q))[: 1 if name in NORMS_ONLY else 2]]
        agrees = len(theirs) == len(mine) >= 10 * times and max(apart) <= TOLERANCE.get(name, 1e-4)
        failed |= not agrees
        print(json.dumps({"case": name, "steps": [len(theirs), len(mine)], "largest difference": max(apart, default=None), "agrees": agrees}), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
