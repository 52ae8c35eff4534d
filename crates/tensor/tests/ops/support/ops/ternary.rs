use crate::support::args::Args;
use rushlight_core::Result;
use rushlight_tensor::{Tensor, where_};

fn clamp(a: &Args) -> Result<Tensor> {
    match (a.has(1, "min"), a.has(2, "max")) {
        (true, true) => a.t(0)?.clamp(a.arg(1)?, a.arg(2)?),
        (true, false) => a.t(0)?.clamp_min(a.arg(1)?),
        _ => a.t(0)?.clamp_max(a.arg(2)?),
    }
}

fn select(a: &Args) -> Result<Vec<Tensor>> {
    match a.count() {
        1 => a.t(0)?.nonzero_tuple(),
        _ => Ok(vec![where_(a.t(0)?, a.arg(1)?, a.arg(2)?)?]),
    }
}

super::ops! {
    "clamp" => |a| clamp(a);
    "lerp" => |a| a.t(0)?.lerp(a.t(1)?, a.arg(2)?);
    "addcmul" => |a| a.t(0)?.addcmul(a.t(1)?, a.t(2)?, a.f64(3, "value", 1.0)?);
    "addcdiv" => |a| a.t(0)?.addcdiv(a.t(1)?, a.t(2)?, a.f64(3, "value", 1.0)?);
    "where" => |a| select(a);
    "masked_fill" => |a| a.t(0)?.masked_fill(a.t(1)?, a.arg(2)?);
}
