"""Modules and parameters in lists and dicts."""

from __future__ import annotations

import operator
from collections import OrderedDict, abc
from itertools import chain, islice

from ... import _C
from ..parameter import Parameter
from .module import Module, _addindent

__all__ = ["Container", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]

Tensor = _C.Tensor


class Container(Module):
    """Modules by keyword: the old base class of containers."""

    def __init__(self, **kwargs) -> None:
        super().__init__()
        for name, module in kwargs.items():
            self.add_module(name, module)


def _at(size: int, index) -> int:
    """An index that may be negative, checked."""
    index = operator.index(index)
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of range")
    return index % size


class _Numbered(Module):
    """Modules under the names ``"0"``, ``"1"``, …"""

    def _key(self, index) -> str:
        size = len(self._modules)
        return next(islice(self._modules, _at(size, index), None))

    def _renumber(self, modules) -> None:
        self._modules = {str(i): m for i, m in enumerate(modules)}

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def __setitem__(self, index, module: Module) -> None:
        setattr(self, self._key(index), module)

    def __delitem__(self, index) -> None:
        if isinstance(index, slice):
            for key in list(self._modules)[index]:
                delattr(self, key)
        else:
            delattr(self, self._key(index))
        self._renumber(list(self._modules.values()))

    def __dir__(self):
        return [key for key in super().__dir__() if not key.isdigit()]

    def pop(self, key):
        """Removes and returns a module."""
        module = self[key]
        del self[key]
        return module

    def insert(self, index: int, module: Module):
        """Inserts a module before another."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        modules = list(self._modules.values())
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def append(self, module: Module):
        """Appends a module."""
        self.add_module(str(len(self)), module)
        return self


class Sequential(_Numbered):
    """Modules one after the other: each gets the output of the one before.

    >>> import rushlight as torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    >>> model(torch.ones(2, 3)).shape
    torch.Size([2, 1])
    """

    def __init__(self, *args) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for index, module in enumerate(args):
                self.add_module(str(index), module)

    def forward(self, input):
        for module in self._modules.values():
            input = module(input)
        return input

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))
        return self._modules[self._key(index)]

    def extend(self, sequential):
        """Adds modules at the end."""
        for module in sequential:
            self.append(module)
        return self

    def insert(self, index: int, module: Module):
        """Inserts a module before another."""
        if not -len(self) <= index <= len(self):
            raise IndexError(f"Index out of range: {index}")
        return super().insert(index, module)

    def __add__(self, other):
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return Sequential(*self, *other)

    def __iadd__(self, other):
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return self.extend(list(other))

    def __mul__(self, other: int):
        if not isinstance(other, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(other)}")
        if other <= 0:
            raise ValueError(f"Non-positive multiplication factor {other} for {type(self)}")
        return Sequential(*(list(self) * other))

    __rmul__ = __mul__

    def __imul__(self, other: int):
        if not isinstance(other, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(other)}")
        if other <= 0:
            raise ValueError(f"Non-positive multiplication factor {other} for {type(self)}")
        return self.extend(list(self) * (other - 1))


class ModuleList(_Numbered):
    """A list of modules, registered with the module it is assigned to."""

    def __init__(self, modules=None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(list(self._modules.values())[index])
        return self._modules[self._key(index)]

    def __setitem__(self, index, module: Module) -> None:
        setattr(self, str(_at(len(self), index)), module)

    def extend(self, modules):
        """Adds modules at the end."""
        if not isinstance(modules, abc.Iterable):
            raise TypeError(f"ModuleList.extend should be called with an iterable, but got {type(modules).__name__}")
        start = len(self)
        for i, module in enumerate(modules):
            self.add_module(str(start + i), module)
        return self

    def __iadd__(self, modules):
        return self.extend(modules)

    def __add__(self, other):
        return ModuleList(list(chain(self, other)))

    def __repr__(self) -> str:
        """Equal modules in a row are printed once, with their number."""
        shown = [repr(module) for module in self]
        if not shown:
            return self._get_name() + "()"
        runs = [[0, 0, shown[0]]]
        for i, text in enumerate(shown[1:], 1):
            if text == runs[-1][2]:
                runs[-1][1] = i
            else:
                runs.append([i, i, text])
        lines = []
        for first, last, text in runs:
            line = f"({first}): {text}" if first == last else f"({first}-{last}): {last - first + 1} x {text}"
            lines.append(_addindent(line, 2))
        inside = "\n  ".join(lines)
        return f"{self._get_name()}(\n  {inside}\n)"


class ModuleDict(Module):
    """A dict of modules, registered with the module it is assigned to."""

    def __init__(self, modules=None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Removes everything."""
        self._modules.clear()

    def pop(self, key: str) -> Module:
        """Removes and returns a module."""
        module = self[key]
        del self[key]
        return module

    def keys(self):
        """The names."""
        return self._modules.keys()

    def items(self):
        """Names and modules."""
        return self._modules.items()

    def values(self):
        """The modules."""
        return self._modules.values()

    def update(self, modules) -> None:
        """Adds modules of a mapping or of pairs."""
        for key, module in _pairs(modules, "ModuleDict"):
            self[key] = module


def _pairs(given, name: str):
    """Keys and values of a mapping, or pairs, checked."""
    if not isinstance(given, abc.Iterable):
        raise TypeError(f"{name}.update should be called with an iterable of key/value pairs, but got {type(given).__name__}")
    if hasattr(given, "items"):
        return list(given.items())
    pairs = []
    for at, pair in enumerate(given):
        if not isinstance(pair, abc.Iterable):
            raise TypeError(f"{name} update sequence element #{at} should be Iterable; is {type(pair).__name__}")
        pair = tuple(pair)
        if len(pair) != 2:
            raise ValueError(f"{name} update sequence element #{at} has length {len(pair)}; 2 is required")
        pairs.append(pair)
    return pairs


def _described(key, value, dtype: str) -> str:
    """One line about an entry of a ParameterList or ParameterDict."""
    if not isinstance(value, Tensor):
        return f"  ({key}): Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    device = f" ({value.device})" if value.device.type != "cpu" else ""
    size = "x".join(map(str, value.size()))
    return f"  ({key}): {kind} containing: [{dtype} of size {size}{device}]"


class ParameterList(Module):
    """A list of parameters; tensors put in become parameters, other values are kept unchanged."""

    def __init__(self, values=None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)([getattr(self, str(i)) for i in range(*index.indices(len(self)))])
        return getattr(self, str(_at(len(self), index)))

    def __setitem__(self, index, param) -> None:
        if isinstance(param, Tensor) and not isinstance(param, Parameter):
            param = Parameter(param)
        setattr(self, str(_at(len(self), index)), param)

    def __len__(self) -> int:
        return self._size

    def __iter__(self):
        return iter(self[i] for i in range(len(self)))

    def __iadd__(self, parameters):
        return self.extend(parameters)

    def __dir__(self):
        return [key for key in super().__dir__() if not key.isdigit()]

    def append(self, value):
        """Appends a value."""
        self._size += 1
        self[len(self) - 1] = value
        return self

    def extend(self, values):
        """Adds values at the end."""
        if not isinstance(values, abc.Iterable) or isinstance(values, Tensor):
            raise TypeError(f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}")
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(_described(i, value, str(getattr(value, "dtype", ""))) for i, value in enumerate(self))

    def __call__(self, *args, **kwargs):
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dict of parameters; tensors put in become parameters, other values are kept unchanged."""

    def __init__(self, parameters=None) -> None:
        super().__init__()
        self._keys: dict = {}
        if parameters is not None:
            self.update(parameters)

    def _name(self, key) -> str:
        if not isinstance(key, str):
            raise TypeError(f"Index given to ParameterDict cannot be used as a key as it is not a string (type is '{type(key).__name__}').")
        return key

    def __getitem__(self, key):
        return getattr(self, self._name(key))

    def __setitem__(self, key, value) -> None:
        self._keys[key] = None
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        setattr(self, self._name(key), value)

    def __delitem__(self, key) -> None:
        del self._keys[key]
        delattr(self, self._name(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self):
        return iter(self._keys)

    def __reversed__(self):
        return reversed(list(self._keys))

    def __contains__(self, key) -> bool:
        return key in self._keys

    def copy(self):
        """A dict with the same parameters."""
        return ParameterDict(OrderedDict((key, self[key]) for key in self._keys))

    def setdefault(self, key, default=None):
        """The value of a key; sets a default if it is missing."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Removes everything."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key):
        """Removes and returns a value."""
        value = self[key]
        del self[key]
        return value

    def popitem(self):
        """Removes and returns the last pair."""
        key = next(reversed(self))
        return key, self.pop(key)

    def get(self, key, default=None):
        """The value of a key, or a default."""
        return self[key] if key in self else default

    def fromkeys(self, keys, default=None):
        """A dict with these keys and one value."""
        return ParameterDict((key, default) for key in keys)

    def keys(self):
        """The names."""
        return self._keys.keys()

    def items(self):
        """Names and values."""
        return ((key, self[key]) for key in self._keys)

    def values(self):
        """The values."""
        return (self[key] for key in self._keys)

    def update(self, parameters) -> None:
        """Adds values of a mapping or of pairs."""
        for key, value in _pairs(parameters, "ParameterDict"):
            self[key] = value

    def extra_repr(self) -> str:
        from ..._functions import typename

        # Lists name the dtype, dicts the type of the tensor: as PyTorch does.
        plain = {key: value.detach() if isinstance(value, Tensor) else value for key, value in self.items()}
        return "\n".join(_described(key, value, typename(plain[key])) for key, value in self.items())

    def __call__(self, input):
        raise RuntimeError("ParameterDict should not be called.")

    def __or__(self, other):
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other):
        made = other.copy()
        made.update(self)
        return made

    def __ior__(self, other):
        self.update(other)
        return self
