"""The statements of random programs. ``programs.py`` defines the holes.

A family is a weight and lines; a line is one template, or several where it has words in angle brackets: ``{T}.<sin cos>()``.
"""

import re

FAMILIES = [
    # Pointwise functions of one tensor, in place too.
    (1, """
    {T}.<sin cos tan exp log sqrt rsqrt abs neg sign floor ceil trunc round frac square reciprocal sigmoid tanh relu erf isnan isinf>()
    {T}.<isfinite logical_not bitwise_not exp2 expm1 log1p log2 log10 asinh atan sinh cosh digamma lgamma signbit positive angle>()
    {TF}.<sin_ exp_ sqrt_ abs_ neg_ floor_ round_ sigmoid_ tanh_ relu_ square_ reciprocal_ log1p_ trunc_>()
    F.<gelu silu mish softplus selu elu celu hardtanh hardswish hardsigmoid relu6 leaky_relu logsigmoid softsign tanhshrink>({T})
    F.<softshrink hardshrink>({TF}, {S})
    F.<celu elu>({TF}, alpha={S})
    F.leaky_relu({TF}, {S})
    F.hardtanh({T}, -1, {S})
    F.threshold({T}, {S}, {S})
    torch.<round nan_to_num logit erfinv sgn deg2rad>({T})
    {TF}.round(decimals={I})
    torch.polygamma({P}, {TF})
    """),
    # Two or three operands.
    (2, """
    torch.<add sub mul div true_divide floor_divide remainder fmod pow>({T}, {A})
    {T}.<add_ sub_ mul_ div_ remainder_ fmod_ pow_ floor_divide_>({A})
    torch.<maximum minimum fmax fmin atan2 hypot logaddexp heaviside nextafter gcd lcm ldexp copysign xlogy>({T}, {B})
    torch.<eq ne lt le gt ge>({T}, {A})
    {T}.<eq_ lt_ ge_ atan2_ xlogy_ copysign_>({B})
    torch.<logical_and logical_or logical_xor>({T}, {B})
    torch.<bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift>({TI}, {A})
    torch.<add sub>({T}, {B}, alpha={S})
    {T}.<add_ sub_>({B}, alpha={S})
    torch.div({T}, {A}, rounding_mode='<floor trunc>')
    torch.<addcmul addcdiv>({T}, {B}, {B}, value={S})
    {T}.<addcmul_ addcdiv_>({B}, {B}, value={S})
    torch.lerp({T}, {B}, {A})
    {TF}.lerp_({B}, {A})
    {T}.where({M}, {A})
    torch.where({T} > 0, {T}, {A})
    torch.isclose({T}, {B})
    torch.rsub({T}, {A})
    {S} <+ - * / // % **> {T}
    {T} <+ - * / // % ** & | ^ @> {B}
    {T} <+= -= *= /= //= %= **= &= |= ^=> {A}
    torch.float_power({T}, {A})
    torch.result_type({T}, {A})
    """),
    # Bounds and fills.
    (2, """
    torch.clamp({T}, {A}, {A})
    torch.clamp({T}, <min max>={A})
    {T}.clamp_(<min max>={S})
    {T}.clamp_({S}, {S})
    torch.<clamp_min clamp_max>({T}, {A})
    {T}.fill_({S})
    {T}.masked_fill({M}, {S})
    {T}.masked_fill_({M}, {S})
    torch.full_like({T}, {S})
    {T}.new_full((2, ), {S})
    torch.full((2, {P}), {S}, dtype={DT})
    F.pad({T}, ({I}, {I}), value={S})
    F.pad({T}, ({I}, {I}, {I}, {P}), 'constant', {S})
    {T}.<zero_ clone detach contiguous>()
    torch.<zeros_like ones_like>({T}, dtype={DT})
    """),
    # Reductions.
    (2, """
    {T}.<sum prod mean any all max min argmax argmin amax amin std var norm median logsumexp count_nonzero nansum nanmean>()
    {T}.<sum mean amax amin any all nansum nanmean std var logsumexp norm>({DS})
    {T}.<sum mean amax amin any all nansum nanmean std var logsumexp norm>({D}, keepdim={K})
    {T}.<sum mean nansum prod>(dtype={DT})
    {T}.<sum mean nansum prod cumsum cumprod>({D}, dtype={DT})
    {T}.<prod argmax argmin>({D}, keepdim={K})
    {TF}.<max min>({D}, keepdim={K})
    {TF}.<median nanmedian mode>({D}, {K})
    {TF}.kthvalue({P}, {D}, {K})
    {T}.<std var>({DN}, correction={I}, keepdim={K})
    torch.<var_mean std_mean>({T}, {DN})
    {T}.<cumsum cumprod logcumsumexp>({D})
    {TF}.<cummax cummin>({D})
    {T}.norm({S}, {DN})
    torch.linalg.<vector_norm>({T}, {S}, {DN}, {K})
    torch.<aminmax>({T}, dim={D})
    torch.<amax amin>({T}, None)
    {T}.<count_nonzero>({DS})
    torch.<dist>({T}, {B}, {S})
    torch.<std_mean cov corrcoef>({T})
    {TF}.quantile(0.5, {DN}, keepdim={K})
    torch.<diff>({T}, dim={D})
    torch.<trapezoid>({T}, dim={D})
    torch.<histc>({TF}, 4)
    torch.bincount({TV})
    F.<softmax log_softmax softmin>({T}, {D})
    F.softmax({T}, {D}, dtype={DT})
    """),
    # Views, and what looks like one.
    (3, """
    {T}.<transpose swapaxes>({D}, {D})
    {T}.permute({PM})
    {T}.movedim({D}, {D})
    {T}.<reshape view>({SZ})
    {T}.expand({EX})
    {T}.unsqueeze({D})
    {T}.<squeeze>({D})
    {T}.squeeze({DS})
    {T}.<squeeze flatten t ravel>()
    {T}.<mT T>
    {T}.narrow({D}, {I}, {P})
    {T}.select({D}, {I})
    {T}.unfold({D}, {P}, {P})
    {T}.diagonal({I})
    {T}.diagonal({I}, {D}, {D})
    {T}.flatten({D}, {D})
    {T}.unflatten({D}, ({P}, -1))
    {T}.as_strided(({P}, {P}), (1, {P}), 0)
    {T}.<chunk tensor_split>({P}, {D})
    {T}.split({P}, {D})
    {T}.unbind({D})
    {T}.expand_as({B})
    {TI}.view(torch.<int32 uint8 int16 float32>)
    {T}.<flip>({DS})
    {T}.roll({I}, {D})
    {T}.rot90()
    {T}.repeat({EX})
    torch.tile({T}, ({P}, {P}))
    {T}.repeat_interleave({P}, {DN})
    {T}.<tril triu>({I})
    {T}.diag_embed({I})
    torch.diag({T}, {I})
    torch.<cat stack>([{T}, {B}], {D})
    torch.<hstack vstack dstack>([{T}, {B}])
    torch.<atleast_1d atleast_2d atleast_3d>({T})
    torch.broadcast_tensors({T}, {B})
    {T}.<squeeze_ unsqueeze_>({D})
    {T}.<t_>()
    {T}.transpose_({D}, {D})
    """),
    # Indices.
    (3, """
    {T}[{IX}]
    {T}[{IX}]
    {T}[{IX}] = {A}
    {T}[{IX}] = {S}
    {T}[{IX}] += {S}
    {T}.index_select({D}, {IV})
    {T}.<gather>({D}, {PL})
    {T}.take_along_dim({PL}, {D})
    {T}.scatter({D}, {PL}, {S})
    {T}.scatter({D}, {PL}, {L})
    {T}.scatter_add({D}, {PL}, {L})
    {T}.scatter_reduce({D}, {PL}, {L}, '<sum prod amax amin mean>', include_self={K})
    {T}.scatter_({D}, {PL}, {S})
    {T}.index_fill({D}, {IV}, {S})
    {T}.index_fill_({D}, {IV}, {S})
    {T}.index_add({D}, {IV}, {L})
    {T}.index_copy({D}, {IV}, {L})
    torch.take({T}, {IV})
    {T}.put_({IV}, {IV})
    {T}.masked_select({M})
    {T}.masked_scatter({M}, {L})
    {T}.<nonzero argwhere>()
    {T}.index_put(({IV}, ), {A}, accumulate={K})
    {T}.index_put_(({IV}, ), {A})
    torch.<sort argsort>({T}, dim={D}, stable=True, descending={K})
    {TF}.topk({P}, {D}, {K})
    torch.unique({T})
    torch.unique({T}, return_counts=True, return_inverse={K})
    torch.unique_consecutive({T})
    torch.searchsorted({TV}.sort()[0], {T})
    torch.bucketize({T}, {TV}.sort()[0], right={K})
    torch.isin({T}, {B})
    F.one_hot({TI}, {P})
    F.embedding(weight={TM}, input={IV})
    torch.select_scatter({T}, {L}, {D}, {I})
    {T}.diagonal_scatter({L}, {I})
    """),
    # Dtypes.
    (1, """
    {T}.to({DT})
    {T}.type_as({B})
    {T}.<float double half bfloat16 long int bool>()
    {T}.copy_({B})
    {T}.item()
    {T}.tolist()
    {T}.<dtype shape>
    torch.arange({S}, {S}, dtype={DT})
    torch.arange({S})
    torch.linspace({S}, {S}, {P}, dtype={DT})
    torch.<range>({I}, {S})
    torch.eye({P}, {P}, dtype={DT})
    torch.tensor([{S}, {S}], dtype={DT})
    bool({T})
    float({T})
    int({T})
    len({T})
    {T}.data.mul_({S})
    {T}.requires_grad_()
    {T}.equal({B})
    """),
    # Products and decompositions.
    (1, """
    torch.matmul({T}, {B})
    torch.matmul({TB}, {TB}.mT)
    {TM} @ {TM}.t()
    torch.<mv>({TM}, {TV})
    torch.outer({TV}, {TV})
    torch.<dot inner vdot>({TV}, {TV})
    torch.<dot inner kron>({T}, {B})
    torch.bmm({TB}, {TB}.mT)
    torch.addmm({TM}, {TM}, {TM}.t(), beta={S}, alpha={S})
    torch.einsum('...i,...i->...', {T}, {L})
    torch.einsum('ij->ji', {TM})
    torch.tensordot({T}, {L}, {P})
    torch.linalg.<det slogdet inv svdvals matrix_rank pinv>({TS})
    torch.linalg.matrix_power({TS}, {I})
    torch.linalg.solve({TS}, {TM})
    torch.linalg.<cholesky eigvalsh>({TS})
    torch.<trace logdet>({TS})
    torch.cross({T}, {L}, dim={D})
    torch.cdist({TB}, {TB}, p={S})
    torch.<cumulative_trapezoid>({T})
    torch.vander({TV}, {P})
    torch.<tril_indices triu_indices>({P}, {P}, {I})
    torch.cartesian_prod({TV}, {TV})
    torch.combinations({TV}, {P})
    torch.meshgrid({TV}, {TV}, indexing='<ij xy>')
    """),
    # Layers and losses.
    (1, """
    F.layer_norm({TF}, {TF}.shape[-1:])
    F.<mse_loss l1_loss smooth_l1_loss huber_loss soft_margin_loss>({TF}, {L}, reduction='<none mean sum>')
    F.kl_div({TF}, {L}.sigmoid(), reduction='<none mean sum>')
    F.binary_cross_entropy({TF}.sigmoid(), {L}.sigmoid())
    F.binary_cross_entropy_with_logits({TF}, {L})
    F.cross_entropy({TM}, {IV})
    F.nll_loss({TM}, {IV}, reduction='<none mean sum>')
    F.normalize({TF}, dim={D})
    F.normalize({TF}, p={S}, dim={D})
    F.cosine_similarity({TF}, {L}, dim={D})
    F.pairwise_distance({TF}, {L})
    F.glu({TF}, {D})
    F.pad({TF}, ({I}, {I}), mode='<reflect replicate circular>')
    F.pad({TF}, ({I}, {I}, {I}, {I}), mode='<reflect replicate circular>')
    F.pad({TF}, ({I}, {I}))
    F.linear({TF}, {TM})
    F.<max_pool1d avg_pool1d>({TF}, {P}, {P})
    F.<max_pool2d avg_pool2d>({TF}, {P}, {P}, ceil_mode={K})
    F.<max_pool2d avg_pool2d>({TF}, {P}, {P}, 1)
    F.<adaptive_avg_pool1d adaptive_max_pool1d>({TF}, {P})
    F.<adaptive_avg_pool2d adaptive_max_pool2d>({TF}, ({P}, {P}))
    F.interpolate({TF}, scale_factor={P}, mode='<nearest linear bilinear>')
    F.interpolate({TF}, size=({P}, {P}), mode='<nearest bilinear bicubic>')
    F.dropout({TF}, 0.0)
    F.prelu({TF}, torch.tensor([0.25]))
    F.pixel_shuffle({TF}, {P})
    F.unfold({TF}, ({P}, {P}))
    F.scaled_dot_product_attention({TB}, {TB}, {TB})
    """),
]


def spread(line):
    """One template for each word in angle brackets."""
    match = re.search(r"<([^<>]+)>", line)
    if match is None:
        return [line]
    return [t for word in match.group(1).split() for t in spread(line[: match.start()] + word + line[match.end():])]


TEMPLATES = [
    (template, weight)
    for weight, lines in FAMILIES
    for line in map(str.strip, lines.splitlines())
    if line
    for template in spread(line)
]


# Statements whose shapes depend on each other are made by a function. Their numbers are finite: the order of sums
# decides what infinities make.


def convolution(p):
    draw, rank = p.random, p.random.choice([1, 2, 2, 3])
    groups, out = draw.choice([1, 1, 2]), draw.choice([1, 2, 3])
    kernel = [draw.randint(1, 3) for _ in range(rank)]
    size = [draw.randint(0, 6) for _ in range(rank)]
    dtype = draw.choice(["float32", "float64"])
    x = p.finite([draw.randint(0, 2), 2 * groups] + size if draw.random() < 0.9 else [2 * groups] + size, dtype)
    transposed = draw.random() < 0.3
    w = p.finite(([2 * groups, out] if transposed else [out * groups, 2]) + kernel, dtype)
    b = p.finite([out * groups], dtype) if draw.random() < 0.5 else "None"
    stride, padding, dilation = draw.randint(1, 3), draw.randint(0, 2), draw.randint(1, 2)
    if transposed:
        p.assign(f"F.conv_transpose{rank}d({x}, {w}, {b}, {stride}, {padding}, {draw.randint(0, 1)}, {groups}, {dilation})")
    else:
        p.assign(f"F.conv{rank}d({x}, {w}, {b}, {stride}, {padding}, {dilation}, {groups})")


def pooling(p):
    draw, rank = p.random, p.random.choice([1, 2, 2, 3])
    x = p.finite([draw.randint(0, 2), draw.randint(0, 2)] + [draw.randint(0, 6) for _ in range(rank)], draw.choice(["float32", "float64"]))
    kernel, stride = draw.randint(1, 4), draw.randint(1, 3)
    padding, ceil = draw.randint(0, kernel // 2), draw.random() < 0.5
    kind = draw.choice(["max", "avg", "lp", "adaptive_avg", "adaptive_max", "max"])
    if kind == "max":
        p.assign(f"F.max_pool{rank}d({x}, {kernel}, {stride}, {padding}, {draw.randint(1, 2)}, ceil_mode={ceil})")
    elif kind == "avg":
        include = draw.random() < 0.5
        p.assign(f"F.avg_pool{rank}d({x}, {kernel}, {stride}, {padding}, ceil_mode={ceil}, count_include_pad={include})")
    elif kind == "lp":
        p.assign(f"F.lp_pool{min(rank, 2)}d({x}, 2, {kernel}, {stride}, {ceil})")
    else:
        sizes = tuple(draw.randint(0, 4) for _ in range(rank))
        p.assign(f"F.{kind}_pool{rank}d({x}, {sizes if rank > 1 else sizes[0]})")


def norms(p):
    draw, dtype = p.random, p.random.choice(["float32", "float64"])
    shape = [draw.randint(1, 3), draw.choice([2, 4])] + [draw.randint(1, 3) for _ in range(draw.randint(0, 2))]
    x = p.finite(shape, dtype)
    kind = draw.choice(["layer", "group", "batch", "instance", "rms"])
    if kind in ("layer", "rms"):
        last = shape[-draw.randint(1, len(shape)):]
        w = p.finite(last, dtype) if draw.random() < 0.6 else "None"
        b = p.finite(last, dtype) if draw.random() < 0.6 else "None"
        p.assign(f"F.layer_norm({x}, {last}, {w}, {b})" if kind == "layer" else f"F.rms_norm({x}, {last}, {w})")
        return
    w = p.finite([shape[1]], dtype) if draw.random() < 0.6 else "None"
    b = p.finite([shape[1]], dtype) if draw.random() < 0.6 else "None"
    if kind == "group":
        p.assign(f"F.group_norm({x}, {draw.choice([1, 2, 3])}, {w}, {b})")
    elif kind == "instance":
        p.assign(f"F.instance_norm({x}, weight={w}, bias={b})")
    else:
        mean, var = p.finite([shape[1]], dtype, grad=False), p.finite([shape[1]], dtype, grad=False)
        p.assign(f"F.batch_norm({x}, {mean}, {var}.abs() + 1, {w}, {b}, training={draw.random() < 0.5})")


def sampling(p):
    draw, dtype = p.random, p.random.choice(["float32", "float64"])
    x = p.finite([draw.randint(1, 2), draw.randint(1, 2), draw.randint(1, 4), draw.randint(1, 4)], dtype)
    if draw.random() < 0.5:
        grid = p.finite([p.tensors[x].shape[0], draw.randint(1, 3), draw.randint(1, 3), 2], dtype)
        mode, padding = draw.choice(["bilinear", "nearest", "bicubic"]), draw.choice(["zeros", "border", "reflection"])
        p.assign(f"F.grid_sample({x}, {grid} / 3, mode='{mode}', padding_mode='{padding}', align_corners={draw.random() < 0.5})")
    else:
        size = (draw.randint(1, 6), draw.randint(1, 6))
        mode = draw.choice(["bilinear", "nearest", "bicubic", "area", "nearest-exact"])
        align = f", align_corners={draw.random() < 0.5}" if mode in ("bilinear", "bicubic") else ""
        p.assign(f"F.interpolate({x}, size={size}, mode='{mode}'{align})")


def attention(p):
    draw, dtype = p.random, p.random.choice(["float32", "float64"])
    batch, queries, keys, width = draw.randint(1, 2), draw.randint(1, 4), draw.randint(1, 4), draw.randint(1, 4)
    q, k, v = p.finite([batch, queries, width], dtype), p.finite([batch, keys, width], dtype), p.finite([batch, keys, width], dtype)
    how = draw.random()
    mask = f", attn_mask={p.finite([queries, keys], draw.choice([dtype, 'bool']), grad=False)}" if how < 0.4 else ""
    causal = ", is_causal=True" if how > 0.7 else ""
    p.assign(f"F.scaled_dot_product_attention({q}, {k}, {v}{mask}{causal})")


BUILDERS = [convolution, convolution, pooling, pooling, norms, norms, sampling, attention]
