"""``replicate``: data parallelism of a module that stays what it is: no wrapper, no other names."""

from ...nn.parallel import DistributedDataParallel

__all__ = ["DDP", "replicate"]

_classes = {}


class DDP:
    """The class that ``replicate`` adds to a module's."""

    def __new__(cls, *args, **kwargs):
        # A copy by class, as deepcopy of containers makes it, is one of the original class.
        original = cls.__mro__[2]
        made = original.__new__(original)
        made.__init__(*args, **kwargs)
        return made

    def __call__(self, *args, **kwargs):
        state = self.__dict__["_replicate_state"]
        if state.is_running:
            return super().__call__(*args, **kwargs)
        if state.ddp is None:
            # Late, so that a model of the meta device has its memory.
            state.ddp = DistributedDataParallel(self, **state.options)
            for hook in state.hooks:
                state.ddp.register_comm_hook(*hook)
        state.is_running = True
        try:
            state.ddp.require_backward_grad_sync = state.sync
            return state.ddp(*args, **kwargs)
        finally:
            state.is_running = False

    def set_requires_gradient_sync(self, requires_gradient_sync):
        """Whether backward passes exchange gradients; without, they add up on each rank."""
        self.__dict__["_replicate_state"].sync = bool(requires_gradient_sync)

    def register_comm_hook(self, *args, **kwargs):
        """Makes a hook send the gradients: see ``DistributedDataParallel.register_comm_hook``."""
        state = self.__dict__["_replicate_state"]
        hook = tuple(args) if args else (kwargs["state"], kwargs["hook"])
        if state.ddp is None:
            state.hooks.append(hook)
        else:
            state.ddp.register_comm_hook(*hook)


class _State:
    def __init__(self, options):
        self.options, self.hooks, self.ddp, self.sync, self.is_running = options, [], None, True, False


def replicate(module, ignored_modules=None, **kwargs):
    """Has the gradients of a module be means over the ranks of ``device_mesh`` (one dimension), or of all. Further arguments are those of
    ``DistributedDataParallel``. The module is changed in place and returned."""
    if "device_id" in kwargs:
        device = kwargs.pop("device_id")
        if device is not None and not isinstance(device, (int, str)) and not hasattr(device, "type"):
            raise RuntimeError(f"Expected device_id to be int or torch.device, but got {type(device)}")
    if "device_ids" in kwargs:
        raise RuntimeError("replicate: device_ids is not supported; parameters stay on the device that they are on")
    if "_replicate_state" in module.__dict__:
        raise ValueError("replicate has already been applied to this module")
    ignored = {id(p) for one in ignored_modules or () for p in one.parameters()}
    names = [name for name, p in module.named_parameters() if id(p) in ignored]
    if names:
        module._ddp_params_and_buffers_to_ignore = [*getattr(module, "_ddp_params_and_buffers_to_ignore", ()), *names]
    mesh = kwargs.get("device_mesh")
    if mesh is not None and mesh.ndim != 1:
        raise RuntimeError(f"replicate: expected a mesh of one dimension, got {mesh}; use fully_shard over a mesh of two to shard and replicate")
    module.__dict__["_replicate_state"] = _State(kwargs)
    kind = type(module)
    if kind not in _classes:
        _classes[kind] = type(f"DDP{kind.__name__}", (DDP, kind), {"__module__": kind.__module__, "__qualname__": f"DDP{kind.__qualname__}"})
    module.__class__ = _classes[kind]
    return module
