"""Gradients, precisions, parameters and subclasses."""

import copy
import pickle

def activations_in_place(torch, nn, T, fill, show, err):
    for m in (nn.ReLU(True), nn.LeakyReLU(0.2, True), nn.ELU(1.0, True), nn.ReLU6(True), nn.Hardtanh(inplace=True), nn.SiLU(True), nn.SELU(True), nn.CELU(inplace=True), nn.Hardswish(True), nn.Threshold(0.1, 0.2, True), nn.Mish(True), nn.Hardsigmoid(True)):
        x = T(4).requires_grad_()
        h = x * 2
        y = m(h)
        print(type(m).__name__, y is h)
        y.sum().backward()
        show(x.grad)


def double_backward(torch, nn, T, fill, show, err):
    m = fill(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)))
    x = T(2, 3).requires_grad_()
    g, = torch.autograd.grad(m(x).sum(), x, create_graph=True)
    (g ** 2).sum().backward()
    show(m[0].weight.grad, x.grad)
    m = fill(nn.Conv2d(1, 2, 3))
    x = T(1, 1, 4, 4).requires_grad_()
    g, = torch.autograd.grad(m(x).tanh().sum(), x, create_graph=True)
    (g ** 2).sum().backward()
    show(m.weight.grad)


def lower_precision(torch, nn, T, fill, show, err):
    for dt in (torch.bfloat16, torch.float16):
        for m, x in ((nn.Linear(3, 2), torch.ones(2, 3)), (nn.Conv2d(1, 2, 3), torch.ones(1, 1, 4, 4)), (nn.LayerNorm(3), torch.ones(2, 3)), (nn.LSTM(3, 2), torch.ones(2, 1, 3)), (nn.MultiheadAttention(4, 2), None), (nn.BatchNorm1d(3), torch.ones(2, 3)), (nn.Embedding(4, 2), torch.tensor([1])), (nn.GRU(3, 2), torch.ones(2, 1, 3)), (nn.TransformerEncoderLayer(4, 2, 8), torch.ones(2, 1, 4))):
            m = m.to(dt)
            if x is None:
                x = torch.ones(2, 1, 4)
                y = m(x.to(dt), x.to(dt), x.to(dt))[0]
            else:
                y = m(x.to(dt) if x.is_floating_point() else x)
            y = y[0] if isinstance(y, tuple) else y
            y.float().sum().backward()
            print(type(m).__name__, y.dtype)


def autocast(torch, nn, T, fill, show, err):
    m = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.LayerNorm(4), nn.Linear(4, 2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = m(torch.ones(2, 3))
        print(y.dtype)
        l = nn.CrossEntropyLoss()(y, torch.tensor([0, 1]))
        print(l.dtype)
    l.backward()
    print(m[0].weight.grad.dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        print(nn.LSTM(3, 2)(torch.ones(2, 1, 3))[0].dtype, nn.MultiheadAttention(4, 2)(torch.ones(2, 1, 4), torch.ones(2, 1, 4), torch.ones(2, 1, 4))[0].dtype)


def keyword_arguments(torch, nn, T, fill, show, err):
    m = fill(nn.Linear(2, 2))
    show(m(input=T(1, 2)))
    show(nn.CrossEntropyLoss()(input=T(2, 3), target=torch.tensor([0, 1])))
    show(nn.Dropout(0.0)(input=T(2)))


def parameters(torch, nn, T, fill, show, err):
    p = nn.Parameter(T(2))
    print(p.is_leaf, p.requires_grad, type(p * 2).__name__, type(p.data).__name__, type(p.detach()).__name__, isinstance(p, torch.Tensor))
    q = copy.deepcopy(p)
    print(type(q).__name__, q.requires_grad)
    print(p, [p])
    r = pickle.loads(pickle.dumps(p))
    print(type(r).__name__, r.requires_grad)
    print(nn.Parameter(torch.tensor(3.0)), nn.Parameter(torch.ones(1), requires_grad=False))
    err(lambda: nn.Parameter(torch.tensor([1, 2])), text=False)
    print(type(nn.Parameter(T(2)).clone()).__name__, type(nn.Parameter(T(2)).to(torch.float32)).__name__)
    s = {p}
    print(p in s, p == p)
    m = nn.Linear(2, 2)
    m.weight = nn.Parameter(torch.zeros(2, 2))
    m.bias.data.fill_(1.0)
    m.weight.data[0] = 5.0
    show(m.weight)
    with torch.no_grad():
        m.weight.copy_(torch.ones(2, 2))
        m.weight.fill_(3)
        m.weight[0, 0] = 7
        m.bias.zero_()
        m.weight *= 2
        m.weight -= 1
    show(m.weight)
    print(type(m.weight).__name__)
    m.weight.requires_grad = False
    print(m.weight.requires_grad)
    print(nn.Linear(2, 2, bias=False).bias, "bias" in dict(nn.Linear(2, 2, bias=False).named_parameters()))


def subclasses(torch, nn, T, fill, show, err):
    class Sub(nn.Linear):

        def forward(self, x):
            return super().forward(x) * 2
    sm = fill(Sub(2, 2))
    show(sm(T(1, 2)))
    print(sm)
    class WithRepr(nn.Module):

        def __init__(self):
            super().__init__()
            self.l = nn.ModuleList([nn.ModuleList([nn.ReLU(), nn.ReLU()])])
            self.d = nn.ModuleDict({"a": nn.Sequential(nn.Linear(1, 1))})

        def extra_repr(self):
            return 'a=1\nb=2'
    print(WithRepr())
    class PropModule(nn.Module):

        def __init__(self):
            super().__init__()
            self._w = nn.Parameter(T(2))

        @property
        def w(self):
            return self._w.exp()

        @property
        def broken(self):
            return self.missing
    pm = PropModule()
    show(pm.w)
    err(lambda: pm.broken)
    class Meth(nn.Module):

        def forward(self, *, a, b=2):
            return a + b
    print(Meth()(a=1))
    print(list(nn.Module().named_modules()))


def tied_parameters(torch, nn, T, fill, show, err):
    tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    print(len(list(tied.parameters())), list(tied.state_dict()))
    c = copy.deepcopy(tied)
    print(c[0].weight is c[1].weight)
    pk = pickle.loads(pickle.dumps(tied))
    print(pk[0].weight is pk[1].weight)
    m = nn.Sequential(nn.Linear(1, 1))
    m[0].bias.requires_grad_(False)
    m.add_module("x", None)
    print(m, len(m))
    print(nn.Flatten(), nn.Unflatten(1, (2, 3)), nn.Identity(5, a=3), nn.Softmax(dim=1), nn.PReLU(3))


def buffers_and_state_dict_hooks(torch, nn, T, fill, show, err):
    m = nn.BatchNorm2d(3)
    m.running_mean = torch.ones(3)
    print(m.running_mean)
    m.register_buffer("extra", None)
    print(list(m.state_dict()))
    m.eval()
    m.reset_running_stats()
    m.reset_parameters()
    sd = nn.BatchNorm1d(2).state_dict()
    del sd["num_batches_tracked"]
    sd._metadata = {"": {"version": 1}}
    print(nn.BatchNorm1d(2).load_state_dict(sd))
    net = nn.Sequential(nn.Linear(2, 2))
    hs = []
    h = net.register_state_dict_post_hook(lambda m, sd, p, md: hs.append(list(sd)))
    net.state_dict()
    h2 = net.register_load_state_dict_post_hook(lambda m, k: k.missing_keys.clear())
    print(net.load_state_dict({"0.weight": torch.ones(2, 2)}))
    net.register_state_dict_pre_hook(lambda m, p, k: hs.append((p, k)))
    net.state_dict(prefix="z.", keep_vars=True)
    print(hs)
    net.register_load_state_dict_pre_hook(lambda m, sd, *a: sd.setdefault("0.bias", torch.zeros(2)))
    h2.remove()
    print(net.load_state_dict({"0.weight": torch.ones(2, 2)}))
    print(net.state_dict(prefix="q.").keys(), type(net.state_dict(keep_vars=True)["0.weight"]).__name__)
    show(nn.utils.parameters_to_vector(net.parameters()))
    print(net.float() is net, net.apply(lambda m: None) is net, net.train() is net, net.requires_grad_() is net, net.zero_grad(), net.share_memory() is net)


def attention_values(torch, nn, T, fill, show, err):
    tr = fill(nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), 2)).eval()
    show(tr(T(2, 3, 4), src_key_padding_mask=torch.tensor([[False, False, True], [False, False, False]])))
    with torch.no_grad():
        show(tr(T(2, 3, 4), mask=nn.Transformer.generate_square_subsequent_mask(3).double(), is_causal=True))
    mha = fill(nn.MultiheadAttention(4, 2, batch_first=True)).eval()
    o, w = mha(T(2, 3, 4), T(2, 5, 4), T(2, 5, 4), need_weights=True, average_attn_weights=False)
    show(o, w)
    show(nn.functional.multi_head_attention_forward(T(3, 2, 4), T(3, 2, 4), T(3, 2, 4), 4, 2, mha.in_proj_weight, mha.in_proj_bias, None, None, False, 0.0, mha.out_proj.weight, mha.out_proj.bias)[0])


def upsampling(torch, nn, T, fill, show, err):
    up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
    show(up(T(1, 1, 2, 2)))
    print(up, nn.UpsamplingNearest2d(scale_factor=2), nn.UpsamplingBilinear2d(size=(3, 4)))
    show(nn.UpsamplingBilinear2d(size=(3, 4))(T(1, 1, 2, 2)), nn.UpsamplingNearest2d(scale_factor=2)(T(1, 1, 2, 2)))


def printed_losses(torch, nn, T, fill, show, err):
    for L in (nn.MSELoss(), nn.CrossEntropyLoss(torch.ones(3)), nn.BCEWithLogitsLoss(pos_weight=torch.ones(2)), nn.NLLLoss2d(), nn.TripletMarginWithDistanceLoss(), nn.CTCLoss()):
        print(L, list(L.state_dict()))


def padding_in_inference(torch, nn, T, fill, show, err):
    padding = torch.tensor([[False, False, True], [False, False, False]])
    in_front = torch.tensor([[True, False, False], [False, False, False]])
    causal = nn.Transformer.generate_square_subsequent_mask(3).double()

    def encoder(norm=False, nested=True, **options):
        layer = nn.TransformerEncoderLayer(4, 2, 8, 0.0, **{"batch_first": True, **options})
        return fill(nn.TransformerEncoder(layer, 2, nn.LayerNorm(4) if norm else None, enable_nested_tensor=nested)).eval()

    with torch.no_grad():
        for model in (encoder(), encoder(norm=True), encoder(nested=False), encoder(norm_first=True), encoder(activation="gelu"), encoder(bias=False)):
            show(model(T(2, 3, 4), src_key_padding_mask=padding))
        show(encoder()(T(2, 3, 4), src_key_padding_mask=in_front))
        show(encoder()(T(2, 3, 4), mask=causal, src_key_padding_mask=padding))
    model = encoder()
    show(model(T(2, 3, 4), src_key_padding_mask=padding))
    model.requires_grad_(False)
    show(model(T(2, 3, 4), src_key_padding_mask=padding))
    show(model(T(2, 3, 4).requires_grad_(), src_key_padding_mask=padding))
