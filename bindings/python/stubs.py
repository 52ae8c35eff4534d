"""Writes the type stubs (.pyi) from the op table: ``python bindings/python/stubs.py [DIRECTORY]``, into the package or another directory.

Functions and methods come from the rows' signatures; what is written in Python is read from the package. ``scripts/stubs`` builds the extension first.
"""

import inspect
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
if len(sys.argv) == 1:
    sys.path.insert(0, str(HERE / "python"))

import rushlight  # noqa: E402

PACKAGE = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "python" / "rushlight"
HEADER = '"""Made by stubs.py from the op table."""\n\n'
TYPES = {
    "Tensor": "Tensor", "Tensor[]": "Sequence[Tensor]", "Tensor|Number": "Tensor | Number", "Number": "Number", "int": "int",
    "int[]": "Sequence[int]", "float": "float", "float[]": "float | Sequence[float]", "bool": "bool", "str": "str",
    "str|int[]": "str | int | Sequence[int]", "dtype": "_dtype", "device": "_device | str | int", "Generator": "Generator", "layout": "layout",
    "memory_format": "memory_format",
}
KEYWORDS = {"from", "lambda", "in", "is"}


def parameters(text, method):
    """A row's signature as Python's."""
    inner = text[text.index("(") + 1 : text.rindex(")")]
    inner = inner.replace(
        "**factory", "*, dtype? dtype=None, layout? layout=None, device? device=None, bool? pin_memory=False, bool requires_grad=False"
    )
    out, starred = [], False
    for number, piece in enumerate(re.findall(r"(?:[^,(]|\([^)]*\))+", inner)):
        piece = piece.strip()
        if piece == "*":
            if not starred:
                out.append("*")
            starred = True
            continue
        head, _, default = piece.partition("=")
        kind, _, name = head.rpartition(" ")
        if method and number == 0:
            out.append("self")
            continue
        optional = kind.endswith("?")
        base = kind.rstrip("?")
        if base == "int...":
            out.append(f"*{name}: int | Sequence[int]")
            starred = True
            continue
        annotation = TYPES.get(base) or "int | Sequence[int | None]"
        annotation += " | None" if optional else ""
        name = f"{name}_" if name in KEYWORDS else name
        out.append(f"{name}: {annotation}" + (f" = {default}" if default else ""))
    return ", ".join(out)


def functions(home, method=False, indent=""):
    """Lines for one home's rows."""
    lines = []
    for homes, name, texts, doc in sorted(rushlight._C._rows(), key=lambda row: row[1]):
        if home not in homes or name.startswith("_"):
            continue
        shown = name + "_" if home == "inplace" else name
        for text in texts:
            if len(texts) > 1:
                lines.append(f"{indent}@overload")
            result = "Tensor" if home == "inplace" or name.endswith("_") else "Any"
            given = parameters(text, method)
            if home == "torch":
                given += ", out: Any = ..." if "*" in given else ", *, out: Any = ..."
            lines.append(f"{indent}def {shown}({given}) -> {result}:")
            lines.append(f'{indent}    """{doc.splitlines()[0] if doc else shown}"""')
    return lines


def python_functions(module, skip=()):
    lines = []
    for name, value in sorted(vars(module).items()):
        if name.startswith("_") or name in skip or not inspect.isfunction(value):
            continue
        try:
            signature = re.sub(r"=<[^>]*>", "=...", str(inspect.signature(value)))
        except (TypeError, ValueError):
            continue
        lines += [f"def {name}{signature}: ..."]
    return lines


IMPORTS = """from typing import Any, Sequence, overload

Number = int | float | bool
"""


def compiled_signature(value):
    """What a compiled method takes, if it says so."""
    try:
        found = str(inspect.signature(value))
    except (TypeError, ValueError):
        return "(self, *args: Any, **kwargs: Any)"
    return found.replace(", /", "").replace("(/", "(").replace("$", "")


def tensor_class():
    own = []
    rows = {name for homes, name, _, _ in rushlight._C._rows() if "method" in homes}
    for name, value in sorted(vars(rushlight.Tensor).items()):
        if name in rows or name.startswith("_") and not (name.startswith("__") and name.endswith("__")):
            continue
        if inspect.isfunction(value):
            own.append(f"    def {name}{inspect.signature(value)}: ...")
        elif inspect.isgetsetdescriptor(value) or isinstance(value, property):
            own.append(f"    @property\n    def {name}(self) -> Any: ...")
        elif name in ("__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __matmul__ __pow__ __mod__ __floordiv__ __and__ __or__ __xor__").split():
            own.append(f"    def {name}(self, other: Any) -> Tensor: ...")
        elif name in ("__lt__", "__le__", "__gt__", "__ge__"):
            own.append(f"    def {name}(self, other: Any) -> Tensor: ...")
        elif name in ("__neg__", "__invert__", "__abs__"):
            own.append(f"    def {name}(self) -> Tensor: ...")
        elif not name.startswith("__") and callable(value):
            own.append(f"    def {name}{compiled_signature(value)} -> Any: ...")
    special = [
        "    def __getitem__(self, index: Any) -> Tensor: ...",
        "    def __setitem__(self, index: Any, value: Any) -> None: ...",
        "    def __len__(self) -> int: ...",
        "    def __bool__(self) -> bool: ...",
        "    def __float__(self) -> float: ...",
        "    def __int__(self) -> int: ...",
    ]
    return ["class Tensor:"] + special + own + functions("method", True, "    ") + functions("inplace", True, "    ")


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEADER + "\n".join(lines) + "\n")


def main():
    classes = [
        "class dtype:\n    itemsize: int\n    is_floating_point: bool\n    is_complex: bool\n    is_signed: bool",
        "class device:\n    type: str\n    index: int | None\n    def __init__(self, type: Any, index: int | None = None) -> None: ...",
        "class layout: ...",
        "class memory_format: ...",
        "class Generator:\n    def __init__(self, device: Any = None) -> None: ...\n    def manual_seed(self, seed: int) -> Generator: ...\n"
        "    def get_state(self) -> Tensor: ...\n    def set_state(self, new_state: Tensor) -> Generator: ...\n    def initial_seed(self) -> int: ...\n"
        "    def seed(self) -> int: ...",
        "class Size(tuple[int, ...]):\n    def numel(self) -> int: ...",
        "_dtype = dtype",
        "_device = device",
    ]
    dtypes = sorted(name for name, value in vars(rushlight).items() if isinstance(value, rushlight.dtype))
    formats = ["strided: layout", "channels_last: memory_format", "channels_last_3d: memory_format", "contiguous_format: memory_format", "preserve_format: memory_format"]
    builtin = sorted(
        name for name, value in vars(rushlight).items()
        if inspect.isbuiltin(value) and name in vars(rushlight._C) and not name.startswith("_")
    )
    top = [IMPORTS, *classes, *tensor_class(), *functions("torch")]
    top += [f"def {name}(*args: Any, **kwargs: Any) -> Any: ..." for name in builtin]
    top += python_functions(rushlight._functions, [name for name in vars(rushlight._functions) if not hasattr(rushlight, name)])
    top += ["class no_grad: ...", "class enable_grad: ...", "class inference_mode: ...", "class set_grad_enabled: ...", "class finfo: ...", "class iinfo: ..."]
    top += [f"{name}: _dtype" for name in dtypes] + formats
    top += [f"from . import {name} as {name}" for name in ("amp", "autograd", "backends", "cuda", "linalg", "nn", "optim", "special", "utils")]
    top += ["from ._accelerator import Event as Event", "from ._accelerator import Stream as Stream", "from ._capture import capture as capture"]
    write(PACKAGE / "__init__.pyi", top)
    shared = "from typing import Any, Sequence, overload\n\nfrom {dots} import Generator, Tensor, layout, memory_format\nfrom {dots} import device as _device\nfrom {dots} import dtype as _dtype\n\nNumber = int | float | bool\n"
    from rushlight.nn import functional

    write(PACKAGE / "nn" / "functional.pyi", [shared.format(dots=".."), *functions("functional"), *python_functions(functional)])
    write(PACKAGE / "linalg.pyi", [shared.format(dots="."), *functions("linalg")])
    write(PACKAGE / "special.pyi", [shared.format(dots="."), *functions("special")])


if __name__ == "__main__":
    main()
