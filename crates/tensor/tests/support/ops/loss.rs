use crate::support::args::Args;
use rushlight_core::{Error, Result};
use rushlight_tensor::{CrossEntropyOptions, Reduction, TripletMargin};

fn reduction(a: &Args) -> Result<Reduction> {
    Ok(match a.text(usize::MAX, "reduction") {
        None | Some("mean") => Reduction::Mean,
        Some("sum") => Reduction::Sum,
        Some("none") => Reduction::None,
        Some("batchmean") => Reduction::BatchMean,
        Some(other) => return Err(Error::value(format!("reduction {other}"))),
    })
}

fn classes(a: &Args) -> Result<CrossEntropyOptions<'_>> {
    let options = CrossEntropyOptions::default().weight(a.opt(2, "weight")).reduction(reduction(a)?);
    Ok(options.ignore_index(a.int(usize::MAX, "ignore_index", -100)?))
}

fn margin(a: &Args, default: f64) -> Result<f64> {
    a.f64(usize::MAX, "margin", default)
}

super::ops! {
    "cross_entropy" => |a| {
        let smoothing = a.f64(usize::MAX, "label_smoothing", 0.0)?;
        a.t(0)?.cross_entropy_with(a.t(1)?, &classes(a)?.label_smoothing(smoothing))
    };
    "nll_loss" => |a| a.t(0)?.nll_loss(a.t(1)?, &classes(a)?);
    "mse_loss" => |a| a.t(0)?.mse_loss(a.t(1)?, reduction(a)?);
    "l1_loss" => |a| a.t(0)?.l1_loss(a.t(1)?, reduction(a)?);
    "smooth_l1_loss" => |a| a.t(0)?.smooth_l1_loss(a.t(1)?, a.f64(usize::MAX, "beta", 1.0)?, reduction(a)?);
    "huber_loss" => |a| a.t(0)?.huber_loss(a.t(1)?, a.f64(usize::MAX, "delta", 1.0)?, reduction(a)?);
    "binary_cross_entropy" => |a| a.t(0)?.binary_cross_entropy(a.t(1)?, a.opt(2, "weight"), reduction(a)?);
    "binary_cross_entropy_with_logits" => |a| {
        let (weight, pos_weight) = (a.opt(2, "weight"), a.opt(usize::MAX, "pos_weight"));
        a.t(0)?.binary_cross_entropy_with_logits(a.t(1)?, weight, pos_weight, reduction(a)?)
    };
    "soft_margin_loss" => |a| a.t(0)?.soft_margin_loss(a.t(1)?, reduction(a)?);
    "kl_div" => |a| a.t(0)?.kl_div(a.t(1)?, a.flag(usize::MAX, "log_target", false)?, reduction(a)?);
    "gaussian_nll_loss" => |a| {
        let (full, eps) = (a.flag(usize::MAX, "full", false)?, a.f64(usize::MAX, "eps", 1e-6)?);
        a.t(0)?.gaussian_nll_loss(a.t(1)?, a.t(2)?, full, eps, reduction(a)?)
    };
    "poisson_nll_loss" => |a| {
        let (log_input, full) = (a.flag(usize::MAX, "log_input", true)?, a.flag(usize::MAX, "full", false)?);
        a.t(0)?.poisson_nll_loss(a.t(1)?, log_input, full, a.f64(usize::MAX, "eps", 1e-8)?, reduction(a)?)
    };
    "cosine_embedding_loss" => |a| a.t(0)?.cosine_embedding_loss(a.t(1)?, a.t(2)?, margin(a, 0.0)?, reduction(a)?);
    "margin_ranking_loss" => |a| a.t(0)?.margin_ranking_loss(a.t(1)?, a.t(2)?, margin(a, 0.0)?, reduction(a)?);
    "triplet_margin_loss" => |a| {
        let options = TripletMargin::default().margin(margin(a, 1.0)?).p(a.f64(usize::MAX, "p", 2.0)?);
        a.t(0)?.triplet_margin_loss(a.t(1)?, a.t(2)?, options.swap(a.flag(usize::MAX, "swap", false)?), reduction(a)?)
    };
    "hinge_embedding_loss" => |a| a.t(0)?.hinge_embedding_loss(a.t(1)?, margin(a, 1.0)?, reduction(a)?);
}
