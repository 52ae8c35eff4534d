"""``torch.func.rearrange``: dimensions named, split, merged and reordered by a pattern such as ``"b (h k) c -> (b h) k c"``."""

import math
import re

from . import _C


#: The group of an ellipsis without brackets.
_REST = ("...",)


class _Side:
    """One side of a pattern: a list of groups, each a list of names. ``1`` is an empty group."""

    def __init__(self, text, pattern):
        self.groups, self.pattern, inside = [], pattern, None
        for token in re.findall(r"\.\.\.|[()]|[^\s()]+", text):
            if token == "(":
                if inside is not None:
                    self.fail("brackets do not nest")
                inside = []
            elif token == ")":
                if inside is None:
                    self.fail("a bracket closes that was not opened")
                self.groups.append(inside)
                inside = None
            else:
                name = self.name(token)
                if inside is not None:
                    inside.extend(name)
                else:
                    self.groups.append(_REST if name == ["..."] else name)
        if inside is not None:
            self.fail("a bracket is not closed")
        names = self.names()
        if len(set(names)) != len(names):
            self.fail("a name appears twice on one side")

    def name(self, token):
        if token == "...":
            return ["..."]
        if token == "1":
            return []
        if token.isdigit():
            self.fail(f"a size other than 1 needs a name, not '{token}'")
        if not token.isidentifier() or token.startswith("_") or token.endswith("_"):
            self.fail(f"'{token}' is not a name")
        return [token]

    def names(self):
        return [name for group in self.groups for name in group]

    def fail(self, reason):
        raise ValueError(f"rearrange: {reason} in '{self.pattern}'")


def rearrange(tensor, pattern, **axes_lengths):
    """A tensor, or a list of tensors stacked first, with the dimensions of the pattern's right side.

    Brackets on the left split a dimension, on the right they merge several; ``...`` stands for any number of dimensions. Sizes that the
    pattern does not determine are arguments.
    """
    if not isinstance(tensor, _C.Tensor):
        tensor = _C._torch.stack(list(tensor))
    sides = pattern.split("->")
    if len(sides) != 2:
        raise ValueError(f"rearrange: expected a pattern with one '->', got '{pattern}'")
    left, right = _Side(sides[0], pattern), _Side(sides[1], pattern)
    if "..." in left.names() and _REST not in left.groups:
        left.fail("'...' cannot be in brackets on the left")
    if set(left.names()) != set(right.names()):
        left.fail(f"names must be on both sides, but {sorted(set(left.names()) ^ set(right.names()))} are not")
    unknown = set(axes_lengths) - set(left.names())
    if unknown:
        left.fail(f"sizes are given for {sorted(unknown)}, which are not")

    rest = tensor.dim() - sum(group is not _REST for group in left.groups)
    if rest < 0 or (rest > 0 and _REST not in left.groups):
        left.fail(f"a tensor of {tensor.dim()} dimensions does not fit the left side")
    sizes, order, at = {}, {}, 0
    split = []
    for group in left.groups:
        if group is _REST:
            order["..."] = list(range(len(split), len(split) + rest))
            split.extend(tensor.shape[at : at + rest])
            at += rest
            continue
        size = tensor.shape[at]
        known = {name: axes_lengths[name] for name in group if name in axes_lengths}
        open_names = [name for name in group if name not in known]
        product = math.prod(known.values())
        if len(open_names) > 1:
            left.fail(f"the sizes of {open_names} cannot both be found")
        if not open_names and product != size or open_names and (product <= 0 or size % product):
            left.fail(f"dimension {at} has {size} elements, which {known or group} does not divide" if known else f"dimension {at} is not 1")
        for name in group:
            sizes[name] = known.get(name, size // product if product else 0)
            order[name] = [len(split)]
            split.append(sizes[name])
        at += 1
    merged = []
    for group in right.groups:
        if group is _REST:
            merged += [split[d] for d in order["..."]]
        else:
            merged.append(math.prod(split[d] for name in group for d in order[name]))
    dims = [d for name in right.names() for d in order[name]]
    return tensor.reshape(split).permute(dims).reshape(merged)
