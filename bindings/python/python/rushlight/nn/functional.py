"""``torch.nn.functional``: the functions that layers are made of. Most are rows of the compiled op table."""

from .. import _C

globals().update({name: f for name, f in vars(_C._nn).items() if not name.startswith("__")})
