"""Behaviour that PyTorch's and Horovod's own tests of distributed training ask for (``scripts/peers`` runs those tests)."""

import pathlib
import socket
from datetime import timedelta

import pytest
import rushlight as torch
from rushlight import distributed as dist
from test_distributed import launch

RANKS = pathlib.Path(__file__).with_name("peers_ranks.py")


@pytest.mark.parametrize("what, size", [("profiled", 2), ("complex_numbers", 2), ("monitored", 3), ("sparse_sums", 3), ("horovod", 2), ("any_source", 3), ("methods_of_groups", 2), ("private_names_of_data_parallelism", 2)])
def test_ranks(what, size):
    launch(size, RANKS, what)


def test_optimizers_made_before_sharding(tmp_path):
    launch(2, RANKS, "optimizers_made_before", tmp_path)


class Basic(dist.Store):
    """A store with the basic methods only."""

    def __init__(self):
        super().__init__()
        self.values = {}

    def set(self, key, value):
        self.values[key] = value

    def get(self, key):
        return self.values.get(key, b"")

    def compare_set(self, key, expected, desired):
        if self.values.get(key, expected) == expected or key not in self.values:
            self.values[key] = desired
        return self.values[key]


def test_basic_stores_have_the_extended_methods_too():
    store = dist.PrefixStore("p", Basic())
    assert not store.has_extended_api()
    store.append("foo", "po")
    store.append("foo", "tato")
    store.multi_set(["a", "b"], ["c", b"d"])
    assert store.multi_get(["foo", "a", "b"]) == [b"potato", b"c", b"d"]


def test_prefixes_of_stores():
    inner = dist.HashStore()
    store = dist.PrefixStore("a", dist.PrefixStore("b", inner))
    assert store._underlying_non_prefix_store is inner
    with pytest.raises(ValueError, match="PrefixStore"):
        dist.PrefixStore("a", None)


def test_a_file_store_goes_with_its_last_user(tmp_path):
    path = tmp_path / "store"
    first, second = dist.FileStore(path, 1), dist.FileStore(path, 1)
    first.set("key", "1")
    # As in PyTorch, the count of users is one of the keys.
    assert second.num_keys() == 2 and second.list_keys() == ["key"]
    del first
    assert path.exists()
    del second
    assert not path.exists()


def test_a_store_takes_over_a_socket():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    store = dist.TCPStore("127.0.0.1", port, 1, True, master_listen_fd=listener.detach())
    assert store.port == port
    dist.TCPStore("127.0.0.1", port, is_master=False).set("key", "value")
    assert store.get("key") == b"value"
    with open(pathlib.Path(__file__), "rb") as file, pytest.raises(ValueError, match="not a bound stream socket"):
        dist.TCPStore("127.0.0.1", port, 1, True, master_listen_fd=file.fileno())


def test_errors_of_stores_have_pytorchs_words():
    store = dist.TCPStore("127.0.0.1", 0, 1, True)
    with pytest.raises(dist.DistStoreError, match="wait timeout after 100ms, keys: /missing"):
        store.wait(["missing"], timedelta(seconds=0.1))
    with pytest.raises(dist.DistStoreError, match="barrier timeout"):
        store.barrier("few", 2, timedelta(seconds=0.1))
    with pytest.raises(dist.DistStoreError, match=r"Timed out after 1 seconds waiting for clients. 1/2 clients joined."):
        dist.TCPStore("127.0.0.1", 0, 2, True, timeout=timedelta(seconds=1))
    with pytest.raises(ValueError, match="world size cannot be 0"):
        dist.TCPStore("127.0.0.1", 0, 0, True)
    with pytest.raises(dist.DistNetworkError, match=f"failed to listen on any local network address.*{store.port}"):
        dist.TCPStore("127.0.0.1", store.port, 1, True)


def test_a_launchers_store_is_not_made_again(monkeypatch):
    store = dist.TCPStore("127.0.0.1", 0, 1, True)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "1")
    monkeypatch.setenv("MASTER_PORT", str(store.port))
    second = dist.TCPStore("127.0.0.1", store.port, 1, True)
    store.set("key", "1")
    assert second.get("key") == b"1" and not second.is_master


def test_plugins_of_backends_can_be_registered_but_not_chosen():
    dist.Backend.register_backend("dummy_plugin", lambda *args: None)
    assert dist.Backend.DUMMY_PLUGIN == "dummy_plugin" and "dummy_plugin" in dist.Backend.backend_list
    with pytest.raises(RuntimeError, match="already"):
        dist.Backend.register_backend("gloo", None)
    with pytest.raises(NotImplementedError, match="dummy_plugin"):
        dist.init_process_group("dummy_plugin", rank=0, world_size=1, store=dist.HashStore())


def test_torchruns_main_raises(tmp_path, monkeypatch):
    from rushlight.distributed import run
    from rushlight.distributed.elastic.multiprocessing.errors import ChildFailedError

    with pytest.raises(ValueError, match="--module"):
        run.main(["--no-python", "--module", "true"])
    with pytest.raises(ValueError, match="unknown"):
        run.main(["--nproc-per-node=unknown", "x.py"])
    with pytest.raises(ValueError, match="logs_specs"):
        run.main(["--logs_specs=missing", "x.py"])
    with pytest.raises(ChildFailedError):
        run.main(["--standalone", "--no-python", "false"])
    monkeypatch.setenv("PET_NPROC_PER_NODE", "2")
    monkeypatch.setenv("PET_NO_PYTHON", "1")
    # Words may be shortened, and quotes of a shell be left in them.
    run.main(["--standalone", "--rdzv-conf='join_timeout=5'", "--redirect=0", "sh", "-c", f"touch {tmp_path}/$RANK"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]


def test_free_ports():
    from rushlight.distributed.elastic.utils import distributed, get_socket_with_port

    with get_socket_with_port() as held:
        assert held.getsockname()[1] > 0
    assert 0 < distributed.get_free_port() < 65536


def test_names_of_a_group():
    dist.init_process_group(rank=0, world_size=1, store=dist.HashStore())
    try:
        config = dist.distributed_c10d._get_pg_config()
        assert config["ranks"] == [0] and config["pg_size"] == 1
        dist.distributed_c10d._get_process_group_store(dist.group.WORLD).set("key", "1")
        assert not dist._rank_not_in_group(group=dist.group.WORLD)
    finally:
        dist.destroy_process_group()


def test_variables_of_data_parallelism_are_printed(capsys, monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "somewhere")
    monkeypatch.delenv("NCCL_DEBUG", raising=False)
    torch.nn.parallel.distributed._dump_DDP_relevant_env_vars()
    lines = capsys.readouterr().out.splitlines()
    assert "env:MASTER_ADDR=somewhere" in lines and "env:NCCL_DEBUG=N/A" in lines


def test_modes_see_initial_values():
    """Lightning makes empty models by a mode that leaves ``torch.nn.init`` out."""
    seen = []

    class Empty(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if getattr(func, "__module__", "").endswith("nn.init"):
                seen.append(func.__name__)
                return args[0] if args else kwargs["tensor"]
            return func(*args, **(kwargs or {}))

    with Empty():
        layer = torch.nn.Linear(2, 2)
        torch.nn.init.ones_(layer.weight)
    # PyTorch's answer.
    assert seen == ["kaiming_uniform_", "uniform_"] and layer.weight.tolist() == [[1.0, 1.0], [1.0, 1.0]]
