"""Loss functions with every reduction."""

import torch

from family import bf16, f32, f64

REDUCTIONS = ("mean", "sum", "none")


def build(f):
    cross_entropy(f)
    nll(f)
    regression(f)
    binary(f)
    distributions(f)
    margins(f)


def cross_entropy(f):
    op = "cross_entropy"
    for reduction in REDUCTIONS:
        f.case(op, f.uniform(4, 5), f.ints(4, lo=0, hi=5), reduction=reduction)
        f.case(op, f.uniform(4, 5), f.ints(4, lo=0, hi=5), f.uniform(5, lo=0.2, hi=2), reduction=reduction,
               constant=(2,))
        f.case(op, f.uniform(4, 5), torch.tensor([0, 2, -100, 4]), reduction=reduction)
        f.case(op, f.uniform(4, 5, dtype=f64, layout="transposed"), torch.tensor([0, 2, 1, 4]),
               f.uniform(5, lo=0.2, hi=2, dtype=f64), ignore_index=2, reduction=reduction, constant=(2,))
        f.case(op, f.uniform(4, 5), torch.tensor([3, 2, 1, -100]), f.uniform(5, lo=0.2, hi=2), label_smoothing=0.1,
               reduction=reduction, constant=(2,))
        f.case(op, f.uniform(4, 5), f.ints(4, lo=0, hi=5), label_smoothing=0.3, reduction=reduction)
        f.case(op, f.uniform(3, 4), f.uniform(3, 4).softmax(1), reduction=reduction)
        f.case(op, f.uniform(3, 4, dtype=f64), f.uniform(3, 4, dtype=f64).softmax(1),
               f.uniform(4, lo=0.2, hi=2, dtype=f64),
               label_smoothing=0.2, reduction=reduction, constant=(2,))
        f.case(op, f.uniform(2, 3, 2, 2), f.ints(2, 2, 2, lo=0, hi=3), reduction=reduction)
        f.case(op, f.uniform(2, 3, 4, layout="strided"), f.ints(2, 4, lo=0, hi=3, layout="transposed"),
               f.uniform(3, lo=0.2, hi=2), reduction=reduction, constant=(2,))
        f.case(op, f.uniform(2, 3, 2, dtype=f64), f.uniform(2, 3, 2, dtype=f64).softmax(1), reduction=reduction)
        f.case(op, f.uniform(2, 3, 3), f.ints(2, 3, lo=0, hi=3), label_smoothing=0.1, reduction=reduction)
    f.case(op, f.uniform(5), torch.tensor(3))
    f.case(op, f.uniform(2, 37), f.ints(2, lo=0, hi=37))
    f.case(op, f.uniform(2, 3), torch.tensor([-100, -100]), grad=False)
    f.case(op, f.uniform(4, 5, dtype=bf16), f.ints(4, lo=0, hi=5))


def nll(f):
    for reduction in REDUCTIONS:
        f.case("nll_loss", f.uniform(4, 5), f.ints(4, lo=0, hi=5), reduction=reduction)
        f.case("nll_loss", f.uniform(4, 5, dtype=f64, layout="transposed"), torch.tensor([0, 2, 1, 4]),
               f.uniform(5, lo=0.2, hi=2, dtype=f64), ignore_index=2, reduction=reduction, constant=(2,))
        f.case("nll_loss", f.uniform(2, 3, 2, 2), f.ints(2, 2, 2, lo=0, hi=3), f.uniform(3, lo=0.2, hi=2),
               reduction=reduction, constant=(2,))
        f.case("nll_loss", f.uniform(2, 3, 4, layout="strided"), f.ints(2, 4, lo=0, hi=3), reduction=reduction)
    f.case("nll_loss", f.uniform(5), torch.tensor(3))


def regression(f):
    variants = {"mse_loss": [{}], "l1_loss": [{}], "smooth_l1_loss": [{}, {"beta": 0.5}, {"beta": 2.0}],
                "huber_loss": [{}, {"delta": 0.5}, {"delta": 2.0}]}
    for op, arguments in variants.items():
        for reduction in REDUCTIONS:
            for kwargs in arguments:
                f.case(op, f.uniform(3, 4), f.uniform(3, 4), reduction=reduction, **kwargs)
            f.case(op, f.uniform(3, 4, dtype=f64, layout="transposed"), f.uniform(3, 4, dtype=f64, layout="strided"),
                   reduction=reduction)
        f.case(op, f.uniform(37), f.uniform(37))
        f.case(op, torch.tensor([1.0, 2.0, 0.0]), torch.tensor([1.0, 1.0, 1.0]), reduction="sum")
        f.case(op, f.uniform(3, 4), f.uniform(3, 4, layout="expanded"), constant=(1,))
        f.case(op, f.uniform(5, dtype=bf16), f.uniform(5, dtype=bf16))
    f.case("mse_loss", f.uniform(0), f.uniform(0), reduction="sum")


def binary(f):
    for reduction in REDUCTIONS:
        kwargs = {"reduction": reduction}
        unit = lambda *shape, **kw: f.uniform(*shape, lo=0.05, hi=0.95, **kw)
        f.case("binary_cross_entropy", unit(3, 4), unit(3, 4), **kwargs)
        f.case("binary_cross_entropy", unit(3, 4, dtype=f64, layout="transposed"), f.bools(3, 4).to(f64),
               unit(4, dtype=f64), constant=(1, 2), **kwargs)
        op = "binary_cross_entropy_with_logits"
        f.case(op, f.uniform(3, 4), unit(3, 4), **kwargs)
        f.case(op, f.uniform(3, 4, layout="strided"), f.bools(3, 4).to(f32), unit(3, 1), constant=(1, 2), **kwargs)
        f.case(op, f.uniform(3, 4), unit(3, 4), constant=(1,), pos_weight=f.uniform(4, lo=0.5, hi=3), **kwargs)
        f.case(op, f.uniform(3, 4, dtype=f64), unit(3, 4, dtype=f64), unit(4, dtype=f64), constant=(1, 2),
               pos_weight=f.uniform(4, lo=0.5, hi=3, dtype=f64), **kwargs)
        f.case("soft_margin_loss", f.uniform(3, 4), f.bools(3, 4).to(f32) * 2 - 1, constant=(1,), **kwargs)
        f.case("soft_margin_loss", f.uniform(2, 3, dtype=f64, layout="transposed"), f.bools(2, 3).to(f64) * 2 - 1,
               constant=(1,), **kwargs)
    f.case("binary_cross_entropy", torch.tensor([0.0, 1.0, 1.0, 0.0]), torch.tensor([0.0, 1.0, 0.0, 1.0]),
           reduction="none", grad=False)
    f.case("binary_cross_entropy_with_logits", torch.tensor([100.0, -100.0, 50.0]), torch.tensor([0.0, 1.0, 1.0]),
           reduction="none")
    f.case("binary_cross_entropy_with_logits", f.uniform(5, dtype=bf16), f.bools(5).to(bf16))


def distributions(f):
    for reduction in (*REDUCTIONS, "batchmean"):
        kwargs = {"reduction": reduction}
        f.case("kl_div", f.uniform(3, 4).log_softmax(1), f.uniform(3, 4).softmax(1), **kwargs)
        f.case("kl_div", f.uniform(3, 4, dtype=f64, layout="transposed"), f.uniform(3, 4, dtype=f64).log_softmax(1),
               log_target=True, **kwargs)
    f.case("kl_div", f.uniform(4), torch.tensor([0.0, 0.5, 0.5, 0.0]), reduction="none", constant=(1,))
    for reduction in REDUCTIONS:
        kwargs = {"reduction": reduction}
        f.case("gaussian_nll_loss", f.uniform(3, 4), f.uniform(3, 4), f.uniform(3, 4, lo=0.3, hi=2), **kwargs)
        f.case("gaussian_nll_loss", f.uniform(3, 4, dtype=f64, layout="transposed"), f.uniform(3, 4, dtype=f64),
               f.uniform(3, 1, lo=0.3, hi=2, dtype=f64), full=True, **kwargs)
        f.case("poisson_nll_loss", f.uniform(3, 4), f.uniform(3, 4, lo=0.2, hi=4), **kwargs)
        f.case("poisson_nll_loss", f.uniform(3, 4, lo=0.3, hi=3, layout="transposed"), f.uniform(3, 4, lo=0.2, hi=4),
               log_input=False, **kwargs)
        f.case("poisson_nll_loss", f.uniform(3, 4, dtype=f64), f.uniform(3, 4, lo=1.5, hi=4, dtype=f64), full=True,
               constant=(1,), **kwargs)
    f.case("gaussian_nll_loss", f.uniform(4), f.uniform(4), torch.tensor([1e-8, 0.5, 1.0, 0.0]), eps=1e-2)
    f.case("poisson_nll_loss", f.uniform(5), torch.tensor([0.0, 1.0, 0.5, 3.0, 2.0]), full=True, constant=(1,))


def margins(f):
    for reduction in REDUCTIONS:
        kwargs = {"reduction": reduction}
        signs = lambda *shape, dtype=f32: f.bools(*shape).to(dtype) * 2 - 1
        f.case("cosine_embedding_loss", f.uniform(4, 3), f.uniform(4, 3), torch.tensor([1, -1, 1, -1]), **kwargs)
        f.case("cosine_embedding_loss", f.uniform(4, 3, dtype=f64, layout="transposed"), f.uniform(4, 3, dtype=f64),
               torch.tensor([-1, -1, 1, 1]), margin=-0.5, **kwargs)
        f.case("margin_ranking_loss", f.uniform(5), f.uniform(5), signs(5), constant=(2,), **kwargs)
        f.case("margin_ranking_loss", f.uniform(2, 3, dtype=f64, layout="strided"), f.uniform(2, 3, dtype=f64),
               signs(2, 3, dtype=f64), margin=0.7, constant=(2,), **kwargs)
        f.case("triplet_margin_loss", f.uniform(4, 3), f.uniform(4, 3), f.uniform(4, 3), **kwargs)
        f.case("triplet_margin_loss", f.uniform(4, 3, dtype=f64, layout="transposed"), f.uniform(4, 3, dtype=f64),
               f.uniform(4, 3, dtype=f64), margin=2.0, p=1.0, **kwargs)
        f.case("triplet_margin_loss", f.uniform(4, 3), f.uniform(4, 3), f.uniform(4, 3), swap=True, margin=1.5,
               **kwargs)
        f.case("hinge_embedding_loss", f.uniform(3, 4), signs(3, 4), constant=(1,), **kwargs)
        f.case("hinge_embedding_loss", f.uniform(3, 4, dtype=f64, layout="transposed"), signs(3, 4, dtype=f64),
               margin=0.4, constant=(1,), **kwargs)
