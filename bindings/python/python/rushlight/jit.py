"""``torch.jit``: functions and modules marked for TorchScript run as the Python they are."""

_notice = []


def script(obj=None, optimize=None, _frames_up=0, _rcb=None, example_inputs=None):
    """The function, class or module as it is. Says so once."""
    if not _notice:
        _notice.append(True)
        import warnings

        warnings.warn("rushlight: torch.jit.script leaves functions and modules as they are", stacklevel=2)
    return (lambda marked: marked) if obj is None else obj


def ignore(drop=False, **kwargs):
    """A mark for a compiler that is not there."""
    return drop if callable(drop) else (lambda function: function)


def script_if_tracing(fn):
    """The function as it is: nothing is traced."""
    return fn


def export(fn):
    """The function as it is."""
    return fn


def unused(fn):
    """The function as it is."""
    return fn


def is_scripting():
    """Whether code is being compiled: it never is."""
    return False


def is_tracing():
    """Whether code is being traced: it never is."""
    return False


Final = object


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(
        f"rushlight has no 'jit.{name}': TorchScript's graphs and files are not supported; models run as they are, and torch.save keeps their state"
    )
