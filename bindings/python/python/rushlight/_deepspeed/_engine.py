"""The engine: a model, its optimizer split among ranks, loss scaling, accumulation and checkpoints."""

from __future__ import annotations

import os

import rushlight as torch

from .. import distributed as dist
from .. import nn
from ..distributed import checkpoint as dcp
from . import _files
from ._schedules import SCHEDULES


class _Scaler:
    """The factor of an fp16 loss: halved after gradients that overflow, doubled after many that do not."""

    def __init__(self, options):
        fixed = options.get("loss_scale", 0)
        self.dynamic = not fixed
        self.scale = float(fixed) if fixed else 2.0 ** options.get("initial_scale_power", 16)
        self.window, self.minimum = options.get("loss_scale_window", 1000), options.get("min_loss_scale", 1)
        self.patience = self.hysteresis = options.get("hysteresis", 2)
        self.good = 0

    def update(self, overflow):
        if not self.dynamic:
            return
        if overflow:
            self.good = 0
            if self.patience > 1:
                self.patience -= 1
            else:
                self.scale = max(self.scale / 2.0, self.minimum)
        else:
            self.good += 1
            if self.good % self.window == 0:
                self.patience, self.scale = self.hysteresis, self.scale * 2.0


def _owners(parameters, size):
    """The rank of each parameter: the largest first, to the rank with the least."""
    load, owner = [0] * size, {}
    for i in sorted(range(len(parameters)), key=lambda i: (-parameters[i].numel(), i)):
        owner[i] = min(range(size), key=lambda r: (load[r], r))
        load[owner[i]] += parameters[i].numel()
    return owner


class DeepSpeedEngine(nn.Module):
    """A model to train: ``engine(x)``, ``engine.backward(loss)``, ``engine.step()``."""

    def __init__(self, model, config, optimizer=None, model_parameters=None, lr_scheduler=None):
        super().__init__()
        self._config, self.module = config, model
        self.world_size, self.global_rank = dist.get_world_size(), dist.get_rank()
        self.local_rank = int(os.environ.get("LOCAL_RANK", 0))
        self.global_steps = self.micro_steps = self.skipped_steps = 0
        self._norm, self._boundary = None, None
        self._state_files, self._param_files = (_files.Files(folder) if folder else None for folder in (config.optimizer_files, config.param_files))
        self._moved = False
        self.scaler = _Scaler(config.fp16) if config.use_fp16 else None
        dtype = torch.float16 if config.use_fp16 else torch.bfloat16 if config.use_bf16 else None
        is_split = any(hasattr(p, "placements") for p in model.parameters())
        if is_split and config.stage != 3:
            raise ValueError(f"deepspeed.initialize: zero.Init has sharded the model, which needs 'zero_optimization.stage' 3, not {config.stage}")
        if dtype is not None and config.stage != 3:
            model.to(dtype)
        with torch.no_grad():
            for tensor in (*model.parameters(), *model.buffers()):
                # Parameters without memory get their values after sharding.
                if tensor.device.type != "meta" and not hasattr(tensor, "placements"):
                    dist.broadcast(tensor, 0)
        if config.stage == 3:
            names = {id(p): name for name, p in model.named_parameters()}
            self._shard(dtype)
            # Optimizers and lists that were made before hold the whole parameters.
            shards = dict(model.named_parameters())
            new = lambda p: shards.get(names.get(id(p)), p)
            if isinstance(optimizer, torch.optim.Optimizer):
                for group in optimizer.param_groups:
                    group["params"] = [new(p) for p in group["params"]]
            if model_parameters is not None:
                model_parameters = [{**p, "params": [new(q) for q in p["params"]]} if isinstance(p, dict) else new(p) for p in model_parameters]
        self.device = next(model.parameters()).device
        self._move_parameters()
        self._make_optimizer(optimizer, model_parameters)
        self._make_scheduler(lr_scheduler)

    # Setting up.

    def _shard(self, dtype):
        """ZeRO-3: every child that repeats, then the model."""
        from ..distributed import fsdp

        options = {}
        if dtype is not None:
            options["mp_policy"] = fsdp.MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
        if self._config.offload_param or self._config.offload_optimizer:
            options["offload_policy"] = fsdp.CPUOffloadPolicy()
        for child in self.module.modules():
            if isinstance(child, nn.ModuleList):
                for block in child:
                    fsdp.fully_shard(block, **options)
        fsdp.fully_shard(self.module, **options)

    def _make_optimizer(self, given, model_parameters):
        config = self._config
        names = {id(p): name for name, p in self.module.named_parameters()}
        if given is not None and not callable(given):
            groups = [dict(group) for group in given.param_groups]
        else:
            chosen = list(model_parameters) if model_parameters is not None else list(self.module.parameters())
            groups = chosen if chosen and isinstance(chosen[0], dict) else [{"params": chosen}]
            groups = [{**group, "params": list(group["params"])} for group in groups]
        for group in groups:
            group["params"] = [p for p in group["params"] if p.requires_grad]
        self._parameters_in_use = [p for group in groups for p in group["params"]]
        self._names = [names.get(id(p), str(i)) for i, p in enumerate(self._parameters_in_use)]
        split = config.stage in (1, 2)
        self._owner = _owners(self._parameters_in_use, self.world_size) if split else {}
        number = {id(p): i for i, p in enumerate(self._parameters_in_use)}
        # Master copies in f32 of this rank's parameters; f32 parameters are their own.
        self._master = {}
        for p in self._parameters_in_use:
            i = number[id(p)]
            if split and self._owner[i] != self.global_rank:
                continue
            place = torch.device("cpu") if config.offload_optimizer and config.stage != 3 else p.device
            same = config.stage == 3 or (p.dtype == torch.float32 and p.device == place)
            self._master[i] = p if same else nn.Parameter(self._in_files(p.detach().to(place, torch.float32, copy=True)))
        own = [{**group, "params": [self._master[number[id(p)]] for p in group["params"] if number[id(p)] in self._master]} for group in groups]
        # A rank without parameters of a group still has the group, whose settings schedules change.
        if given is not None and not callable(given):
            if given.state:
                raise ValueError("deepspeed.initialize: the optimizer has taken steps; pass a new one")
            self.optimizer = given
            given.param_groups[:] = own
        elif callable(given):
            self.optimizer = given(own)
        elif config.optimizer is not None:
            self.optimizer = _by_name(config.optimizer, own)
        else:
            self.optimizer = None

    def _make_scheduler(self, given):
        section = self._config.scheduler
        if given is not None:
            self.lr_scheduler = given(self.optimizer) if callable(given) and not hasattr(given, "step") else given
        elif section is not None:
            name = section.get("type")
            if name not in SCHEDULES:
                raise ValueError(f"DeepSpeed configuration: 'scheduler.type' {name!r} is not supported; use one of {sorted(SCHEDULES)}")
            self.lr_scheduler = SCHEDULES[name](self.optimizer, **section.get("params", {}))
        else:
            self.lr_scheduler = None

    # A step.

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def backward(self, loss, retain_graph=False, scale_wrt_gas=True):
        """The backward pass of a microbatch. Gradients accumulate without communication until the last one."""
        scaled = loss / self._config.accumulation if scale_wrt_gas else loss
        if self.scaler is not None:
            scaled = scaled.float() * self.scaler.scale
        if self._config.stage == 3:
            self.module.set_requires_gradient_sync(self.is_gradient_accumulation_boundary())
        scaled.backward(retain_graph=retain_graph)
        return loss

    def is_gradient_accumulation_boundary(self):
        """Whether the microbatch under way is the last of its step."""
        if self._boundary is not None:
            return self._boundary
        return (self.micro_steps + 1) % self._config.accumulation == 0

    def set_gradient_accumulation_boundary(self, is_boundary):
        """Overrides the count of microbatches."""
        self._boundary = is_boundary

    def step(self, lr_kwargs=None):
        """Updates the parameters, if the microbatch was the last of its step."""
        boundary = self.is_gradient_accumulation_boundary()
        self.micro_steps += 1
        if not boundary:
            return
        if self.optimizer is None:
            raise RuntimeError("DeepSpeed engine: there is no optimizer; pass one or configure it")
        with torch.no_grad():
            overflow = self._update()
        if self.scaler is not None:
            self.scaler.update(overflow)
        if overflow:
            self.skipped_steps += 1
        elif self.lr_scheduler is not None:
            self.lr_scheduler.step(**(lr_kwargs or {}))
        self.global_steps += 1
        self.zero_grad()
        every = self._config.steps_per_print
        if every and self.global_rank == 0 and self.global_steps % every == 0:
            print(f"step={self.global_steps}, skipped={self.skipped_steps}, lr={self.get_lr()}", flush=True)

    def _reduce(self):
        """Averages the gradients over the ranks: on every rank, or in stage 2 on the owner only, where others drop theirs."""
        if self.world_size == 1 or self._config.stage == 3:
            return
        for i, p in enumerate(self._parameters_in_use):
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            if self._config.stage == 2:
                dist.reduce(p.grad, self._owner[i])
                if self._owner[i] == self.global_rank:
                    p.grad.div_(self.world_size)
                else:
                    p.grad = None
            else:
                dist.all_reduce(p.grad)
                p.grad.div_(self.world_size)

    def _update(self):
        self._reduce()
        factor = 1.0 / self.scaler.scale if self.scaler is not None else 1.0
        square, finite = torch.zeros(1), True
        for i, master in self._master.items():
            p = self._parameters_in_use[i]
            if p.grad is None:
                continue
            if master is not p:
                master.grad = p.grad.to(master.device, torch.float32)
                p.grad = None
            if factor != 1.0:
                master.grad.mul_(factor)
            local = master.grad.to_local() if hasattr(master.grad, "to_local") else master.grad
            square += local.float().pow(2).sum().cpu()
        if self.world_size > 1 and self._config.stage > 0:
            dist.all_reduce(square)
        finite = bool(torch.isfinite(square).all())
        self._norm = square.sqrt().item()
        if self.scaler is not None and not finite:
            return True
        if self._config.clipping > 0:
            clip = min(1.0, self._config.clipping / (self._norm + 1e-6))
            if clip < 1.0:
                for master in self._master.values():
                    if master.grad is not None:
                        master.grad.mul_(clip)
        if self._state_files is None:
            self.optimizer.step()
        else:
            _files.step(self.optimizer, self._state_files)
        self._move_parameters()
        self._spread()
        return False

    # Files.

    def _in_files(self, tensor):
        return tensor if self._state_files is None else self._state_files.hold(tensor)

    def _move_parameters(self):
        """Puts this rank's shards in files, if the configuration says so. Those of the meta device follow after their first step."""
        if self._param_files is not None and not self._moved:
            parameters = list(self.module.parameters())
            for p in parameters:
                local = p.to_local().detach()
                if local.device.type != "meta" and not self._param_files.holds(local):
                    p.data = p._like(self._param_files.hold(local))
            self._moved = all(p.device.type != "meta" for p in parameters)

    def _spread(self):
        """Copies master copies to the parameters, and these to the other ranks."""
        for i, p in enumerate(self._parameters_in_use):
            master = self._master.get(i)
            if master is not None and master is not p:
                p.copy_(master)
                master.grad = None
            if self._owner and self.world_size > 1:
                dist.broadcast(p, self._owner[i])

    def zero_grad(self, set_to_none=True):
        """Drops the gradients."""
        for p in self.module.parameters():
            p.grad = None

    # What programs ask.

    def train_batch_size(self):
        """Samples of a step, of all ranks."""
        return self._config.batch

    def train_micro_batch_size_per_gpu(self):
        """Samples of a microbatch of a rank."""
        return self._config.micro_batch

    def gradient_accumulation_steps(self):
        """Microbatches of a step."""
        return self._config.accumulation

    def zero_optimization_stage(self):
        """ZeRO's stage."""
        return self._config.stage

    def gradient_clipping(self):
        """The norm that gradients are clipped to; 0 for none."""
        return self._config.clipping

    def get_global_grad_norm(self):
        """The norm of the last step's gradients, before clipping."""
        return self._norm

    def get_lr(self):
        """The learning rates."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def zero_gather_16bit_weights_on_model_save(self):
        """Whether the configuration asks for whole weights where a model is saved in stage 3."""
        return self._config.gathers_weights

    def destroy(self):
        """Frees the parameters that are gathered and the gradients. The engine holds nothing else that outlives it."""
        if self._config.stage == 3:
            for unit in self.module._units(True):
                unit.reshard()
        self.zero_grad()

    @property
    def cur_scale(self):
        """The factor of the loss."""
        return self.scaler.scale if self.scaler is not None else 1.0

    # Checkpoints.

    def _zero3_consolidated_16bit_state_dict(self, exclude_frozen_parameters=False):
        """The whole weights of stage 3 on rank 0, in the dtype that the model computes in; None on other ranks."""
        if self._config.stage != 3:
            raise ValueError("this function requires ZeRO-3 mode")
        frozen = {name for name, p in self.module.named_parameters() if not p.requires_grad} if exclude_frozen_parameters else set()
        dtype = torch.float16 if self._config.use_fp16 else torch.bfloat16 if self._config.use_bf16 else None
        found = {}
        for name, value in self.module.state_dict().items():
            if name in frozen:
                continue
            sharded = hasattr(value, "full_tensor")
            value = value.full_tensor().detach() if sharded else value
            if self.global_rank == 0:
                found[name] = (value.to(dtype) if sharded and dtype is not None else value).cpu()
        return found if self.global_rank == 0 else None

    def save_16bit_model(self, save_dir, save_filename="pytorch_model.bin", exclude_frozen_parameters=False):
        """Writes the whole weights, by rank 0. Returns False in stage 3 if the configuration does not ask for gathering."""
        if self._config.stage == 3:
            if not self._config.gathers_weights:
                return False
            weights = self._zero3_consolidated_16bit_state_dict(exclude_frozen_parameters)
        else:
            names = {name for name, p in self.module.named_parameters() if not p.requires_grad} if exclude_frozen_parameters else set()
            weights = {name: value for name, value in self.module.state_dict().items() if name not in names}
        if self.global_rank == 0:
            os.makedirs(save_dir, exist_ok=True)
            torch.save(weights, os.path.join(save_dir, save_filename))
        if self.world_size > 1:
            dist.barrier()
        return True

    def _state(self):
        """This rank's optimizer state and master copies, by parameters' names."""
        order = [p for group in self.optimizer.param_groups for p in group["params"]]
        names = {id(master): self._names[i] for i, master in self._master.items()}
        numbered = self.optimizer.state_dict()["state"]
        state = {names[id(p)]: dict(numbered.get(i, {})) for i, p in enumerate(order)}
        masters = {self._names[i]: m for i, m in self._master.items() if m is not self._parameters_in_use[i]}
        return state, masters

    def save_checkpoint(self, save_dir, tag=None, client_state=None, save_latest=True, exclude_frozen_parameters=False):
        """Writes ``save_dir/tag``, a distributed checkpoint that any number of ranks loads, then the file ``latest``."""
        if exclude_frozen_parameters:
            raise NotImplementedError("save_checkpoint: exclude_frozen_parameters is not supported")
        tag = f"global_step{self.global_steps}" if tag is None else str(tag)
        content = {"module": dict(self.module.state_dict()), "engine": self._counts(), "client_state": dict(client_state or {})}
        if self.optimizer is not None:
            state, masters = self._state()
            content |= {"optimizer": state, "master": masters}
            content["groups"] = {str(i): {k: v for k, v in g.items() if k != "params"} for i, g in enumerate(self.optimizer.param_groups)}
        if self.lr_scheduler is not None:
            content["lr_scheduler"] = self.lr_scheduler.state_dict()
        dcp.save({key: value for key, value in content.items() if value}, checkpoint_id=os.path.join(save_dir, tag))
        if save_latest and self.global_rank == 0:
            path = os.path.join(save_dir, "latest")
            with open(f"{path}.new", "w", encoding="utf-8") as file:
                file.write(tag)
            os.replace(f"{path}.new", path)
        if self.world_size > 1:
            dist.barrier()
        return True

    def _counts(self):
        counts = {"global_steps": self.global_steps, "micro_steps": self.micro_steps, "skipped_steps": self.skipped_steps}
        if self.scaler is not None:
            counts |= {"scale": self.scaler.scale, "good": self.scaler.good, "patience": self.scaler.patience}
        return counts

    def load_checkpoint(
        self, load_dir, tag=None, load_module_strict=True, load_optimizer_states=True, load_lr_scheduler_states=True, load_module_only=False,
        custom_load_fn=None,
    ):
        """Loads what ``save_checkpoint`` wrote, by any number of ranks. Returns its path and the client's state; None and an empty dictionary if there is none."""
        if custom_load_fn is not None:
            raise NotImplementedError("load_checkpoint: custom_load_fn is not supported")
        if tag is None:
            latest = os.path.join(load_dir, "latest")
            if not os.path.exists(latest):
                return None, {}
            with open(latest, encoding="utf-8") as file:
                tag = file.read().strip()
        path = os.path.join(load_dir, str(tag))
        entries = dcp.FileSystemReader(path).read_metadata().planner_data
        planner = dcp.DefaultLoadPlanner(allow_partial_load=not load_module_strict)
        wanted = {"module": dict(self.module.state_dict())}
        dcp.load(wanted, checkpoint_id=path, planner=planner)
        # Tensors are loaded in place; what a module keeps besides tensors is set here.
        others = {name: value for name, value in wanted["module"].items() if not isinstance(value, torch.Tensor) and not hasattr(value, "to_local")}
        if others:
            self.module.load_state_dict(others, strict=False)
        client = _branch(entries, "client_state")
        counts = self._counts()
        rest = {"engine": counts}
        if client:
            rest["client_state"] = client
        with_optimizer = load_optimizer_states and not load_module_only and self.optimizer is not None
        if with_optimizer:
            state, masters = self._state()
            rest["groups"] = {str(i): {k: v for k, v in g.items() if k != "params"} for i, g in enumerate(self.optimizer.param_groups)}
            rest |= {"master": masters} if masters else {}
            saved = {}
            for name in state:
                saved[name] = {k: self._empty(path, f"optimizer.{name}.{k}") for k in _branch(entries, "optimizer", name)}
            rest["optimizer"] = {name: values for name, values in saved.items() if values}
            if not rest["optimizer"]:
                del rest["optimizer"]
        with_schedule = load_lr_scheduler_states and not load_module_only and self.lr_scheduler is not None
        if with_schedule:
            rest["lr_scheduler"] = self.lr_scheduler.state_dict()
        dcp.load(rest, checkpoint_id=path)
        if with_optimizer:
            by_name = {self._names[i]: master for i, master in self._master.items()}
            for name, values in rest.get("optimizer", {}).items():
                state = {k: v.to_local() if isinstance(v, _Part) else v for k, v in values.items()}
                self.optimizer.state[by_name[name]] = {k: self._in_files(v) if isinstance(v, torch.Tensor) else v for k, v in state.items()}
            for i, group in enumerate(self.optimizer.param_groups):
                group.update(rest["groups"][str(i)])
            if not rest.get("master"):
                self._from_parameters()
        else:
            self._from_parameters()
        if with_schedule:
            self.lr_scheduler.load_state_dict(rest["lr_scheduler"])
        if not load_module_only:
            self.global_steps, self.micro_steps, self.skipped_steps = (counts[k] for k in ("global_steps", "micro_steps", "skipped_steps"))
            if self.scaler is not None:
                self.scaler.scale, self.scaler.good, self.scaler.patience = counts["scale"], counts["good"], counts["patience"]
        return path, rest.get("client_state", {})

    def _from_parameters(self):
        with torch.no_grad():
            for i, master in self._master.items():
                if master is not self._parameters_in_use[i]:
                    master.copy_(self._parameters_in_use[i])

    def _empty(self, path, name):
        """A tensor to load an entry into; any value for one that is no tensor. A state like its parameter is sharded like it."""
        if getattr(self, "_reading", (None, None))[0] != path:
            self._reading = (path, dcp.FileSystemReader(path).read_metadata().state_dict_metadata)
        entry = self._reading[1][name]
        if not hasattr(entry, "size"):
            return 0
        by_name = {self._names[i]: master for i, master in self._master.items()}
        like = by_name.get(name.removeprefix("optimizer.").rpartition(".")[0])
        if hasattr(like, "to_local") and tuple(like.shape) == tuple(entry.size):
            local, dtype = like.to_local().detach(), entry.properties.dtype
            return _Part(like, torch.zeros_like(local, dtype=dtype) if self._state_files is None else self._state_files.zeros(local.shape, dtype))
        return torch.empty(entry.size, dtype=entry.properties.dtype)


class _Part:
    """This rank's part of a state that is sharded like its parameter."""

    def __init__(self, like, local):
        self.placements, self.device_mesh, self.shape, self._local = like.placements, like.device_mesh, like.shape, local

    def to_local(self):
        return self._local

    def numel(self):
        count = 1
        for size in self.shape:
            count *= size
        return count


def _branch(paths, *start):
    """Keys under a place of a nested state, with placeholders as values."""
    found = {}
    for path in paths.values():
        if tuple(path[: len(start)]) == start and len(path) > len(start):
            place = found
            for step in path[len(start):-1]:
                place = place.setdefault(step, {})
            place[path[-1]] = 0
    return found


def _by_name(section, groups):
    """The optimizer of a configuration. ``Adam`` is AdamW unless ``adam_w_mode`` is false, as in DeepSpeed."""
    from .. import optim

    name, params = section.get("type"), dict(section.get("params", {}))
    plain = str(name).lower()
    decoupled = params.pop("adam_w_mode", True)
    # PyTorch's or DeepSpeed's kernel: the same formula.
    params.pop("torch_adam", None)
    if params.pop("bias_correction", True) is not True:
        raise ValueError("DeepSpeed configuration: 'optimizer.params.bias_correction' false is not supported")
    if plain in ("adam", "cpuadam", "fusedadam"):
        kind = optim.AdamW if decoupled else optim.Adam
        params.setdefault("weight_decay", 0.0)
    else:
        kind = next((getattr(optim, one) for one in dir(optim) if one.lower() == plain and isinstance(getattr(optim, one), type)), None)
    if kind is None:
        raise ValueError(f"DeepSpeed configuration: 'optimizer.type' {name!r} is not supported")
    return kind(groups, **params)
