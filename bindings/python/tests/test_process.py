"""Threads, memory, interruption, start-up and the runner."""

import os
import pathlib
import subprocess
import sys
import textwrap
import threading

import pytest

import rushlight as torch

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def run(*args, **kwargs):
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, env=ENVIRONMENT, timeout=120, **kwargs)


def resident():
    """This process's memory in bytes."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_threads_share_tensors():
    weights = torch.randn(64, 64)
    expected = (weights @ weights).sum().item()
    wrong = []

    def work():
        for _ in range(50):
            x = weights.clone().requires_grad_()
            y = (x @ weights).sum()
            y.backward()
            if abs(y.item() - expected) > 1e-2 or x.grad is None:
                wrong.append(y.item())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_other_threads_run_during_long_ops():
    a = torch.randn(700, 700)
    ticks, done = [0], threading.Event()

    def tick():
        while not done.is_set():
            ticks[0] += 1
            done.wait(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    for _ in range(20):
        a @ a
    done.set()
    thread.join()
    assert ticks[0] > 3


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc")
def test_steps_leak_nothing():
    w = torch.randn(20, 20, requires_grad=True)
    x = torch.randn(8, 20)

    def step():
        loss = torch.nn.functional.relu(x @ w).square().mean()
        loss.backward()
        with torch.no_grad():
            w.sub_(0.01 * w.grad)
        w.grad = None
        return x[0:2].shape, {"loss": loss.item()}

    for _ in range(1000):
        step()
    before = resident()
    for _ in range(10_000):
        step()
    assert resident() - before < 4 << 20


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")
def test_import_is_light():
    program = textwrap.dedent("""
        import rushlight, re, sys
        print(re.search(r"VmRSS:\\s*(\\d+)", open("/proc/self/status").read())[1], "numpy" in sys.modules, "rushlight.nn" in sys.modules)
    """)
    kilobytes, numpy, nn = run("-c", program).stdout.split()
    assert int(kilobytes) < 50 * 1024
    assert (numpy, nn) == ("False", "False")


def test_runner(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent("""
        import sys
        import torch
        import torch.nn.functional as F
        from torch.autograd import Function
        import helper
        print(sys.argv[1:], F.relu(torch.tensor([-1.0, 2.0])).tolist(), torch.cuda.is_available(), __name__, helper.torch is torch)
    """))
    (tmp_path / "helper.py").write_text("import torch\n")
    result = run("-m", "rushlight", str(script), "--epochs", "3")
    assert result.stdout.split("\n")[0] == "['--epochs', '3'] [0.0, 2.0] False __main__ True", result.stderr
    result = run("-m", "rushlight", "--device", "cuda", "-c", "import torch; print(torch.cuda.is_available(), torch.ones(1).cuda().sum().item())")
    assert result.stdout.strip() == "True 1.0", result.stderr
    assert result.stderr.count("no accelerator here") == 1
    failing = tmp_path / "failing.py"
    failing.write_text("import torch\ntorch.ones(2) @ torch.ones(3)\n")
    result = run("-m", "rushlight", str(failing))
    assert result.returncode == 1 and "RuntimeError" in result.stderr and "failing.py" in result.stderr
    assert run("-m", "rushlight").returncode == 2
    assert run("-m", "rushlight", "--device", "abacus", "x.py").returncode == 2
    assert "usage" in run("-m", "rushlight", "--help").stdout


def test_started_programs_are_served(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent("""
        import multiprocessing, subprocess, sys
        import torch
        import torch.backends.cudnn as cudnn

        def work(n):
            return torch.arange(n).sum().item(), torch.__name__

        if __name__ == "__main__":
            cudnn.benchmark = True
            for method in ("spawn", "forkserver"):
                with multiprocessing.get_context(method).Pool(1) as pool:
                    print(pool.map(work, [4]))
            program = "import torch; print(torch.ones(2).sum().item(), torch.cuda.is_available())"
            print(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip())
    """))
    result = run("-m", "rushlight", "--device", "cuda", str(script))
    assert result.stdout.splitlines() == ["[(6, 'torch')]", "[(6, 'torch')]", "2.0 True"], result.stderr


def test_their_sitecustomize_still_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.customized = True\n")
    program = (
        "import os, rushlight, subprocess, sys; rushlight.install(); "
        f"os.environ['PYTHONPATH'] += os.pathsep + {str(tmp_path)!r}; "
        "subprocess.run([sys.executable, '-c', 'import torch; print(customized, torch.__name__)'])"
    )
    assert run("-c", program).stdout.strip() == "True torch"


def test_names_that_are_not_there(tmp_path):
    program = textwrap.dedent("""
        import rushlight
        rushlight.install()
        import torch
        for statement in ("import torch.distributed", "import torch.nope", "torch.relux", "torch.sparse_bsr_tensor()"):
            try:
                exec(statement)
                print("no error")
            except Exception as error:
                print(type(error).__name__, error)
    """)
    lines = run("-c", program).stdout.splitlines()
    assert lines[0] == "no error"
    assert lines[1].startswith("ModuleNotFoundError") and "torch.nope" in lines[1]
    assert lines[2].startswith("AttributeError") and "Did you mean: 'relu'" in lines[2]
    assert lines[3].startswith("NotImplementedError") and "sparse tensors of blocks" in lines[3]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_processes_compute():
    program = textwrap.dedent("""
        import os, rushlight as torch
        a = torch.randn(300, 300)
        (a @ a).sum()
        child = os.fork()
        if child == 0:
            total = (a @ a).exp().sum()
            os._exit(0 if total.numel() == 1 else 1)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status) if hasattr(os, "waitstatus_to_exitcode") else status)
    """)
    assert run("-c", program).stdout.strip() == "0"


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_interruption():
    program = textwrap.dedent("""
        import os, signal, threading, rushlight as torch
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
        a = torch.randn(400, 400)
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            while True:
                a @ a
        except KeyboardInterrupt:
            print("stopped")
    """)
    assert run("-c", program).stdout.strip() == "stopped"


def test_signatures_are_well_formed():
    """Every row's signature is read, by calling it with an argument nothing takes."""
    homes = [torch._C._torch, torch._C._nn, torch._C._linalg, torch._C._special]
    for home in homes:
        for name, function in vars(home).items():
            if name.startswith("__"):
                continue
            with pytest.raises(TypeError) as caught:
                function(nothing_takes_this=1)
            assert "malformed" not in str(caught.value), name
            assert function.__doc__ and name in function.__doc__


def test_shared_memory_reaches_spawned_processes(tmp_path):
    script = tmp_path / "shared.py"
    script.write_text(
        "import rushlight as torch\n"
        "import rushlight.multiprocessing as mp\n"
        "def add(model, extra):\n"
        "    with torch.no_grad():\n"
        "        model.weight.add_(1)\n"
        "        extra[1].mul_(3)\n"
        "if __name__ == '__main__':\n"
        "    model, extra = torch.nn.Linear(2, 2), torch.ones(2, 2).share_memory_()\n"
        "    model.share_memory()\n"
        "    assert model.weight.is_shared() and not torch.ones(2).is_shared()\n"
        "    before = model.weight.detach().clone()\n"
        "    process = mp.get_context('spawn').Process(target=add, args=(model, extra))\n"
        "    process.start(); process.join(60)\n"
        "    assert process.exitcode == 0\n"
        "    assert torch.equal(model.weight.detach(), before + 1) and extra.tolist() == [[1.0, 1.0], [3.0, 3.0]]\n"
    )
    done = run(str(script))
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(torch.cuda.device_count() > 0, reason="needs a machine without accelerators")
def test_the_number_of_an_accelerator_that_is_not_there():
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.zeros(2, device="cuda:7")
    for use in (torch.cuda.set_device, torch.xpu.set_device, lambda i: torch.cuda.device(i).__enter__()):
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            use(7)
        use(-1)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_saving_over_a_file_keeps_who_may_read_it(tmp_path):
    path = tmp_path / "weights.pt"
    path.touch(mode=0o600)
    torch.save({"w": torch.ones(2)}, path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert torch.load(path)["w"].tolist() == [1.0, 1.0]
    assert os.listdir(tmp_path) == ["weights.pt"]


def test_a_save_killed_while_it_pickles_leaves_nothing_behind(tmp_path):
    script = (
        "import os, rushlight as torch\n"
        "class Killer:\n"
        "    def __reduce__(self): os.kill(os.getpid(), 9)\n"
        "torch.save([torch.ones(1000), Killer()], 'w.pt')\n"
    )
    assert run("-c", script, cwd=tmp_path).returncode == -9
    assert os.listdir(tmp_path) == []


def test_cycles_through_attributes_are_collected():
    import gc
    import weakref

    class Mark:
        pass

    for make in (torch.ones, lambda size: torch.nn.Parameter(torch.ones(size))):
        made = make(2)
        made.mark, made.me = Mark(), made
        mark = weakref.ref(made.mark)
        del made
        gc.collect()
        assert mark() is None
