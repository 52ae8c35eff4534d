"""The compiler of ``torch.jit.script``: Python functions and modules as programs.

Plain tensor code is taken: assignments, ``if``, ``for``, ``while``, calls of ops and of other functions and modules. Attributes of modules and global constants are
read when the program is made. What a program cannot hold raises ``CompileError``.
"""

import ast
import inspect
import math
import textwrap
import types

from .. import _trace
from .._C import Tensor, _Program
from ..nn import Module, ModuleDict, ModuleList, Parameter, ParameterDict, ParameterList, Sequential


class CompileError(NotImplementedError):
    """Code that a program cannot hold."""


_UNKNOWN = object()

#: Methods of lists and dictionaries, and questions about tensors: functions in programs.
_FUNCTIONS = {"append", "extend", "insert", "pop", "clear", "reverse", "keys", "values", "items", "size", "dim", "numel", "item", "format", "join"}

_BUILTINS = {"len": len, "range": range, "int": int, "float": float, "bool": bool, "str": str, "list": list, "min": min, "max": max, "print": print}

_MATH = {math.sqrt: "sqrt", math.exp: "exp", math.log: "log", math.floor: "floor", math.ceil: "ceil"}

_CONTAINERS = (ModuleList, ModuleDict, Sequential, ParameterList, ParameterDict)


def _source(function):
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as error:
        raise CompileError(f"torch.jit.script: the source of {function!r} is not available") from error
    tree = ast.parse(text).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise CompileError(f"torch.jit.script takes functions written with 'def', not {getattr(function, '__name__', function)!r}")
    return tree


def _constant(value):
    """A plain value as an expression."""
    if isinstance(value, (bool, int, float, str)) or value is None:
        if isinstance(value, float) and not math.isfinite(value):
            return ast.Name("nan" if value != value else "inf") if value != -math.inf else ast.UnaryOp(ast.USub(), ast.Name("inf"))
        return ast.Constant(value)
    if isinstance(value, (list, tuple)):
        items = [_constant(item) for item in value]
        return ast.List(items) if isinstance(value, list) else ast.Tuple(items)
    if type(value).__name__ in ("dtype", "memory_format"):
        return ast.parse(str(value), mode="eval").body
    if type(value).__name__ == "device":
        return ast.Call(ast.parse("torch.device", mode="eval").body, [ast.Constant(str(value))], [])
    raise CompileError(f"torch.jit.script: a program cannot hold a constant of type {type(value).__name__}")


def _is_plain(value):
    try:
        _constant(value)
    except CompileError:
        return False
    return True


class _Unit:
    """Functions, classes and weights of a program."""

    def __init__(self):
        self.text, self.weights, self._functions, self._classes = [], {}, {}, {}
        self._stored, self._alive = {}, []

    def weight(self, tensor, name):
        known = self._stored.get(id(tensor))
        if known is None:
            while name in self.weights:
                name += "_"
            self._stored[id(tensor)] = known = name
            self._alive.append(tensor)
            self.weights[name] = tensor
        return ast.Call(ast.Name("weight"), [ast.Constant(known)], [])

    def function(self, function, name=None):
        """The name of a compiled function."""
        found = self._functions.get(function)
        if found is None:
            found = name or f"{function.__name__.lstrip('_') or 'f'}_{len(self._functions)}"
            self._functions[function] = found
            self.text.append(ast.unparse(_Function(self, function, None).tree(found)))
        return found

    def module(self, module, path):
        """The object expression of a module."""
        if module in self._classes:
            raise CompileError(f"torch.jit.script: module '{path}' is used twice under different names")
        name = f"Module{len(self._classes)}"
        self._classes[module] = name
        fields, parameters, buffers = {"training": ast.Constant(module.training)}, [], []
        for key, value in [*module._parameters.items(), *module._buffers.items()]:
            if value is None:
                fields[key] = ast.Constant(None)
                continue
            (parameters if isinstance(value, Parameter) else buffers).append(key)
            fields[key] = self.weight(value, f"{path}{key}")
        for key, value in vars(module).items():
            if not key.startswith("_") and key not in fields and _is_plain(value):
                fields[key] = _constant(value)
        for key, value in module._modules.items():
            fields[key] = ast.Constant(None) if value is None else self.module(value, f"{path}{key}.")
        lines = [f"class {name}(Module):", f"  __parameters__ = {_names(parameters)}", f"  __buffers__ = {_names(buffers)}"]
        for key in fields:
            lines.append(f"  {key} : Any" if key.isidentifier() else f"  __annotations__[{ast.unparse(ast.Constant(key))}] = Any")
        at = len(self.text)
        self.text.append("")
        methods, wanted = [], ["forward"]
        while wanted:
            method = wanted.pop(0)
            if method in [m for m, _ in methods]:
                continue
            if isinstance(module, _CONTAINERS) and not isinstance(module, Sequential):
                continue
            function = getattr(type(module), method, None)
            if not isinstance(function, types.FunctionType):
                raise CompileError(f"torch.jit.script: '{type(module).__name__}.{method}' is not a method with a source")
            if function is Module.forward:
                continue
            compiler = _Function(self, function, module)
            methods.append((method, ast.unparse(compiler.tree(method))))
            wanted += compiler.methods
        for _, text in methods:
            lines.append(textwrap.indent(text, "  "))
        self.text[at] = "\n".join(lines)
        entries = ", ".join(f"{ast.unparse(ast.Constant(k))}: {ast.unparse(v)}" for k, v in fields.items())
        return ast.parse(f'object("{name}", {{{entries}}})', mode="eval").body


def _names(names):
    return "[" + "".join(f'"{name}", ' for name in names) + "]"


class _Function(ast.NodeTransformer):
    """Rewrites one function."""

    def __init__(self, unit, function, module):
        self.unit, self.function, self.module, self.methods = unit, function, module, []
        self.definition = _source(function)
        self.static, self.numbers, self.lists, self.before, self.count = {}, set(), set(), [], 0
        closure = inspect.getclosurevars(function)
        self.globals = {**function.__globals__, **closure.nonlocals}

    def fail(self, node, what):
        line = getattr(node, "lineno", None)
        where = f"{self.function.__qualname__}, line {line}" if line else self.function.__qualname__
        raise CompileError(f"torch.jit.script: {what} ({where})")

    def tree(self, name):
        definition = self.definition
        arguments = definition.args
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
            self.fail(definition, "*args, **kwargs and keyword-only arguments are not supported")
        self.self_name = arguments.args[0].arg if self.module is not None else None
        self.locals = {a.arg for a in arguments.args}
        self.stores = [node.id for node in ast.walk(definition) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
        self.locals.update(self.stores)
        for argument in arguments.args:
            if argument.annotation is not None and ast.unparse(argument.annotation) in ("int", "float", "bool"):
                self.numbers.add(argument.arg)
            if argument.annotation is not None and ast.unparse(argument.annotation).split("[")[0].split(".")[-1] in ("List", "list"):
                self.lists.add(argument.arg)
            argument.annotation = None
        values = inspect.signature(self.function).parameters
        named = [p for p in values.values() if p.default is not inspect.Parameter.empty]
        arguments.defaults = [_constant(p.default) for p in named]
        body = self.block(definition.body)
        made = ast.FunctionDef(name, arguments, body or [ast.Pass()], [], None)
        return ast.fix_missing_locations(made)

    # Statements.

    def block(self, statements):
        out = []
        for statement in statements:
            outer, self.before = self.before, []
            made = self.visit(statement)
            out += self.before
            self.before = outer
            out += made if isinstance(made, list) else [] if made is None else [made]
        return out

    def visit_Expr(self, node):
        if isinstance(node.value, ast.Constant):
            return None
        return ast.Expr(self.visit(node.value))

    def visit_Return(self, node):
        return ast.Return(None if node.value is None else self.visit(node.value))

    def visit_Assign(self, node):
        known = self.value(node.value)
        if known is not _UNKNOWN and not isinstance(known, Tensor) and not _is_plain(known) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            # Another name for a module or container, which is known when the program is made.
            name = node.targets[0].id
            if self.stores.count(name) > 1:
                self.fail(node, f"'{name}' is set several times to values that a program cannot hold")
            self.static[name] = known
            return []
        value = self.visit(node.value)
        out = []
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.note(target.id, node.value)
                out.append(ast.Assign([target], value))
            elif isinstance(target, (ast.Tuple, ast.List)) and all(isinstance(t, ast.Name) for t in target.elts):
                for t in target.elts:
                    self.numbers.discard(t.id)
                    self.lists.discard(t.id)
                out.append(ast.Assign([ast.Tuple(target.elts)], value))
            elif isinstance(target, ast.Subscript):
                out.append(self.store(target, value))
            else:
                self.fail(node, f"an assignment to '{ast.unparse(target)}'")
        return out

    def note(self, name, value):
        """Remembers whether a variable is a number or a list."""
        (self.numbers.add if self.is_number(value) else self.numbers.discard)(name)
        (self.lists.add if self.is_list(value) else self.lists.discard)(name)

    def is_number(self, node):
        if isinstance(node, ast.Constant):
            return isinstance(node.value, (int, float))
        if isinstance(node, ast.Name):
            return node.id in self.numbers
        if isinstance(node, (ast.BinOp,)):
            return self.is_number(node.left) and self.is_number(node.right)
        if isinstance(node, ast.UnaryOp):
            return self.is_number(node.operand)
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            return name in ("len", "int", "float") or name.endswith((".size", ".dim", ".numel", ".item")) and bool(node.args or not name.endswith(".size"))
        if isinstance(node, ast.Subscript):
            return ast.unparse(node.value).endswith((".shape", ".size()"))
        value = self.value(node)
        return isinstance(value, (int, float))

    def visit_AnnAssign(self, node):
        if node.value is None:
            return None
        return self.visit_Assign(ast.copy_location(ast.Assign([node.target], node.value), node))

    def visit_AugAssign(self, node):
        if not isinstance(node.target, ast.Name):
            self.fail(node, f"'{ast.unparse(node)}'; write the assignment in full")
        target, value = node.target, self.visit(node.value)
        names = {ast.Add: "add_", ast.Sub: "sub_", ast.Mult: "mul_", ast.Div: "div_"}
        if target.id in self.numbers or type(node.op) not in names:
            return ast.Assign([ast.Name(target.id)], ast.BinOp(ast.Name(target.id), node.op, value))
        # Tensors change in place.
        call = ast.Call(ast.Attribute(ast.Name(target.id), names[type(node.op)]), [value], [])
        return ast.Assign([ast.Name(target.id)], call)

    def visit_If(self, node):
        value = self.value(node.test)
        if value is not _UNKNOWN:
            return self.block(node.body if value else node.orelse)
        test = self.visit(node.test)
        return ast.If(test, self.block(node.body) or [ast.Pass()], self.block(node.orelse))

    def visit_IfExp(self, node):
        value = self.value(node.test)
        if value is not _UNKNOWN:
            return self.visit(node.body if value else node.orelse)
        return ast.IfExp(self.visit(node.test), self.visit(node.body), self.visit(node.orelse))

    def visit_While(self, node):
        if node.orelse:
            self.fail(node, "'else' of a loop")
        if self.value(node.test) is False:
            return None
        return ast.While(self.visit(node.test), self.block(node.body) or [ast.Pass()], [])

    def visit_For(self, node):
        if node.orelse:
            self.fail(node, "'else' of a loop")
        over = self.value(node.iter)
        if over is not _UNKNOWN and not isinstance(over, range):
            return self.unrolled(node, over)
        if isinstance(node.target, ast.Name) and ast.unparse(node.iter).startswith("range("):
            self.numbers.add(node.target.id)
        return ast.For(node.target, self.visit(node.iter), self.block(node.body) or [ast.Pass()], [])

    def unrolled(self, node, over):
        """A loop over modules or constants, one copy of its body for each."""
        if any(isinstance(n, (ast.Break, ast.Continue)) for n in ast.walk(node)):
            self.fail(node, "'break' or 'continue' in a loop over modules")
        out = []
        for item in over:
            names, values = [node.target], [item]
            if isinstance(node.target, ast.Tuple):
                names, values = node.target.elts, list(item)
            known = dict(self.static)
            for name, value in zip(names, values):
                self.static[name.id] = value
            # A copy: the body is rewritten in place.
            out += self.block([ast.parse(ast.unparse(s)).body[0] for s in node.body])
            self.static = known
        return out

    def visit_Assert(self, node):
        value = self.value(node.test)
        if value is not _UNKNOWN and value:
            return None
        message = ast.Constant("an assertion failed") if node.msg is None else self.visit(node.msg)
        return ast.Assert(self.visit(node.test), message)

    def visit_Raise(self, node):
        call = node.exc
        if isinstance(call, ast.Call):
            call = call.args[0] if call.args else ast.Constant(ast.unparse(call.func))
        return ast.Raise(self.visit(call) if not isinstance(call, ast.Name) else ast.Constant(call.id))

    def generic_visit(self, node):
        if isinstance(node, (ast.With, ast.Try, ast.Lambda, ast.Yield, ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal,
                             ast.Delete, ast.Starred, ast.NamedExpr, ast.Set, ast.SetComp, ast.GeneratorExp, ast.Await)):
            self.fail(node, f"'{ast.unparse(node).splitlines()[0]}' is not supported")
        return super().generic_visit(node)

    # Expressions.

    def value(self, node):
        """The value of an expression that is known when the program is made."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            if node.id in self.static:
                return self.static[node.id]
            if node.id in self.locals:
                return self.module if node.id == self.self_name else _UNKNOWN
            if node.id in self.globals:
                return self.globals[node.id]
            return getattr(__builtins__, node.id, _UNKNOWN) if not isinstance(__builtins__, dict) else __builtins__.get(node.id, _UNKNOWN)
        if isinstance(node, ast.Attribute):
            owner = self.value(node.value)
            if owner is _UNKNOWN or isinstance(owner, Tensor):
                return _UNKNOWN
            if isinstance(owner, Module) and node.attr == "training":
                return _UNKNOWN
            return getattr(owner, node.attr, _UNKNOWN)
        if isinstance(node, ast.Subscript):
            owner, index = self.value(node.value), self.value(node.slice)
            if owner is _UNKNOWN or index is _UNKNOWN or isinstance(owner, Tensor):
                return _UNKNOWN
            return owner[index]
        if isinstance(node, ast.Tuple):
            items = [self.value(e) for e in node.elts]
            return _UNKNOWN if any(i is _UNKNOWN for i in items) else tuple(items)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            value = self.value(node.operand)
            return _UNKNOWN if value is _UNKNOWN or isinstance(value, Tensor) else not value
        if isinstance(node, ast.BoolOp):
            for part in node.values:
                value = self.value(part)
                if value is _UNKNOWN or isinstance(value, Tensor):
                    return _UNKNOWN
                if bool(value) == isinstance(node.op, ast.Or):
                    return value
            return value
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = self.value(node.left), self.value(node.comparators[0])
            if left is _UNKNOWN or right is _UNKNOWN:
                return _UNKNOWN
            if isinstance(node.ops[0], (ast.Is, ast.IsNot)):
                return (left is right) == isinstance(node.ops[0], ast.Is)
            if isinstance(left, Tensor) or isinstance(right, Tensor):
                return _UNKNOWN
        if isinstance(node, ast.Call):
            function = self.value(node.func)
            name = getattr(function, "__name__", "")
            if name == "is_scripting":
                return True
            if name == "is_tracing":
                return False
            known = (len, isinstance, enumerate, zip, range, reversed, hasattr, getattr, *_MATH)
            method = getattr(function, "__self__", None)
            if not (any(function is k for k in known) or isinstance(method, (dict, *_CONTAINERS)) and name in ("values", "items", "keys")):
                return _UNKNOWN
        elif not isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.List)):
            return _UNKNOWN
        # Operators and calls of known values.
        parts = [n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr)]
        values = [self.value(p) for p in parts]
        if any(v is _UNKNOWN or isinstance(v, Tensor) for v in values) or isinstance(node, ast.Call) and node.keywords:
            return _UNKNOWN
        if isinstance(node, ast.Call):
            return values[0](*values[1:])
        if isinstance(node, ast.List):
            return values
        names = [ast.Name(f"v{i}", ast.Load()) for i in range(len(values))]
        if isinstance(node, ast.BinOp):
            made = ast.BinOp(names[0], node.op, names[1])
        elif isinstance(node, ast.UnaryOp):
            made = ast.UnaryOp(node.op, names[0])
        else:
            made = ast.Compare(names[0], node.ops, names[1:])
        return eval(compile(ast.fix_missing_locations(ast.Expression(made)), "<script>", "eval"), {f"v{i}": v for i, v in enumerate(values)})

    def known(self, node):
        """An expression whose value is known, or nothing."""
        value = self.value(node)
        if value is _UNKNOWN or isinstance(value, (Module, types.ModuleType, types.FunctionType, type)):
            return None
        if isinstance(value, Tensor):
            if self.module is not None:
                for key, own in [*self.module._parameters.items(), *self.module._buffers.items()]:
                    if own is value:
                        return ast.Attribute(ast.Name(self.self_name), key)
                if isinstance(node, ast.Attribute):
                    return None
            if "weight" in self.locals:
                self.fail(node, "a constant tensor in a function with a variable named 'weight'")
            return self.unit.weight(value, f"constants.{len(self.unit.weights)}")
        return _constant(value) if _is_plain(value) else None

    def path(self, node):
        """A module's expression in the program: ``self`` and names after it."""
        module = self.value(node)
        if not isinstance(module, Module):
            return None
        if module is self.module:
            return ast.Name(self.self_name)
        for name, inner in self.module.named_modules() if self.module is not None else ():
            if inner is module:
                out = ast.Name(self.self_name)
                for part in name.split("."):
                    out = ast.Call(ast.Name("getattr"), [out, ast.Constant(part)], [])
                return out
        self.fail(node, f"module '{ast.unparse(node)}' is not part of the module that is compiled")
        return None

    def visit_Name(self, node):
        if node.id in self.locals and node.id not in self.static:
            return node
        found = self.known(node)
        if found is None:
            self.fail(node, f"the name '{node.id}'")
        return found

    def visit_Attribute(self, node):
        owner = self.value(node.value)
        if isinstance(owner, Module):
            value = getattr(owner, node.attr, _UNKNOWN)
            if node.attr == "training" or isinstance(value, Tensor):
                return ast.Attribute(self.path(node.value), node.attr)
        found = self.known(node)
        if found is not None:
            return found
        if node.attr in ("shape", "dtype", "device", "ndim", "T", "mT"):
            return ast.Attribute(self.visit(node.value), node.attr)
        self.fail(node, f"the attribute '{ast.unparse(node)}'")
        return None

    def visit_JoinedStr(self, node):
        parts = [part.value if isinstance(part, ast.Constant) else "{" + ast.unparse(part.value) + "}" for part in node.values]
        return ast.Constant("".join(parts))

    def visit_Compare(self, node):
        found = self.known(node)
        if found is not None:
            return found
        left, out = self.visit(node.left), []
        for op, right in zip(node.ops, node.comparators):
            right = self.visit(right)
            out.append(ast.Compare(left, [op], [right]))
            left = right
        return out[0] if len(out) == 1 else ast.BoolOp(ast.And(), out)

    def visit_BinOp(self, node):
        return self.known(node) or ast.BinOp(self.visit(node.left), node.op, self.visit(node.right))

    def visit_UnaryOp(self, node):
        return self.known(node) or ast.UnaryOp(node.op, self.visit(node.operand))

    def visit_BoolOp(self, node):
        value = self.value(node)
        if value is not _UNKNOWN:
            return _constant(value)
        return ast.BoolOp(node.op, [self.visit(v) for v in node.values])

    def visit_ListComp(self, node):
        if len(node.generators) != 1 or node.generators[0].ifs or not isinstance(node.generators[0].target, ast.Name):
            self.fail(node, "this comprehension; write it as a loop")
        self.count += 1
        name = f"list_{self.count}_"
        self.locals.add(name)
        loop = node.generators[0]
        append = ast.Expr(ast.Call(ast.Attribute(ast.Name(name), "append"), [node.elt], []))
        self.locals.add(loop.target.id)
        made = self.visit_For(ast.copy_location(ast.For(loop.target, loop.iter, [append], []), node))
        self.before.append(ast.Assign([ast.Name(name)], ast.List([])))
        self.before += made if isinstance(made, list) else [made]
        return ast.Name(name)

    def visit_Subscript(self, node):
        found = self.known(node)
        if found is not None:
            return found
        value = self.visit(node.value)
        index = node.slice
        if isinstance(index, ast.Slice):
            return self.sliced(value, index, self.is_list(node.value))
        if not isinstance(index, ast.Tuple):
            if isinstance(index, ast.Constant) and (index.value is None or index.value is Ellipsis):
                return self.views(value, [index])
            return ast.Subscript(value, self.visit(index))
        return self.views(value, index.elts)

    def is_list(self, node):
        if isinstance(node, ast.Name):
            return node.id in self.lists
        if isinstance(node, ast.BinOp):
            return self.is_list(node.left)
        return isinstance(node, (ast.List, ast.ListComp)) or ast.unparse(node).endswith((".shape", ".size()"))

    def torch(self, name, *args):
        return ast.Call(ast.parse(f"torch.{name}", mode="eval").body, list(args), [])

    def end(self, node):
        return ast.Constant(None) if node is None else self.visit(node)

    def sliced(self, value, index, is_list, dim=0):
        step = ast.Constant(1) if index.step is None else self.visit(index.step)
        ends = (self.end(index.lower), self.end(index.upper), step)
        return self.torch("slice", value, *ends) if is_list else self.torch("slice", value, ast.Constant(dim), *ends)

    def views(self, value, items):
        """``x[a, :, None]`` as views."""
        dim, tail = 0, []
        for at, item in enumerate(items):
            if isinstance(item, ast.Constant) and item.value is Ellipsis:
                rest = items[at + 1:]
                # Counted from the end.
                count = sum(not (isinstance(i, ast.Constant) and i.value is None) for i in rest)
                for place, inner in enumerate(rest):
                    if isinstance(inner, ast.Slice):
                        value = self.sliced(value, inner, False, place - count)
                    elif isinstance(inner, ast.Constant) and inner.value is None and not rest[place + 1:]:
                        value = self.torch("unsqueeze", value, ast.Constant(-1))
                    elif not rest[place + 1:]:
                        value = self.torch("select", value, ast.Constant(-1), self.visit(inner))
                    else:
                        self.fail(item, "this index after '...'")
                return value
            if isinstance(item, ast.Slice):
                if item.lower is not None or item.upper is not None or item.step is not None:
                    value = self.sliced(value, item, False, dim)
                dim += 1
            elif isinstance(item, ast.Constant) and item.value is None:
                value = self.torch("unsqueeze", value, ast.Constant(dim))
                dim += 1
            elif self.is_number(item) or isinstance(self.value(item), int):
                value = self.torch("select", value, ast.Constant(dim), self.visit(item))
            else:
                tail.append((dim, self.visit(item)))
                dim += 1
        if tail:
            indices = [ast.Constant(None)] * (max(d for d, _ in tail) + 1)
            for d, item in tail:
                indices[d] = item
            value = self.torch("index", value, ast.List(indices))
        return value

    def store(self, target, value):
        """``x[index] = value``."""
        index = target.slice
        items = index.elts if isinstance(index, ast.Tuple) else [index]
        if not any(isinstance(i, ast.Slice) or isinstance(i, ast.Constant) and (i.value is None or i.value is Ellipsis) for i in items) and len(items) == 1:
            return ast.Assign([ast.Subscript(self.visit(target.value), self.visit(index))], value)
        view = self.views(self.visit(target.value), items)
        return ast.Expr(ast.Call(ast.Attribute(view, "copy_" if not isinstance(value, ast.Constant) else "fill_"), [value], []))

    def visit_Call(self, node):
        found = self.known(node)
        if found is not None:
            return found
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            self.fail(node, "calls with * or **")
        function = self.value(node.func)
        keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        if function is _UNKNOWN:
            return self.method(node, keywords)
        args = [self.visit(a) for a in node.args]
        if isinstance(function, Module):
            return ast.Call(ast.Attribute(self.path(node.func), "forward"), args, keywords)
        owner = getattr(function, "__self__", None)
        if isinstance(owner, Module):
            if owner is not self.module:
                self.fail(node, f"a call of '{ast.unparse(node.func)}', a method of another module; call the module")
            self.methods.append(function.__name__)
            return ast.Call(ast.Attribute(ast.Name(self.self_name), function.__name__), args, keywords)
        return ast.Call(self.callee(node, function), args, keywords)

    def callee(self, node, function):
        for name, builtin in _BUILTINS.items():
            if function is builtin:
                return ast.Name(name)
        table = _trace._names()
        if isinstance(function, _Scripted):
            function = function.__wrapped__
        try:
            known = table.get(function) or table.get(getattr(function, "__wrapped__", None))
        except TypeError:
            known = None
        if known is None and function in _MATH:
            known = f"torch.{_MATH[function]}"
        if known is not None:
            return ast.parse(known, mode="eval").body
        inner = getattr(function, "__wrapped__", function)
        if isinstance(inner, types.FunctionType):
            return ast.Name(self.unit.function(inner))
        self.fail(node, f"a call of '{ast.unparse(node.func)}'")
        return None

    def method(self, node, keywords):
        if not isinstance(node.func, ast.Attribute):
            self.fail(node, f"a call of '{ast.unparse(node.func)}', whose value is not known")
        receiver, name = self.visit(node.func.value), node.func.attr
        args = [self.visit(a) for a in node.args]
        if name in _FUNCTIONS:
            return ast.Call(ast.parse(f"torch.{name}", mode="eval").body, [receiver, *args], keywords)
        return ast.Call(ast.Attribute(receiver, name), args, keywords)


class _Scripted:
    """The mark of a compiled function, which keeps the Python one as ``__wrapped__``."""


def compile_function(function):
    """The program of a function, whose entry is ``forward``."""
    unit = _Unit()
    unit.function(function, "forward")
    return _Program.from_text("\n".join(unit.text) + "\n", unit.weights)


def compile_module(module):
    """The program of a module: classes, and the module as an object with its weights."""
    unit = _Unit()
    root = unit.module(module, "")
    text = "#: rlm 1\n" + "\n".join(unit.text) + "\n#: root\n" + ast.unparse(ast.fix_missing_locations(root)) + "\n"
    return _Program.parse(text, unit.weights)
