"""Data pipes: datasets chained by methods. PyTorch keeps them for old programs."""

import functools
import inspect
from contextlib import contextmanager

from ..dataset import Dataset, IterableDataset

__all__ = [
    "DFIterDataPipe", "DataChunk", "IterDataPipe", "MapDataPipe", "argument_validation", "functional_datapipe",
    "guaranteed_datapipes_determinism", "non_deterministic", "runtime_validation", "runtime_validation_disabled",
]


class _Pipe:
    """Methods that ``functional_datapipe`` registered create another pipe from this one."""

    functions = {}

    @classmethod
    def register_datapipe_as_function(cls, function_name, cls_to_register, enable_df_api_tracing=False):
        if function_name in cls.functions:
            raise Exception(f"Unable to add DataPipe function name {function_name} as it is already taken")
        cls.functions[function_name] = cls_to_register

    @classmethod
    def register_function(cls, function_name, function):
        cls.functions[function_name] = function

    def __getattr__(self, name):
        if name.startswith("__") or name not in type(self).functions:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return functools.partial(type(self).functions[name], self)

    def __repr__(self):
        return type(self).__qualname__


class IterDataPipe(_Pipe, IterableDataset):
    """An iterable dataset, the base of pipes: ``pipe.map(f).batch(4)``."""

    functions = {}

    def reset(self):
        """Called before each pass by pipes with state."""


class DFIterDataPipe(IterDataPipe):
    """A pipe over data frames."""


class MapDataPipe(_Pipe, Dataset):
    """A map-style dataset, the base of pipes."""

    functions = {}

    def __len__(self):
        raise NotImplementedError(f"{type(self).__name__} has no length")


class DataChunk(list):
    """The elements of a batch."""

    def __init__(self, items):
        items = list(items)
        super().__init__(items)
        self.items = items

    def as_str(self, indent=""):
        return indent + "[" + ", ".join(str(i) for i in iter(self)) + "]"

    def raw_iterator(self):
        yield from self.items


class functional_datapipe:
    """Registers a class of pipes as a method of all pipes of its kind."""

    def __init__(self, name, enable_df_api_tracing=False):
        self.name, self.enable_df_api_tracing = name, enable_df_api_tracing

    def __call__(self, cls):
        for kind in (IterDataPipe, MapDataPipe):
            if isinstance(cls, type) and issubclass(cls, kind):
                kind.register_datapipe_as_function(self.name, cls)
                return cls
        raise TypeError("functional_datapipe decorates subclasses of IterDataPipe or MapDataPipe")


_determinism = False


class guaranteed_datapipes_determinism:
    """A context in which pipes marked as not deterministic cannot be created."""

    def __init__(self):
        global _determinism
        self.before, _determinism = _determinism, True

    def __enter__(self):
        pass

    def __exit__(self, *exception):
        global _determinism
        _determinism = self.before


class non_deterministic:
    """Marks a class of pipes, or some of its instances by a predicate of their arguments, as not deterministic."""

    def __init__(self, arg):
        self.cls = arg if inspect.isclass(arg) else None
        self.says_so = None if inspect.isclass(arg) else arg

    def __call__(self, *args, **kwargs):
        if self.cls is not None:
            self._refuse(self.cls)
            return self.cls(*args, **kwargs)
        (cls,) = args

        @functools.wraps(cls, updated=())
        def make(*args, **kwargs):
            if self.says_so(*args, **kwargs):
                self._refuse(cls)
            return cls(*args, **kwargs)

        return make

    @staticmethod
    def _refuse(cls):
        if _determinism:
            raise TypeError(f"{cls.__name__} is non-deterministic, but you set 'guaranteed_datapipes_determinism'.")


def argument_validation(f):
    """Checks a function's pipe arguments against their annotations."""
    signature = inspect.signature(f)

    @functools.wraps(f)
    def checked(*args, **kwargs):
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            wanted = signature.parameters[name].annotation
            if inspect.isclass(wanted) and issubclass(wanted, _Pipe) and not isinstance(value, wanted):
                raise TypeError(f"Expected argument '{name}' as a {wanted.__name__}, but found {type(value)}")
        return f(*args, **kwargs)

    return checked


_runtime_validation = True


@contextmanager
def runtime_validation_disabled():
    """A context without checks of elements."""
    global _runtime_validation
    before, _runtime_validation = _runtime_validation, False
    try:
        yield
    finally:
        _runtime_validation = before


def runtime_validation(f):
    """An ``__iter__`` that checks elements against its annotated class."""
    wanted = inspect.signature(f).return_annotation
    (element,) = getattr(wanted, "__args__", (None,))[:1] or (None,)

    @functools.wraps(f)
    def checked(self):
        for item in f(self):
            if _runtime_validation and inspect.isclass(element) and not isinstance(item, element):
                raise RuntimeError(f"Expected an instance as subtype of {element}, but found {item}({type(item)})")
            yield item

    return checked
