"""``deepspeed``: its front as programs use it, ``initialize`` and the engine, over ``torch.distributed``.

ZeRO's stages 0 to 2 are here: each rank owns some parameters, keeps their optimizer state and master copies, and sends updated values to the others.
Stage 3 shards the parameters by ``torch.distributed.fsdp.fully_shard``. Keys of the configuration that have no effect here are refused by name.
"""

import json
import os

from . import accelerator, checkpoint, checkpointing, comm, ops, runtime, utils, zero  # noqa: F401
from ._config import Config
from ._engine import DeepSpeedEngine
from ._schedules import WarmupCosineLR, WarmupDecayLR, WarmupLR
from .comm import init_distributed

__all__ = ["DeepSpeedEngine", "WarmupCosineLR", "WarmupDecayLR", "WarmupLR", "add_config_arguments", "init_distributed", "initialize", "zero"]

__version__ = "0.17.0"


def add_config_arguments(parser):
    """Adds ``--deepspeed`` and ``--deepspeed_config``."""
    group = parser.add_argument_group("DeepSpeed", "DeepSpeed configurations")
    group.add_argument("--deepspeed", default=False, action="store_true", help="Enable DeepSpeed")
    group.add_argument("--deepspeed_config", default=None, type=str, help="DeepSpeed json configuration file.")
    return parser


def initialize(
    args=None, model=None, optimizer=None, model_parameters=None, training_data=None, lr_scheduler=None, distributed_port=29500, mpu=None,
    dist_init_required=None, collate_fn=None, config=None, mesh_param=None, config_params=None,
):
    """Wraps a model. Returns the engine, its optimizer, a loader of ``training_data`` and the schedule of learning rates."""
    if model is None:
        raise AssertionError("deepspeed.initialize requires a model")
    for name, value in (("mpu", mpu), ("mesh_param", mesh_param)):
        if value is not None:
            raise NotImplementedError(f"deepspeed.initialize: {name} is not supported; use torch.distributed's process groups")
    config = config if config is not None else config_params
    if config is None:
        config = getattr(args, "deepspeed_config", None)
    if config is None:
        # The file of `rushlight run --plan`.
        config = os.environ.get("RUSHLIGHT_PLAN") or None
    if config is None:
        raise ValueError("DeepSpeed requires --deepspeed_config to specify configuration file, or rushlight run --plan")
    if isinstance(config, (str, os.PathLike)):
        with open(config, encoding="utf-8") as file:
            config = json.load(file)
    init_distributed(dist_init_required=dist_init_required)
    engine = DeepSpeedEngine(model, Config(config, comm.get_world_size()), optimizer, model_parameters, lr_scheduler)
    loader = None
    if training_data is not None:
        from ..utils.data import DataLoader, DistributedSampler

        sampler = DistributedSampler(training_data) if comm.get_world_size() > 1 else None
        loader = DataLoader(training_data, batch_size=engine.train_micro_batch_size_per_gpu(), sampler=sampler, shuffle=sampler is None, collate_fn=collate_fn)
    return engine, engine.optimizer, loader, engine.lr_scheduler
