"""Interpolation."""

from family import bf16, f32, f64


def build(f):
    op = "interpolate"
    for mode in ("nearest", "nearest-exact"):
        f.case(op, f.uniform(2, 2, 5), size=8, mode=mode)
        f.case(op, f.uniform(1, 2, 7), size=[3], mode=mode)
        f.case(op, f.uniform(1, 2, 5, dtype=f64, layout="transposed"), scale_factor=2, mode=mode)
        f.case(op, f.uniform(1, 2, 5), scale_factor=1.7, mode=mode)
        f.case(op, f.uniform(1, 2, 3, 4), size=[5, 7], mode=mode)
        f.case(op, f.uniform(1, 2, 6, 5, layout="strided"), size=[4, 3], mode=mode)
        f.case(op, f.uniform(2, 2, 3, 2), scale_factor=2.0, mode=mode)
        f.case(op, f.uniform(1, 1, 4, 5, dtype=f64, layout="transposed"), scale_factor=[1.5, 0.6], mode=mode)
        f.case(op, f.uniform(1, 1, 4, 5), scale_factor=1.3, recompute_scale_factor=True, mode=mode)
        f.case(op, f.uniform(1, 2, 3, 3, dtype=bf16), size=5, mode=mode)
    for align in (False, True):
        kwargs = {"mode": "linear", "align_corners": align}
        f.case(op, f.uniform(2, 2, 5), size=8, **kwargs)
        f.case(op, f.uniform(1, 2, 7, layout="transposed"), size=3, **kwargs)
        f.case(op, f.uniform(1, 2, 5, dtype=f64, layout="strided"), scale_factor=1.7, **kwargs)
        f.case(op, f.uniform(1, 2, 5), size=1, **kwargs)
        kwargs = {"mode": "bilinear", "align_corners": align}
        f.case(op, f.uniform(1, 2, 3, 4), size=[5, 7], **kwargs)
        f.case(op, f.uniform(1, 2, 6, 5, layout="strided"), size=[4, 3], **kwargs)
        f.case(op, f.uniform(2, 2, 3, 2), scale_factor=2.0, **kwargs)
        f.case(op, f.uniform(1, 1, 4, 5, dtype=f64, layout="transposed"), scale_factor=[1.5, 0.6], **kwargs)
        f.case(op, f.uniform(1, 1, 4, 5, dtype=f32), scale_factor=1.3, recompute_scale_factor=True, **kwargs)
        f.case(op, f.uniform(1, 1, 2, 2), size=[1, 4], **kwargs)
        f.case(op, f.uniform(1, 2, 3, 3, dtype=bf16), size=5, **kwargs)
        f.case(op, f.uniform(1, 3, 3, 4, layout="channels_last"), size=[5, 6], **kwargs)
        kwargs = {"mode": "bicubic", "align_corners": align}
        f.case(op, f.uniform(1, 2, 3, 4), size=[5, 7], **kwargs)
        f.case(op, f.uniform(1, 2, 6, 5, layout="strided"), size=[4, 3], **kwargs)
        f.case(op, f.uniform(1, 1, 4, 5, dtype=f64, layout="transposed"), scale_factor=[1.5, 0.6], **kwargs)
        f.case(op, f.uniform(1, 1, 4, 5), scale_factor=1.3, recompute_scale_factor=True, **kwargs)
        f.case(op, f.uniform(1, 1, 2, 2), size=[1, 4], **kwargs)
        f.case(op, f.uniform(1, 2, 3, 3, dtype=bf16), size=5, **kwargs)
        kwargs = {"mode": "trilinear", "align_corners": align}
        f.case(op, f.uniform(1, 2, 2, 3, 4), size=[3, 5, 7], **kwargs)
        f.case(op, f.uniform(1, 1, 4, 3, 5, dtype=f64, layout="strided"), scale_factor=[0.6, 1.5, 1.3], **kwargs)
        f.case(op, f.uniform(1, 2, 2, 3, 2), scale_factor=2.0, **kwargs)
    for mode in ("nearest", "nearest-exact"):
        f.case(op, f.uniform(1, 2, 2, 3, 4), size=[3, 2, 5], mode=mode)
