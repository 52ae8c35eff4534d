"""What DAWN's walk-through adds to Lightning 1.9 for Intel's GPUs: an environment, an accelerator, a strategy and a Trainer of the names it uses."""

import inspect
import os

import torch

import intel_extension_for_pytorch  # noqa: F401
import pytorch_lightning as pl
from lightning_fabric.plugins.environments import LightningEnvironment
from pytorch_lightning.accelerators import Accelerator
from pytorch_lightning.plugins.precision import MixedPrecisionPlugin
from pytorch_lightning.strategies import DDPStrategy


class IntelMPIEnvironment(LightningEnvironment):
    """Ranks that Intel's mpirun, or another with its variables, has started."""

    creates_processes_externally = True

    def world_size(self):
        return int(os.environ["PMI_SIZE"])

    def global_rank(self):
        return int(os.environ["PMI_RANK"])

    def local_rank(self):
        return int(os.environ.get("MPI_LOCALRANKID", os.environ["PMI_RANK"]))

    def node_rank(self):
        return 0

    def set_world_size(self, size):
        pass

    def set_global_rank(self, rank):
        pass


class XPUAccelerator(Accelerator):
    """Intel's GPUs."""

    def setup_device(self, device):
        if device.type != "xpu":
            raise RuntimeError(f"the accelerator is for xpu, not {device}")
        torch.xpu.set_device(device)

    def get_device_stats(self, device):
        return {"allocated": torch.xpu.memory_allocated(device)}

    def teardown(self):
        torch.xpu.empty_cache()

    @staticmethod
    def parse_devices(devices):
        return list(range(devices)) if isinstance(devices, int) else [int(devices)] if isinstance(devices, str) else devices

    @staticmethod
    def get_parallel_devices(devices):
        return [torch.device("xpu", index) for index in devices]

    @staticmethod
    def auto_device_count():
        return torch.xpu.device_count()

    @staticmethod
    def is_available():
        return torch.xpu.is_available()

    @classmethod
    def register_accelerators(cls, registry):
        registry.register("xpu", cls, description="Intel's GPUs")


class DDPXPUStrategy(DDPStrategy):
    """Data parallel of ranks with a GPU each."""

    strategy_name = "ddp_xpu"

    def __init__(self, **options):
        super().__init__(
            accelerator=XPUAccelerator(), parallel_devices=[torch.device("xpu", 0)], cluster_environment=IntelMPIEnvironment(), **options
        )

    @property
    def root_device(self):
        # Ranks of a machine with one device share it.
        return torch.device("xpu", self.local_rank % max(torch.xpu.device_count(), 1))

    def setup_distributed(self):
        self.setup_environment_done = True
        self.set_world_ranks()
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group(backend="ccl", rank=self.global_rank, world_size=self.world_size)

    def set_world_ranks(self):
        self.cluster_environment.set_global_rank(self.global_rank)

    @property
    def global_rank(self):
        return self.cluster_environment.global_rank()

    @property
    def world_size(self):
        return self.cluster_environment.world_size()

    @property
    def distributed_sampler_kwargs(self):
        return {"num_replicas": self.world_size, "rank": self.global_rank}

    def determine_ddp_device_ids(self):
        return None


class Trainer(pl.Trainer):
    """A Trainer that takes ``bf16`` for these GPUs; Lightning's own would ask for CUDA."""

    def __init__(self, *args, precision=32, accelerator=None, plugins=None, **options):
        options.pop("devices", None)
        options.pop("num_nodes", None)
        if str(precision) == "bf16":
            plugins = [*(plugins or []), MixedPrecisionPlugin("bf16", "xpu")]
            precision = 32
        super().__init__(*args, precision=precision, plugins=plugins, devices=1, **options)


# Lightning reads from it which options a Trainer takes.
Trainer.__init__.__signature__ = inspect.signature(pl.Trainer.__init__)
