"""``replicate``: a module on several devices."""

__all__ = ["replicate"]


def replicate(network, devices, detach=False):
    """A copy of the module for each device. Gradients of the copies' parameters flow back to the module's own."""
    return [_replica(network, device, detach, {}) for device in devices]


def _replica(module, device, detach, seen):
    if id(module) in seen:
        return seen[id(module)]
    seen[id(module)] = made = _shallow(module)
    own = made.__dict__
    own["_parameters"] = {name: p if p is None else (p.detach() if detach else p).to(device) for name, p in module._parameters.items()}
    own["_buffers"] = {name: b if b is None else b.to(device) for name, b in module._buffers.items()}
    own["_modules"] = {name: m if m is None else _replica(m, device, detach, seen) for name, m in module._modules.items()}
    return made


def _shallow(module):
    made = module.__new__(type(module))
    made.__dict__ = dict(module.__dict__)
    return made
