"""Ops on DTensors against the same ops on whole tensors, values and gradients, for every placement: ``python tensor_op_ranks.py FUNCTION``, as ``sharded_ranks.py``."""

import itertools
import sys

from sharded_ranks import BACKEND, F, KIND, RANK, SIZE, DTensor, Partial, Replicate, Shard, dist, dtensor, init_device_mesh, same, torch, values

#: Counts of classes, positions and the like.
INDEX = (torch.arange(4 * 6 * 8).reshape(4, 6, 8) * 5) % 4
ROWS = torch.tensor([3, 0, 2, 2])


def placed(t, mesh, like):
    """A plain tensor that an op needs beside DTensors."""
    return dtensor.distribute_tensor(t, mesh, [Replicate()]) if isinstance(like, DTensor) else t


def cases(mesh):
    """Name, function of tensors, tensors, the dimensions of each that are tried as shards (all if None)."""
    x, y, z = values(4, 6, 8), values(4, 6, 8, seed=1), values(4, 6, 8, seed=2)
    one = lambda name, f, dims=None: (name, f, (x,), [dims])
    with_index = lambda f, index: lambda t: f(t, placed(index, mesh, t))
    yield one("getitem int", lambda t: t[1])
    yield one("getitem negative", lambda t: t[:, -1])
    yield one("getitem slices", lambda t: t[1:3, :, ::2])
    yield one("getitem ellipsis", lambda t: t[..., 2, None, :])
    yield one("getitem tensor", with_index(lambda t, i: t[:, i], ROWS))
    yield one("getitem tensors", with_index(lambda t, i: t[i, :, i], ROWS))
    yield one("getitem adjacent tensors", with_index(lambda t, i: t[:, i, i], ROWS))
    yield one("getitem tensor of two dimensions", with_index(lambda t, i: t[i], ROWS.reshape(2, 2)))
    yield one("select", lambda t: t.select(1, 2))
    yield one("narrow", lambda t: t.narrow(2, 1, 3))
    yield one("unbind", lambda t: torch.unbind(t, 1)[3] * t.unbind(1)[0])
    yield one("split", lambda t: t.split([2, 4], 1)[1])
    yield one("split of one size", lambda t: torch.split(t, 3, 2)[2])
    yield one("index_select", with_index(lambda t, i: t.index_select(1, i), ROWS))
    yield one("gather", with_index(lambda t, i: t.gather(0, i), INDEX))
    yield one("gather fewer", with_index(lambda t, i: t.gather(1, i), INDEX[:2, :, :5]))
    yield ("take_along_dim", with_index(lambda t, i: torch.take_along_dim(t, i, 2), INDEX), (x,), [None])
    source = lambda f: lambda t, s: f(t, placed(INDEX, mesh, t), s)
    yield ("scatter", source(lambda t, i, s: t.scatter(1, i[:, :1], s[:, :1])), (x, y), [None, None])
    yield one("scatter of a number", with_index(lambda t, i: t.scatter(1, i[:, :2], 0.5), INDEX))
    yield ("scatter_add", source(lambda t, i, s: t.scatter_add(2, i, s)), (x, y), [None, None])
    yield ("index_add", lambda t, s: t.index_add(1, placed(ROWS, mesh, t), s[:, :4]), (x, y), [None, None])
    yield ("index_copy", lambda t, s: t.index_copy(1, placed(torch.tensor([3, 0]), mesh, t), s[:, :2]), (x, y), [None, None])
    yield one("index_fill", with_index(lambda t, i: t.index_fill(1, i, 2.0), ROWS))
    yield one("topk", lambda t: t.topk(3, 1)[0])
    yield one("topk indices", lambda t: t.topk(3, 2)[1] + 0.0 * t[..., :3])
    yield one("sort", lambda t: t.sort(1, descending=True)[0])
    yield one("argsort", lambda t: t.argsort(2) + 0.0 * t)
    yield one("cumsum", lambda t: t.cumsum(1))
    yield one("cumprod", lambda t: t.cumprod(2))
    yield one("cummax", lambda t: t.cummax(0)[0])
    yield one("logcumsumexp", lambda t: t.logcumsumexp(1))
    yield one("flip", lambda t: t.flip(0, 2))
    yield one("roll", lambda t: t.roll((1, 2), (0, 2)))
    yield one("max of a dimension", lambda t: t.max(1)[0])
    yield one("min of a dimension, kept", lambda t: torch.min(t, 2, keepdim=True).values)
    yield one("max of all", lambda t: t.max())
    yield ("max of two", lambda a, b: torch.max(a, b), (x, y), [None, None])
    yield ("min of two", lambda a, b: torch.min(a, b), (x, y), [None, None])
    yield one("median", lambda t: t.median(1).values)
    yield one("kthvalue", lambda t: t.kthvalue(2, 1).values)
    yield one("var", lambda t: t.var(1, keepdim=True))
    yield one("std of all", lambda t: t.std())
    yield one("var_mean", lambda t: torch.var_mean(t, 2)[0])
    yield one("prod", lambda t: t.prod(1))
    yield one("tril", lambda t: t.tril(1))
    yield one("diagonal", lambda t: t.diagonal(0, 0, 2))
    yield one("repeat", lambda t: t.repeat(2, 1, 3, 1))
    yield one("tile", lambda t: t.tile(2, 1))
    yield one("repeat_interleave", lambda t: t.repeat_interleave(2, 1))
    yield ("expand", lambda t: t.expand(3, 4, -1, 8), (values(6, 1),), [[0, None]])
    yield ("expand to more dimensions", lambda t: t.expand(2, 3, -1, -1, -1), (x,), [None])
    yield one("unfold", lambda t: t.unfold(2, 3, 2))
    yield one("pad", lambda t: F.pad(t, (1, 2, 0, 1)))
    yield one("T", lambda t: t.mT @ t[0])
    yield one("movedim", lambda t: t.movedim(0, 2).moveaxis((0, 1), (1, 0)))
    yield one("view_as", lambda t: t.reshape(4, 48).view_as(t.reshape(8, 24).reshape(4, 48)))
    yield one("squeeze", lambda t: t.unsqueeze(1).squeeze(1).unflatten(2, (4, 2)).flatten(0, 1))
    yield one("stack", lambda t: torch.stack([t, t * 2], 1))
    yield one("new_zeros", lambda t: t + t.new_zeros(4, 6, 8) + t.new_ones((6, 8)) + t.new_full((4, 6, 8), 0.5))
    yield one("a tensor twice", lambda t: torch.einsum("abc,abd->cd", t, t) + (t * t).sum())
    yield one("glu", lambda t: F.glu(t, 1))
    yield one("where", lambda t: torch.where(t > 0, t, t * 3))
    yield one("normalize", lambda t: F.normalize(t, dim=2))
    matrices = (values(6, 8), values(8, 4, seed=1))
    batched = (values(4, 6, 8), values(4, 8, 2, seed=1))
    yield ("mm", torch.mm, matrices, [None, None])
    yield ("bmm", torch.bmm, batched, [None, None])
    yield ("mv", torch.mv, (values(6, 8), values(8, seed=1)), [None, None])
    yield ("dot", torch.dot, (values(8), values(8, seed=1)), [None, None])
    yield ("outer", torch.outer, (values(6), values(8, seed=1)), [None, None])
    yield ("addmm", lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2.0), (values(4, seed=3), *matrices), [None, None, None])
    yield ("baddbmm", lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5, alpha=2.0), (values(4, 6, 2, seed=3), *batched), [None, None, None])
    yield ("baddbmm broadcast", torch.baddbmm, (values(1, 6, 2, seed=3), *batched), [[1, 2], None, None])
    yield ("einsum", lambda a, b: torch.einsum("bIj,bjK->bIK", a, b), batched, [None, None])
    yield ("einsum without an arrow", lambda a, b: torch.einsum("ij,jk", a, b), matrices, [None, None])
    yield ("einsum with an ellipsis", lambda a, b: torch.einsum("...ij,...jk->...ik", a, b), batched, [None, None])
    yield ("einsum that sums", lambda a: torch.einsum("abc->b", a), (x,), [None])
    image, kernel, bias = values(4, 4, 6, 6), values(8, 4, 3, 3, seed=1), values(8, seed=2)
    yield ("conv2d", lambda i, k, b: F.conv2d(i, k, b, padding=1), (image, kernel, bias), [None, [0, 1, 2], None])
    yield ("conv2d without a bias", lambda i, k: F.conv2d(i, k, stride=2), (image, kernel), [None, [0, 1]])
    yield ("conv2d in groups", lambda i, k: F.conv2d(i, k, groups=2), (image, values(8, 2, 3, 3)), [None, [0, 1]])
    yield ("conv2d of one image", lambda i, k, b: F.conv2d(i, k, b), (image[0], kernel, bias), [[0, 1], [0], None])
    yield ("conv1d", lambda i, k, b: F.conv1d(i, k, b), (values(4, 4, 8), values(6, 4, 3), values(6)), [None, None, None])
    yield ("conv3d", lambda i, k, b: F.conv3d(i, k, b), (values(2, 2, 4, 4, 4), values(4, 2, 3, 3, 3), values(4)), [[0, 1, 2], [0, 1], None])
    yield ("conv_transpose2d", lambda i, k, b: F.conv_transpose2d(i, k, b), (image, values(4, 6, 3, 3), values(6)), [None, [0, 1], None])
    yield ("max_pool2d", lambda i: F.max_pool2d(i, 2), (image,), [None])
    yield ("avg_pool2d", lambda i: F.avg_pool2d(i, 2), (image,), [None])
    yield ("adaptive_avg_pool2d", lambda i: F.adaptive_avg_pool2d(i, 1).flatten(1), (image,), [None])
    yield ("group_norm", lambda i, w, b: F.group_norm(i, 2, w, b), (image, values(4), values(4, seed=1)), [None, None, None])
    vectors = (values(4), values(4, seed=1))
    running = lambda t: (placed(values(4, seed=6), mesh, t), placed(values(4, seed=7).abs() + 0.5, mesh, t))
    yield ("batch_norm", lambda i, w, b: F.batch_norm(i, None, None, w, b, True), (image, *vectors), [None, None, None])
    yield ("batch_norm of vectors", lambda i: F.batch_norm(i, None, None, training=True), (values(8, 4),), [None])
    yield ("batch_norm in evaluation", lambda i, w, b: F.batch_norm(i, *running(i), w, b), (image, *vectors), [None, None, None])
    yield ("instance_norm", lambda i, w, b: F.instance_norm(i, None, None, w, b), (image, *vectors), [None, None, None])
    query, key, value = values(4, 4, 6, 8), values(4, 4, 5, 8, seed=1), values(4, 4, 5, 8, seed=2)
    attention, mask = F.scaled_dot_product_attention, values(4, 4, 6, 5, seed=3)
    allowed = mask[:, :1] > -0.5
    yield ("attention with a mask", lambda q, k, m: attention(q, k, k * 2, m), (query, key, mask), [None, [0, 1, 2], None])
    yield ("attention with a mask of positions", lambda q, m: attention(q, q, q, m), (query, values(6, 6)), [None, None])
    yield ("attention with a mask of booleans", lambda q, k, v: attention(q, k, v, placed(allowed, mesh, q)), (query, key, value), [None, [0, 1], None])
    yield ("attention with shared keys", lambda q, k, v: attention(q, k, v, is_causal=True, enable_gqa=True), (query, key[:, :2], value[:, :2]), [None, [0, 1], None])
    yield ("cdist", torch.cdist, (x, values(4, 5, 8, seed=1)), [None, None])
    yield ("cdist broadcast", lambda a, b: torch.cdist(a, b, p=1.0), (values(4, 6, 8), values(5, 8, seed=1)), [None, None])
    yield ("pdist", torch.pdist, (values(6, 8),), [None])
    yield ("interpolate", lambda i: F.interpolate(i, scale_factor=2.0), (image,), [None])
    yield ("l1_loss", lambda a, b: F.l1_loss(a, b), (x, y), [None, None])
    yield ("smooth_l1_loss", lambda a, b: F.smooth_l1_loss(a, b, reduction="sum"), (x, z), [None, None])
    yield ("binary_cross_entropy_with_logits", lambda a, b: F.binary_cross_entropy_with_logits(a, b.sigmoid()), (x, y), [None, None])
    yield ("cholesky", lambda a: torch.linalg.cholesky(a @ a.mT + 20 * placed(torch.eye(6), mesh, a)), (values(6, 6),), [None])
    # Of products of sines alone, most singular values are zero.
    yield ("svd", lambda a: torch.linalg.svd(a, full_matrices=False)[1], (values(6, 4) + torch.diag(torch.arange(2.0, 6.0)).repeat(2, 1)[:6],), [None])


def parts_of(tensors, placements, mesh):
    """Leaves placed so. Parts of a sum differ between ranks."""
    found = []
    for t, p in zip(tensors, placements):
        if p.is_partial():
            share = (RANK + 1) * 2 / (SIZE * (SIZE + 1))
            found.append(DTensor.from_local(t * share, mesh, [p]).requires_grad_())
        else:
            found.append(dtensor.distribute_tensor(t, mesh, [p]).requires_grad_())
    return found


def all_placements():
    """Every op, every placement of its first input with the others replicated or placed alike, then each of the others."""
    dist.init_process_group(BACKEND)
    mesh = init_device_mesh(KIND, (SIZE,))
    count = 0
    for name, function, tensors, dims in cases(mesh):
        whole = [t.clone().requires_grad_() for t in tensors]
        expected = function(*whole)
        weights = values(*expected.shape, seed=9)
        (expected * weights).sum().backward()
        options = []
        for t, tried in zip(tensors, dims):
            sharded = [Shard(d) for d in (range(t.dim()) if tried is None else tried) if d is not None and d < t.dim()]
            options.append([Replicate(), *sharded, Partial()])
        # Two inputs in all combinations; of three, the third is replicated or has one other placement.
        options = options[:2] + [[o[0], o[-2]] for o in options[2:]]
        for placements in itertools.product(*options):
            what = f"{name} {placements}"
            parts = parts_of(tensors, placements, mesh)
            result = function(*parts)
            full = result.full_tensor()
            (full * weights).sum().backward()
            assert isinstance(result, DTensor) and tuple(result.shape) == tuple(expected.shape), (what, result.shape)
            same(full.detach(), expected.detach(), what, 1e-5)
            for i, (part, t) in enumerate(zip(parts, whole)):
                same(part.grad.full_tensor(), t.grad, f"gradient {i} of {what}", 1e-5)
            count += 1
    assert count > 1000, count
    dist.destroy_process_group()


def placements_of_results():
    """Ops keep shards where they can: results of rules that gather would be replicated."""
    dist.init_process_group(BACKEND)
    mesh = init_device_mesh(KIND, (SIZE,))
    S0, S1, S2, R, P = Shard(0), Shard(1), Shard(2), Replicate(), Partial()
    x = lambda p: parts_of([values(4, 6, 8)], [p], mesh)[0].detach()
    index = lambda p=R: dtensor.distribute_tensor(INDEX, mesh, [p])
    rows = lambda p=R: dtensor.distribute_tensor(ROWS, mesh, [p])
    image, kernel = dtensor.distribute_tensor(values(4, 4, 6, 6), mesh, [S0]), dtensor.distribute_tensor(values(8, 4, 3, 3), mesh, [R])
    for what, result, expected in [
        ("int", x(S1)[0], S0), ("slice", x(S0)[:, 1:3], S0), ("a sharded dimension", x(S0)[0], R), ("parts of a sum", x(P)[0], P),
        ("index", x(S2)[:, rows()], S2), ("sharded index", x(R)[:, rows(S0)], S1), ("None", x(S1)[None], S2),
        ("narrow", x(S0).narrow(1, 0, 2), S0), ("unbind", x(S2).unbind(0)[1], S1), ("gather", x(S1).gather(0, index(S1)), S1),
        ("index along itself", x(R).gather(0, index(S0)), S0), ("scatter", x(S2).scatter(0, index(), 1.0), S2), ("topk", x(S0).topk(2, 1)[1], S0),
        ("sort", x(S2).sort(2)[0], R), ("cumsum", x(P).cumsum(0), P), ("max", x(S2).max(0).indices, S1), ("repeat", x(S1).repeat(2, 1, 1, 1), S2),
        ("expand", x(S0).expand(2, 4, 6, 8), S1), ("new of its size", x(S1).new_zeros(4, 6, 8), S1), ("new of another", x(S1).new_zeros(4, 6), R),
        ("conv2d", F.conv2d(image, kernel), S0), ("channels", F.conv2d(image.redistribute(placements=[S1]), kernel.redistribute(placements=[S1])), P),
        ("kernels", F.conv2d(image.redistribute(placements=[R]), kernel.redistribute(placements=[S0])), S1),
        ("einsum", torch.einsum("abc,dc->abd", x(S2), dtensor.distribute_tensor(values(3, 8), mesh, [S1])), P),
        ("T", x(S2).mT, S1), ("max_pool2d", F.max_pool2d(image, 2), S0),
    ]:
        assert result.placements == (expected,), (what, result.placements, expected)
    # A target is changed in its parts.
    t, other = x(S1).clone(), values(4, 6, 8)
    t[1] = dtensor.distribute_tensor(values(6, 8, seed=4), mesh, [R])
    t[:, :, 2:4] = 0.5
    t[2, :, 0] = dtensor.distribute_tensor(values(1, seed=5), mesh, [R])[0]
    other[1], other[:, :, 2:4], other[2, :, 0] = values(6, 8, seed=4), 0.5, values(1, seed=5)[0]
    same(t.full_tensor(), other, "assigned")
    t[t > 0.5], other[other > 0.5] = -1.0, -1.0
    same(t.full_tensor(), other, "assigned by a mask")
    for wrong, words in [
        (lambda: x(S0)[x(S0) > 0], "mask"), (lambda: x(S0).nonzero(), "full_tensor"), (lambda: t.__setitem__((slice(None), 0), 1.0), "redistribute"),
        (lambda: F.ctc_loss(x(S0), rows(), rows(), rows()), "ctc_loss"), (lambda: x(S0).masked_select(x(S0) > 0), "full_tensor"), (lambda: x(P).uniform_(), "redistribute"),
    ]:
        try:
            wrong()
        except NotImplementedError as error:
            assert words in str(error), error
        else:
            raise AssertionError(words)
    try:
        x(S0).sum(3)
        raise AssertionError("a dimension out of range")
    except IndexError as error:
        assert "sum" in str(error)
    dist.destroy_process_group()


def normalised():
    """A batch norm whose batch is sharded takes the values of the whole batch, and keeps its running values on all ranks."""
    dist.init_process_group(BACKEND)
    mesh = init_device_mesh(KIND, (SIZE,))
    for momentum in (0.1, None):
        whole = torch.nn.BatchNorm2d(4, momentum=momentum)
        split = dtensor.distribute_module(torch.nn.BatchNorm2d(4, momentum=momentum), mesh)
        for step in range(3):
            image = values(max(4, SIZE), 4, 6, 6, seed=step) * (step + 1)
            expected = whole(image)
            result = split(dtensor.distribute_tensor(image, mesh, [Shard(0)]))
            same(result.full_tensor().detach(), expected.detach(), "a batch")
        assert result.placements == (Shard(0),)
        for name, buffer in whole.named_buffers():
            same(split.get_buffer(name).full_tensor().float(), buffer.float(), name)
        same(split.eval()(dtensor.distribute_tensor(image, mesh, [Shard(2)])).full_tensor().detach(), whole.eval()(image).detach(), "evaluation")
    # Values of channels that are split stay so.
    mean, var = (dtensor.distribute_tensor(t, mesh, [Shard(0)]) for t in (torch.zeros(4), torch.ones(4)))
    F.batch_norm(dtensor.distribute_tensor(image, mesh, [Shard(1)]), mean, var, training=True)
    plain = (torch.zeros(4), torch.ones(4))
    F.batch_norm(image, *plain, training=True)
    assert mean.placements == (Shard(0),)
    same(mean.full_tensor(), plain[0], "a split running mean")
    same(var.full_tensor(), plain[1], "a split running variance")
    half = F.batch_norm(dtensor.distribute_tensor(image.bfloat16(), mesh, [Shard(0)]), None, None, training=True)
    assert half.dtype == torch.bfloat16
    same(half.full_tensor().float(), F.batch_norm(image.bfloat16(), None, None, training=True).float(), "bfloat16", 2e-2)
    dist.destroy_process_group()


def dropped():
    """Replicas drop the same elements, those of one process with rank 0's seed; shards drop by their own generators."""
    dist.init_process_group(BACKEND)
    mesh = init_device_mesh(KIND, (SIZE,))
    x = torch.ones(8, 256)
    torch.manual_seed(7)
    expected = F.dropout(x, 0.25)
    torch.manual_seed(7 + 11 * RANK)
    replicated = dtensor.distribute_tensor(x, mesh, [Replicate()]).requires_grad_()
    y = F.dropout(replicated, 0.25)
    assert torch.equal(y.to_local().detach(), expected) and y.placements == (Replicate(),)
    y.full_tensor().sum().backward()
    assert torch.equal(replicated.grad.to_local(), expected)
    part = DTensor.from_local(x / SIZE, mesh, [Partial()])
    y = F.dropout(part, 0.5)
    assert y.placements == (Partial(),) and set(y.full_tensor().unique().tolist()) <= {0.0, 2.0}
    sharded = dtensor.distribute_tensor(x, mesh, [Shard(1)]).requires_grad_()
    y = F.dropout(sharded, 0.25)
    assert y.placements == (Shard(1),)
    whole = y.full_tensor()
    whole.sum().backward()
    assert torch.equal(sharded.grad.full_tensor(), whole.detach())
    kept = (whole != 0).float().mean().item()
    assert 0.6 < kept < 0.9, kept
    assert F.dropout(replicated, 0.25, training=False) is replicated
    dist.destroy_process_group()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
