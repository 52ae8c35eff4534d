"""Models by name, and sources of trained weights."""

import enum
import glob
import os

_builders = {}


def register(builder):
    """Registers a model by its function's name."""
    _builders[builder.__name__] = builder
    return builder


def list_models():
    """The names of all models."""
    return sorted(_builders)


def get_model(name, **config):
    """A model by its name."""
    if name.lower() not in _builders:
        raise ValueError(f"Unknown model {name}; there are {', '.join(list_models())}")
    return _builders[name.lower()](**config)


def weights_enum(name, arch):
    """An enumeration of a model's trained weights, as torchvision has them."""
    return enum.Enum(name, {"IMAGENET1K_V1": f"{arch}:1", "IMAGENET1K_V2": f"{arch}:2", "DEFAULT": f"{arch}:1"}, module=__name__)


def load(model, arch, weights, progress=True):
    """Trained weights from PyTorch's download cache, if requested."""
    if weights is None or weights is False:
        return model
    home = os.environ.get("TORCH_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "torch")
    folder = os.path.join(home, "hub", "checkpoints")
    found = sorted(glob.glob(os.path.join(glob.escape(folder), f"{arch}-*.pth")))
    if not found:
        raise RuntimeError(
            f"{arch}: trained weights are not fetched from the network. Put torchvision's file {arch}-….pth into {folder}, or use weights=None and "
            "model.load_state_dict(torch.load(file))"
        )
    from ...serialization import load as load_file

    model.load_state_dict(load_file(found[-1], map_location="cpu"))
    return model


def build(make, arch, weights, kwargs, progress=True):
    """The model, with weights if either argument requests them."""
    pretrained = kwargs.pop("pretrained", None)
    if weights is None and pretrained:
        weights = pretrained
    return load(make(**kwargs), arch, weights, progress)
