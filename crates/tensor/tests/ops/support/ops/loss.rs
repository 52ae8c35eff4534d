use crate::support::args::Args;
use rushlight_core::{Error, Result};
use rushlight_tensor::{CrossEntropyOptions, Reduction, TripletMargin};

const KEYWORD: usize = usize::MAX;

fn reduction(a: &Args) -> Result<Reduction> {
    match a.text(KEYWORD, "reduction") {
        None | Some("mean") => Ok(Reduction::Mean),
        Some("sum") => Ok(Reduction::Sum),
        Some("none") => Ok(Reduction::None),
        Some("batchmean") => Ok(Reduction::BatchMean),
        Some(other) => Err(Error::value(format!("reduction {other}"))),
    }
}

fn classes(a: &Args) -> Result<CrossEntropyOptions<'_>> {
    Ok(CrossEntropyOptions::default()
        .weight(a.opt(2, "weight"))
        .ignore_index(a.int(KEYWORD, "ignore_index", -100)?)
        .label_smoothing(a.f64(KEYWORD, "label_smoothing", 0.0)?)
        .reduction(reduction(a)?))
}

fn triplet(a: &Args) -> Result<TripletMargin> {
    let options = TripletMargin::default().margin(a.f64(KEYWORD, "margin", 1.0)?).p(a.f64(KEYWORD, "p", 2.0)?);
    Ok(options.swap(a.flag(KEYWORD, "swap", false)?))
}

super::ops! {
    "cross_entropy" => |a| a.t(0)?.cross_entropy_with(a.t(1)?, &classes(a)?);
    "nll_loss" => |a| a.t(0)?.nll_loss(a.t(1)?, &classes(a)?);
    "mse_loss" => |a| a.t(0)?.mse_loss(a.t(1)?, reduction(a)?);
    "l1_loss" => |a| a.t(0)?.l1_loss(a.t(1)?, reduction(a)?);
    "smooth_l1_loss" => |a| a.t(0)?.smooth_l1_loss(a.t(1)?, a.f64(KEYWORD, "beta", 1.0)?, reduction(a)?);
    "huber_loss" => |a| a.t(0)?.huber_loss(a.t(1)?, a.f64(KEYWORD, "delta", 1.0)?, reduction(a)?);
    "binary_cross_entropy" => |a| a.t(0)?.binary_cross_entropy(a.t(1)?, a.opt(2, "weight"), reduction(a)?);
    "binary_cross_entropy_with_logits" => |a| {
        a.t(0)?.binary_cross_entropy_with_logits(a.t(1)?, a.opt(2, "weight"), a.opt(KEYWORD, "pos_weight"), reduction(a)?)
    };
    "soft_margin_loss" => |a| a.t(0)?.soft_margin_loss(a.t(1)?, reduction(a)?);
    "kl_div" => |a| a.t(0)?.kl_div(a.t(1)?, a.flag(KEYWORD, "log_target", false)?, reduction(a)?);
    "gaussian_nll_loss" => |a| {
        let (full, eps) = (a.flag(KEYWORD, "full", false)?, a.f64(KEYWORD, "eps", 1e-6)?);
        a.t(0)?.gaussian_nll_loss(a.t(1)?, a.t(2)?, full, eps, reduction(a)?)
    };
    "poisson_nll_loss" => |a| {
        let (log_input, full) = (a.flag(KEYWORD, "log_input", true)?, a.flag(KEYWORD, "full", false)?);
        a.t(0)?.poisson_nll_loss(a.t(1)?, log_input, full, a.f64(KEYWORD, "eps", 1e-8)?, reduction(a)?)
    };
    "cosine_embedding_loss" => |a| {
        a.t(0)?.cosine_embedding_loss(a.t(1)?, a.t(2)?, a.f64(KEYWORD, "margin", 0.0)?, reduction(a)?)
    };
    "margin_ranking_loss" => |a| {
        a.t(0)?.margin_ranking_loss(a.t(1)?, a.t(2)?, a.f64(KEYWORD, "margin", 0.0)?, reduction(a)?)
    };
    "triplet_margin_loss" => |a| a.t(0)?.triplet_margin_loss(a.t(1)?, a.t(2)?, triplet(a)?, reduction(a)?);
    "hinge_embedding_loss" => |a| a.t(0)?.hinge_embedding_loss(a.t(1)?, a.f64(KEYWORD, "margin", 1.0)?, reduction(a)?);
}
