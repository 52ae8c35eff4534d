"""Modules: what they compute, print, register and refuse."""

import collections
import copy
import pickle

def scaled_net(nn, T):
    """A model with a shared module, buffers and parameters of all kinds."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(2, 3)
            self.b = self.a
            self.register_buffer("buf", T(2))
            self.register_buffer("tmp", T(1), persistent=False)
            self.p = nn.Parameter(T(3))
            self.none = None
            self.register_parameter("q", None)
            self.list = [1]

        def forward(self, x, scale=1.0):
            return self.a(x) * scale + self.p

    return Net()


def fractional_pooling(torch, nn, T, fill, show, err):
    for dims in (2, 3):
        x = T(2, 2, *[7] * dims).requires_grad_()
        s = T(2, 2, dims).abs() * 0.9
        y, i = getattr(nn, f'FractionalMaxPool{dims}d')(2, output_size=4, return_indices=True, _random_samples=s)(x)
        show(y, i)
        y.sum().backward()
        show(x.grad)
    y = nn.FractionalMaxPool2d(3, output_ratio=0.5)(T(1, 2, 9, 8))
    show(tuple(y.shape))


def adaptive_max_pooling_of_volumes(torch, nn, T, fill, show, err):
    x = T(2, 5, 4, 7).requires_grad_()
    y, i = nn.AdaptiveMaxPool3d((2, None, 3), return_indices=True)(x)
    show(y, i)
    y.sum().backward()
    show(x.grad)


def lp_pooling(torch, nn, T, fill, show, err):
    show(nn.LPPool3d(3, 2)(T(1, 1, 4, 4, 4)), nn.LPPool2d(2, (2, 3), stride=1)(T(1, 1, 4, 4)), nn.LPPool1d(2, 2, ceil_mode=True)(T(1, 1, 5)))


def max_unpooling_of_volumes(torch, nn, T, fill, show, err):
    p, i = nn.MaxPool3d(2, return_indices=True)(T(1, 2, 4, 4, 4))
    show(nn.MaxUnpool3d(2)(p, i))
    show(nn.MaxUnpool3d(2)(p, i, output_size=(1, 2, 5, 5, 5)))


def local_response_norms(torch, nn, T, fill, show, err):
    show(nn.LocalResponseNorm(3)(T(1, 5, 2, 2)), nn.CrossMapLRN2d(3, 0.1)(T(1, 5, 2, 2).float()), nn.CrossMapLRN2d(5, 0.1)(T(2, 9, 2, 2).float()))


def adaptive_softmax(torch, nn, T, fill, show, err):
    m = fill(nn.AdaptiveLogSoftmaxWithLoss(8, 12, [3, 6], div_value=2.0, head_bias=True))
    o = m(T(6, 8), torch.tensor([0, 2, 4, 5, 7, 11]))
    show(o.output, o.loss, m.log_prob(T(2, 8)), m.predict(T(6, 8)))
    o.loss.backward()
    show(m.tail[0][0].weight.grad)
    print(m)


def containers(torch, nn, T, fill, show, err):
    pl = nn.ParameterList([T(2), nn.Parameter(T(3)), 5])
    print(pl, len(pl))
    pl.append(T(1))
    pl += [T(2)]
    print([n for n, _ in pl.named_parameters()], pl[-1].shape, len(pl[1:3]))
    pd = nn.ParameterDict({"a": T(2), "b": T(2, 3)})
    print(pd)
    pd["c"] = T(1)
    del pd["a"]
    print(list(pd), [n for n, _ in pd.named_parameters()], "c" in pd, pd.pop("c").shape, list(pd.keys()))
    ml = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)] + [nn.ReLU()])
    print(ml)
    ml.insert(1, nn.Tanh())
    print(ml)
    del ml[0]
    print(len(ml), ml[-1], [n for n, _ in ml.named_modules()])
    ml.extend([nn.Sigmoid()])
    print(ml[1:3])
    print(ml.pop(0))
    md = nn.ModuleDict({"x": nn.Linear(1, 1)})
    md["y"] = nn.ReLU()
    md.update([["z", nn.Tanh()]])
    print(md, list(md.keys()), len(md))
    del md["x"]
    print(list(md.items()))
    sq = nn.Sequential(collections.OrderedDict(a=nn.Linear(2, 3), b=nn.ReLU()))
    print(sq, sq[0], sq[:1], sq.a)
    sq.append(nn.Tanh())
    print([n for n, _ in sq.named_children()])
    print(nn.Sequential(nn.ReLU()) + nn.Sequential(nn.Tanh()), nn.Sequential(nn.ReLU()) * 2)
    err(lambda: ml[10])
    err(lambda: nn.Sequential(3), text=False)
    err(lambda: nn.ModuleList(5))
    err(lambda: nn.ModuleList([nn.ReLU()])(1))
    err(lambda: pl(1))


def module_attributes(torch, nn, T, fill, show, err):
    n = scaled_net(nn, T)
    print(n)
    print(list(n.state_dict()), dict(n.state_dict()._metadata))
    print([k for k, _ in n.named_parameters()], [k for k, _ in n.named_parameters(remove_duplicate=False)], [k for k, _ in n.named_buffers()])
    print([k for k, _ in n.named_modules()], [k for k, _ in n.named_children()], len(list(n.modules())))
    err(lambda: setattr(n, "a", 3), text=False)
    err(lambda: setattr(n, "p", T(2)))
    err(lambda: setattr(n, "buf", 3), text=False)
    err(lambda: n.nothing)
    err(lambda: n.register_buffer("a.b", T(1)))
    err(lambda: n.register_buffer("a", T(1)))
    err(lambda: n.register_parameter("zz", T(1)))
    err(lambda: n.add_module("m", 3), text=False)
    err(lambda: n.get_submodule("a.c"))
    err(lambda: n.get_parameter("buf"))
    err(lambda: n.train("x"))
    err(lambda: n.to(torch.int64))
    class Bad(nn.Module):

        def __init__(self):
            self.x = nn.Linear(1, 1)
    err(Bad)
    class Bad2(nn.Module):

        def __init__(self):
            self.x = nn.Parameter(T(1))
    err(Bad2)
    err(lambda: nn.Module()(1))
    err(lambda: nn.Linear(2, 2, foo=1))
    err(lambda: nn.Module(1))
    err(lambda: nn.Module(a=1))
    n.a = None
    print(n, list(n.state_dict()))
    n.a = nn.Linear(2, 3)
    del n.b
    print([k for k, _ in n.named_modules()])
    n.p = None
    print(list(n.state_dict()))
    n.newbuf = nn.Buffer(T(2))
    print(list(n.state_dict()))
    print("newbuf" in dir(n), "buf" in dir(n))
    n.x = 1
    n.x = nn.ReLU()
    print("x" in n.__dict__, n.x)


def load_state_dict(torch, nn, T, fill, show, err):
    l = nn.Linear(2, 3)
    err(lambda: l.load_state_dict({"weight": T(3, 3), "extra": T(1)}))
    print(l.load_state_dict({"weight": T(3, 2)}, strict=False))
    print(l.load_state_dict(l.state_dict()))
    s2 = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    try:
        s2.load_state_dict({"0.weight": T(3, 3), "5.weight": T(1), "0.foo": T(1)})
    except RuntimeError as e:
        print(e)
    err(lambda: l.load_state_dict(5))
    err(lambda: l.load_state_dict({"weight": 5, "bias": T(3)}))
    w = T(3, 2).float()
    l2 = nn.Linear(2, 3)
    l2.load_state_dict({"weight": w, "bias": T(3)}, assign=True)
    print(l2.weight.dtype, l2.bias.dtype, l2.weight.requires_grad, type(l2.weight).__name__)
    class Extra(nn.Module):

        def get_extra_state(self):
            return {"k": 1}

        def set_extra_state(self, s):
            print("set", s)
    e = Extra()
    print(e.state_dict())
    print(e.load_state_dict(e.state_dict()))
    err(lambda: e.load_state_dict({}))


def hooks(torch, nn, T, fill, show, err):
    m = fill(nn.Linear(2, 2))
    log = []
    h1 = m.register_forward_pre_hook(lambda mod, a: log.append("pre") or (a[0] * 2,))
    h2 = m.register_forward_hook(lambda mod, a, o: log.append("post") or o + 1)
    h3 = m.register_forward_hook(lambda mod, a, k, o: log.append(("kw", sorted(k))), with_kwargs=True, prepend=True)
    x = T(1, 2).requires_grad_()
    show(m(x))
    show(m(input=x) if False else m(x))
    h1.remove()
    h2.remove()
    h3.remove()
    show(m(x))
    print(log)
    gl = []
    m.register_full_backward_hook(lambda mod, gi, go: gl.append(([None if g is None else [round(v, 5) for v in g.flatten().tolist()] for g in gi], [[round(v, 5) for v in g.flatten().tolist()] for g in go])))
    m.register_full_backward_pre_hook(lambda mod, go: (go[0] * 3,))
    m(x).sum().backward()
    print(gl)
    show(x.grad, m.weight.grad)
    gl.clear()
    m(T(1, 2)).sum().backward()
    print(gl)
    m2 = fill(nn.Linear(2, 2))
    m2.register_full_backward_hook(lambda mod, gi, go: (gi[0] * 10,))
    x.grad = None
    m2(x).sum().backward()
    show(x.grad)
    m3 = nn.Linear(2, 2)
    called = []
    m3.register_forward_hook(lambda mod, a, o: called.append(o is None), always_call=True)
    err(lambda: m3(torch.ones(2, 5)), text=False)
    print(called)
    with nn.modules.module.register_module_forward_hook(lambda mod, a, o: called.append(type(mod).__name__)):
        nn.Sequential(nn.ReLU(), nn.Tanh())(T(2))
    print(called)
    def kwhook(mod, a, k):
        return (a, {**k, "scale": 2.0})
    n3 = scaled_net(nn, T)
    n3.register_forward_pre_hook(kwhook, with_kwargs=True)
    fill(n3)
    show(n3(T(1, 2)))


def copies_and_pickles(torch, nn, T, fill, show, err):
    big = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3)).double()
    fill(big[:4])
    big(T(2, 1, 5, 5))
    big = fill(big)
    big.eval()
    y = big(T(2, 1, 5, 5))
    show(y)
    show(copy.deepcopy(big)(T(2, 1, 5, 5)) - y, pickle.loads(pickle.dumps(big))(T(2, 1, 5, 5)) - y)
    lz = nn.LazyConv2d(4, 3)
    print(lz, lz.weight)
    lz2 = copy.deepcopy(lz)
    lz2(torch.ones(1, 2, 5, 5))
    print(lz2, lz)
    lz.load_state_dict(lz2.state_dict())
    print(lz.weight.shape)
    print(nn.LazyBatchNorm2d().eval(), list(nn.LazyBatchNorm2d().state_dict()))
    b = nn.LazyBatchNorm1d()
    b(torch.ones(3, 4))
    print(b, list(b.state_dict()))


def apply_and_to(torch, nn, T, fill, show, err):
    m = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    seen = []
    m.apply(lambda q: seen.append(type(q).__name__))
    print(seen)
    before = [id(p) for p in m.parameters()]
    m(torch.ones(3, 2)).sum().backward()
    m.double()
    print([id(p) for p in m.parameters()] == before, m[0].weight.grad.dtype, m[1].num_batches_tracked.dtype, m[1].running_mean.dtype)
    m.half()
    m.bfloat16()
    m.float()
    m.to(torch.float64)
    m.to("cpu", torch.float32)
    m.to(T(1))
    print(m[0].weight.dtype)
    m.zero_grad()
    print(m[0].weight.grad)
    m.requires_grad_(False)
    print([p.requires_grad for p in m.parameters()])
    m.eval()
    print(m.training, m[0].training)
    m.train()
    m.type(torch.float32)
    print(m[0].weight.dtype, m.get_submodule("1"), m.get_parameter("0.weight").shape, m.get_buffer("1.running_mean").shape)
    m.set_submodule("1", nn.ReLU())
    print(m)
