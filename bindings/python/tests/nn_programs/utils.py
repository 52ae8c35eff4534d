"""``nn.utils``, ``nn.init`` and the errors of layers."""

import copy
import pickle

from . import submodule

def clipping_gradients(torch, nn, T, fill, show, err):
    ps = [nn.Parameter(T(3)), nn.Parameter(T(2, 2)), nn.Parameter(T(1))]
    ps[0].grad = T(3, shift=1) * 5
    ps[1].grad = T(2, 2, shift=2) * 5
    show(nn.utils.clip_grad_norm_(ps, 1.0))
    show(ps[0].grad, ps[1].grad)
    show(nn.utils.clip_grad_norm_(iter(ps), 0.5, norm_type=float("inf")))
    show(ps[0].grad)
    show(nn.utils.get_total_norm([p.grad for p in ps[:2]], 1.0))
    nn.utils.clip_grad_value_(ps, 0.1)
    show(ps[0].grad)
    show(nn.utils.clip_grad_norm_([], 1.0))
    ps[0].grad = ps[0].grad * float("nan")
    err(lambda: nn.utils.clip_grad_norm_(ps, 1.0, error_if_nonfinite=True))
    show(nn.utils.clip_grad_norm_(ps[1], 0.001, 3))
    show(ps[1].grad)


def parameters_as_a_vector(torch, nn, T, fill, show, err):
    l = fill(nn.Linear(2, 3))
    v = nn.utils.parameters_to_vector(l.parameters())
    show(v)
    nn.utils.vector_to_parameters(v * 2, l.parameters())
    show(l.weight, l.bias)
    print(type(l.weight).__name__)


def weight_norm(torch, nn, T, fill, show, err):
    l = fill(nn.Linear(3, 2))
    w0 = l.weight.detach().clone()
    nn.utils.weight_norm(l)
    print(list(l.state_dict()), l)
    show(l(T(2, 3)), l.weight_g)
    l(T(2, 3)).sum().backward()
    show(l.weight_g.grad, l.weight_v.grad)
    nn.utils.remove_weight_norm(l)
    print(list(l.state_dict()))
    show(l.weight - w0)
    err(lambda: nn.utils.remove_weight_norm(l))
    l = fill(nn.Conv1d(2, 3, 2))
    nn.utils.weight_norm(l, dim=None)
    show(l.weight_g, l(T(1, 2, 4)))


def parametrized_weight_norm(torch, nn, T, fill, show, err):
    parametrize = nn.utils.parametrize
    parametrizations = nn.utils.parametrizations
    l = fill(nn.Linear(3, 2))
    parametrizations.weight_norm(l)
    print(l, list(l.state_dict()))
    show(l(T(2, 3)), l.parametrizations.weight.original0)
    l(T(2, 3)).sum().backward()
    show(l.parametrizations.weight.original1.grad)
    l.load_state_dict({"weight_g": T(2, 1), "weight_v": T(2, 3), "bias": T(2)})
    show(l.weight)
    c = copy.deepcopy(l)
    show(c.weight - l.weight)
    err(lambda: pickle.dumps(l), text=False)
    parametrize.remove_parametrizations(l, "weight")
    print(l, list(l.state_dict()), type(l.weight).__name__)
    show(l.weight)


def parametrize(torch, nn, T, fill, show, err):
    parametrize = nn.utils.parametrize
    class Sym(nn.Module):

        def forward(self, x):
            return x.triu() + x.triu(1).transpose(-1, -2)

        def right_inverse(self, a):
            return a.triu()
    class Exp(nn.Module):

        def forward(self, x):
            return x.exp()
    l = fill(nn.Linear(3, 3))
    pid = l.weight
    parametrize.register_parametrization(l, "weight", Sym())
    print(l, parametrize.is_parametrized(l), parametrize.is_parametrized(l, "bias"), l.parametrizations.weight.original is pid, type(l).__name__, parametrize.type_before_parametrizations(l).__name__)
    show(l.weight)
    l.weight = T(3, 3) + T(3, 3).T
    show(l.weight, l.parametrizations.weight.original)
    l(T(1, 3)).sum().backward()
    show(l.parametrizations.weight.original.grad)
    parametrize.register_parametrization(l, "weight", Exp())
    show(l.weight)
    parametrize.register_parametrization(l, "bias", Exp())
    show(l.bias)
    print([n for n, _ in l.named_parameters()])
    with parametrize.cached():
        print(l.weight is l.weight)
    print(l.weight is l.weight)
    parametrize.remove_parametrizations(l, "weight", leave_parametrized=False)
    show(l.weight)
    print(l)
    parametrize.remove_parametrizations(l, "bias")
    print(type(l).__name__)
    show(l.bias)
    err(lambda: parametrize.register_parametrization(l, "foo", Sym()))
    err(lambda: parametrize.remove_parametrizations(l, "weight"))
    class Shape(nn.Module):

        def forward(self, x):
            return x[:1]
    err(lambda: parametrize.register_parametrization(nn.Linear(2, 2), "weight", Shape()))


def orthogonal(torch, nn, T, fill, show, err):
    parametrizations = nn.utils.parametrizations
    for n, k, m in ((3, 3, None), (4, 2, None), (2, 4, None), (3, 3, "cayley"), (4, 2, "matrix_exp"), (3, 3, "householder")):
        for triv in (True, False):
            l = fill(nn.Linear(k, n, bias=False))
            parametrizations.orthogonal(l, orthogonal_map=m, use_trivialization=triv)
            w = l.weight
            g = w.T @ w if n >= k else w @ w.T
            print(n, k, m, triv, bool((g - torch.eye(min(n, k), dtype=g.dtype)).abs().max() < 1e-09))
            if not triv:
                show(w)
                (w * T(*w.shape)).sum().backward()
                show(l.parametrizations.weight.original.grad)
            q = torch.linalg.qr(T(max(n, k), min(n, k), shift=3))[0]
            q = q if n >= k else q.T
            if triv:
                l.weight = q
                show(l.weight - q)


def spectral_norm(torch, nn, T, fill, show, err):
    parametrizations = nn.utils.parametrizations
    for f in (nn.utils.spectral_norm, parametrizations.spectral_norm):
        l = f(fill(nn.Linear(4, 3)))
        for _ in range(60):
            y = l(T(2, 4))
        show(torch.linalg.matrix_norm(l.weight.detach(), 2))
        y.sum().backward()
        l.eval()
        show(l(T(2, 4)))
        print(list(l.state_dict()), [n for n, _ in l.named_parameters()])
    l = nn.utils.spectral_norm(fill(nn.ConvTranspose2d(2, 3, 2)))
    print(l.weight_u.shape, l.weight_v.shape)
    nn.utils.remove_spectral_norm(l)
    print(list(l.state_dict()))


def fusion(torch, nn, T, fill, show, err):
    conv = fill(nn.Conv2d(2, 3, 2))
    bn = fill(nn.BatchNorm2d(3))
    bn.running_mean.copy_(T(3))
    bn.running_var.copy_(T(3).abs() + 0.5)
    conv.eval()
    bn.eval()
    x = T(1, 2, 4, 4)
    show((nn.utils.fuse_conv_bn_eval(conv, bn)(x) - bn(conv(x))).abs().max() < 1e-12)
    lin = fill(nn.Linear(2, 3)).eval()
    bn1 = fill(nn.BatchNorm1d(3)).eval()
    show((nn.utils.fuse_linear_bn_eval(lin, bn1)(T(4, 2)) - bn1(lin(T(4, 2)))).abs().max() < 1e-12)
    ct = fill(nn.ConvTranspose2d(2, 3, 2)).eval()
    show((nn.utils.fuse_conv_bn_eval(ct, bn, transpose=True)(x) - bn(ct(x))).abs().max() < 1e-12)


def functional_call(torch, nn, T, fill, show, err):
    stateless = nn.utils.stateless
    net = fill(nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1)))
    params = {k: (v.detach() * 2).requires_grad_() for k, v in net.named_parameters()}
    y = torch.func.functional_call(net, params, (T(3, 2),))
    show(y)
    y.sum().backward()
    show(params["0.weight"].grad)
    print(net[0].weight.grad, type(net[0].weight).__name__)
    show(stateless.functional_call(net, {"0.bias": T(2)}, T(1, 2)))
    err(lambda: stateless.functional_call(net, {"foo": T(2)}, T(1, 2), strict=True), text=False)


def sequences_of_different_lengths(torch, nn, T, fill, show, err):
    rnn = nn.utils.rnn
    seqs = [T(3, 2), T(1, 2, shift=1), T(2, 2, shift=2)]
    show(rnn.pad_sequence(seqs), rnn.pad_sequence(seqs, batch_first=True, padding_value=9.0, padding_side="left"))
    p = rnn.pack_sequence(seqs, enforce_sorted=False)
    print(p.batch_sizes, p.sorted_indices, p.unsorted_indices)
    show(p.data)
    pad, ln = rnn.pad_packed_sequence(p, batch_first=True)
    show(pad)
    print(ln)
    print([tuple(u.shape) for u in rnn.unpack_sequence(p)])
    print(p.float().data.dtype, isinstance(p, tuple))
    err(lambda: rnn.pack_sequence(seqs))
    err(lambda: rnn.pack_padded_sequence(T(3, 2), [3, 4]))
    err(lambda: rnn.pack_padded_sequence(T(3, 2), [3, 0]))
    err(lambda: rnn.pack_padded_sequence(T(3, 2), [3]))
    show(rnn.pack_padded_sequence(T(3, 2), torch.tensor([3, 2])).data)
    print(rnn.unpad_sequence(T(3, 2), torch.tensor([3, 2])))
    g = fill(nn.GRU(2, 3, 2, bidirectional=True))
    o, h = g(p)
    show(o.data, h)
    err(lambda: g(T(3, 2, 5)))
    err(lambda: g(T(3, 2, 2), T(1, 2, 3)))
    err(lambda: nn.GRU(2, 3, proj_size=1))
    err(lambda: nn.LSTM(2, 0))
    err(lambda: nn.RNN(2, 3, nonlinearity="x"))
    print([tuple(w.shape) for ws in g.all_weights for w in ws], len(g._flat_weights))
    lc = nn.LSTMCell(2, 3)
    print(lc, nn.RNNCell(2, 3, nonlinearity="relu", bias=False))
    err(lambda: lc(T(1, 1, 2)))


def skip_init(torch, nn, T, fill, show, err):
    print(nn.utils.skip_init(nn.Linear, 3, 4))
    err(lambda: nn.utils.skip_init(nn.ReLU))


def attention_errors(torch, nn, T, fill, show, err):
    a = fill(nn.MultiheadAttention(4, 2))
    err(lambda: a(T(3, 2, 5), T(3, 2, 5), T(3, 2, 5)))
    err(lambda: nn.MultiheadAttention(5, 2))
    err(lambda: a(T(3, 2, 4), T(3, 2, 4), T(3, 2, 4), is_causal=True), text=False)
    err(lambda: a(T(3, 2, 4), T(3, 2, 4), T(3, 2, 4), attn_mask=T(2, 2)), text=False)


def init_errors(torch, nn, T, fill, show, err):
    err(lambda: nn.init.xavier_uniform_(torch.empty(3)))
    err(lambda: nn.init.kaiming_normal_(torch.empty(3, 3), mode="x"))
    err(lambda: nn.init.orthogonal_(torch.empty(3)))
    err(lambda: nn.init.calculate_gain("x"))
    err(lambda: nn.init.eye_(torch.empty(3)))
    err(lambda: nn.init.dirac_(torch.empty(3, 3)))
    err(lambda: nn.init.sparse_(torch.empty(3), 0.1))
    print((nn.init.sparse_(torch.empty(10, 4), 0.25) == 0).sum(0).tolist())


def layer_errors(torch, nn, T, fill, show, err):
    err(lambda: nn.Conv2d(3, 4, 3, groups=2))
    err(lambda: nn.Conv2d(3, 4, 3, padding="foo"), text=False)
    err(lambda: nn.Conv2d(3, 4, 3, padding="same", stride=2))
    err(lambda: nn.Conv2d(2, 2, 3, padding_mode="x"), text=False)
    err(lambda: nn.Dropout(2.0))
    err(lambda: nn.BatchNorm1d(2)(T(2)))
    err(lambda: nn.BatchNorm2d(2)(T(2, 2)))
    err(lambda: nn.GroupNorm(2, 3))
    err(lambda: nn.Embedding(3, 2, padding_idx=5))
    err(lambda: nn.ConvTranspose2d(1, 1, 2, padding_mode="reflect"))
    err(lambda: nn.ConvTranspose2d(1, 1, 3, stride=2)(torch.ones(1, 1, 3, 3), output_size=[20, 20]))
    err(lambda: nn.Softmax2d()(T(2)))
    err(lambda: nn.FractionalMaxPool2d(2))
    err(lambda: nn.Unflatten(1, 3))
    err(lambda: nn.InstanceNorm1d(2)(T(2)))
    err(lambda: nn.MultiMarginLoss(3))
    err(lambda: nn.TripletMarginLoss(-1))
    err(lambda: nn.AdaptiveLogSoftmaxWithLoss(3, 5, [7]))
    err(lambda: nn.EmbeddingBag(3, 2)(torch.tensor([1, 2])))


def tables_and_losses(torch, nn, T, fill, show, err):
    e = nn.Embedding.from_pretrained(T(4, 2), padding_idx=1)
    print(e, e.weight.requires_grad)
    show(e(torch.tensor([0, 3])))
    eb = nn.EmbeddingBag.from_pretrained(T(4, 2), mode="max")
    print(eb)
    show(eb(torch.tensor([0, 1, 2, 3]), torch.tensor([0, 0, 3])))
    tm = nn.TripletMarginWithDistanceLoss(distance_function=lambda x, y: (x - y).abs().sum(1), margin=2.0, swap=True)
    show(tm(T(3, 2), T(3, 2, shift=1), T(3, 2, shift=2)))
    show(nn.Transformer.generate_square_subsequent_mask(3))
    dp = nn.DataParallel(fill(nn.Linear(2, 1)))
    show(dp(T(1, 2)))
    for red in ("none", "sum"):
        show(nn.MSELoss(reduction=red)(T(2), T(2, shift=1)))
    show(nn.MSELoss(size_average=False)(T(2), T(2, shift=1)), nn.L1Loss(reduce=False)(T(2), T(2, shift=1)))


def prune(torch, nn, T, fill, show, err):
    prune = submodule(torch, "nn.utils.prune")
    l = fill(nn.Linear(4, 3))
    prune.l1_unstructured(l, "weight", 0.4)
    print(l, list(l.state_dict()), [n for n, _ in l.named_parameters()])
    show(l.weight, l.weight_mask, l(T(2, 4)))
    l(T(2, 4)).sum().backward()
    show(l.weight_orig.grad)
    prune.ln_structured(l, "weight", 1, 2, dim=0)
    show(l.weight)
    prune.ln_structured(l, "weight", 0.5, n=float("inf"), dim=1)
    show(l.weight, l.weight_mask)
    print(prune.is_pruned(l), len(next(iter(l._forward_pre_hooks.values()))))
    prune.remove(l, "weight")
    print(prune.is_pruned(l), list(l.state_dict()))
    show(l.weight)
    err(lambda: prune.remove(l, "weight"))
    m = fill(nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)))
    prune.global_unstructured([(m[0], "weight"), (m[1], "weight")], pruning_method=prune.L1Unstructured, amount=5)
    show(m[0].weight, m[1].weight)
    prune.random_unstructured(m[0], "bias", 2)
    print(int((m[0].bias == 0).sum()))
    prune.random_structured(m[1], "weight", 1, 0)
    print(int((m[1].weight.abs().sum(1) == 0).sum()) >= 1)
    prune.custom_from_mask(m[1], "bias", torch.tensor([0, 1]))
    show(m[1].bias)
    prune.identity(nn.Linear(2, 2), "weight")
    err(lambda: prune.l1_unstructured(nn.Linear(2, 2), "weight", 1.5))
    err(lambda: prune.l1_unstructured(nn.Linear(2, 2), "weight", 10))
    err(lambda: prune.ln_structured(nn.Linear(2, 2), "bias", 1, 2, 0))
    err(lambda: prune.l1_unstructured(nn.Linear(2, 2), "weight", "x"))
    bad = nn.Linear(2, 2)
    err(lambda: prune.l1_unstructured(bad, "weight", 10))
    print(list(bad.state_dict()), type(bad.weight).__name__)


def prefixes_of_state_dicts(torch, nn, T, fill, show, err):
    sd = nn.DataParallel(nn.Linear(2, 1)).state_dict()
    submodule(torch, "nn.modules.utils").consume_prefix_in_state_dict_if_present(sd, "module.")
    print(list(sd), dict(sd._metadata))


def gradients_of_convolutions(torch, nn, T, fill, show, err):
    G = submodule(torch, "nn.grad")
    x = T(1, 2, 4, 4)
    w = T(3, 2, 3, 3)
    g = T(1, 3, 2, 2)
    show(G.conv2d_input(x.shape, w, g), G.conv2d_weight(x, w.shape, g))
