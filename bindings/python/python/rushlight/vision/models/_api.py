"""Models by name, and sources of trained weights: files of PyTorch's download cache, never the network."""

import dataclasses
import enum
import fnmatch
import functools
import os
import sys

_builders = {}


def register_model(name=None):
    """A decorator that registers a model's function, under its own name unless another is given."""

    def add(builder):
        key = name or builder.__name__
        if key in _builders:
            raise ValueError(f"An entry is already registered under the name '{key}'.")
        _builders[key] = builder
        return builder

    return add


def register(builder):
    """Registers a model by its function's name."""
    return register_model()(builder)


def list_models(module=None, include=None, exclude=None):
    """The names of all models: those of a module, matching a pattern of ``include`` and none of ``exclude``."""
    home = None if module is None else module.__name__.partition("models")[2]

    def matches(name, patterns):
        return any(fnmatch.fnmatch(name, p) for p in ([patterns] if isinstance(patterns, str) else patterns))

    found = [n for n, b in _builders.items() if home is None or b.__module__.partition("models")[2].rsplit(".", 1)[0] == home]
    if include:
        found = [n for n in found if matches(n, include)]
    return sorted(n for n in found if not (exclude and matches(n, exclude)))


def get_model_builder(name):
    """A model's function by its name."""
    if name.lower() not in _builders:
        raise ValueError(f"Unknown model {name}; there are {', '.join(list_models())}")
    return _builders[name.lower()]


def get_model(name, **config):
    """A model by its name."""
    return get_model_builder(name)(**config)


# Trained weights.


@dataclasses.dataclass
class Weights:
    """A file of trained weights, the transforms of its images, and facts about it."""

    url: str
    transforms: object
    meta: dict


class WeightsEnum(enum.Enum):
    """An enumeration of a model's trained weights."""

    @classmethod
    def verify(cls, obj):
        """A member by itself or by its name."""
        if obj is None or isinstance(obj, cls):
            return obj
        if isinstance(obj, str):
            return cls[obj.replace(cls.__name__ + ".", "")]
        raise TypeError(f"Invalid Weight class provided; expected {cls.__name__} but received {obj.__class__.__name__}.")

    @property
    def url(self):
        return self.value.url

    @property
    def transforms(self):
        return self.value.transforms

    @property
    def meta(self):
        return self.value.meta

    def get_state_dict(self, *args, **kwargs):
        """The file's contents."""
        return _read(self.value.url)

    def __repr__(self):
        return f"{type(self).__name__}.{self.name}"

    def __deepcopy__(self, memo):
        return self


@functools.cache
def _table():
    """torchvision's files by model: the enumeration's name, then members, files, presets and their options."""
    found = {}
    with open(os.path.join(os.path.dirname(__file__), "_weights.txt"), encoding="utf-8") as file:
        for line in file:
            name, arch, member, url, preset, *options = line.split()
            found.setdefault(arch, (name, []))[1].append((member, url, preset, options))
    return found


def _option(text):
    key, _, value = text.partition("=")
    if key == "interpolation":
        from ..transforms.functional import InterpolationMode

        return key, InterpolationMode(value)
    numbers = [1 / 255 if v == "1/255" else float(v) if "." in v else int(v) for v in value.split(",")]
    return key, numbers[0] if len(numbers) == 1 else tuple(numbers)


def _preset(preset, options):
    def transforms(**changed):
        from ..transforms import _presets

        return getattr(_presets, preset)(**{**dict(map(_option, options)), **changed})

    return transforms


def weights_of(arch, module):
    """The enumeration of a model's trained weights, as torchvision has them."""
    name, rows = _table()[arch]
    members, default = {}, None
    for member, url, preset, options in rows:
        default = member.rstrip("*") if member.endswith("*") else default
        members[member.rstrip("*")] = Weights(url, _preset(preset, options), {"architecture": arch})
    members["DEFAULT"] = members[default]
    return WeightsEnum(name, members, module=module)


def get_model_weights(name):
    """The enumeration of a model's trained weights, by the model or its name."""
    builder = get_model_builder(name) if isinstance(name, str) else name
    return getattr(sys.modules[builder.__module__], _table()[builder.__name__][0])


def get_weight(name):
    """Trained weights by a full name, ``ResNet50_Weights.IMAGENET1K_V2``."""
    family, _, member = name.partition(".")
    for arch, (known, _) in _table().items():
        if known == family and arch in _builders:
            return get_model_weights(arch)[member]
    raise ValueError(f"The weight enum '{family}' is unknown")


def _read(file):
    from ...serialization import load as load_file

    home = os.environ.get("TORCH_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "torch")
    folder = os.path.join(home, "hub", "checkpoints")
    path = os.path.join(folder, file)
    if not os.path.exists(path):
        raise RuntimeError(
            f"trained weights are not fetched from the network. Put torchvision's file {file} into {folder}, or use weights=None (and weights_backbone=None) and "
            "model.load_state_dict(torch.load(file))"
        )
    return load_file(path, map_location="cpu")


def chosen(builder, weights, kwargs):
    """A member of a model's weights, or None. ``weights`` is one, its name, or a yes; ``pretrained`` asks for the first, as it always has."""
    first = kwargs.pop("pretrained", None)
    if weights is None or weights is False:
        if not first:
            return None
        weights = True
    known = get_model_weights(builder)
    return next(iter(known)) if weights is True else known.verify(weights)


def load(model, weights, rename=None):
    """Trained weights from their file, if requested."""
    if weights is not None:
        state = weights.get_state_dict()
        model.load_state_dict(rename(state) if rename else state)
    return model


def builders(namespace, archs, make, rename=None):
    """Adds a function and an enumeration of weights to a module for each model in ``archs``, whose values ``make`` takes first. Returns their names."""
    names = []
    for name, config in archs.items():
        enumeration = weights_of(name, namespace["__name__"])

        def builder(*, weights=None, progress=True, _name=name, _config=config, **kwargs):
            weights = chosen(namespace[_name], weights, kwargs)
            return load(make(_config, **kwargs), weights, rename)

        builder.__name__ = builder.__qualname__ = name
        builder.__module__ = namespace["__name__"]
        builder.__doc__ = f"A network with torchvision's layers of ``{name}``."
        namespace[name], namespace[enumeration.__name__] = register(builder), enumeration
        names += [name, enumeration.__name__]
    return names
