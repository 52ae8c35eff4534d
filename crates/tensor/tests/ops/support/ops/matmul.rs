use crate::support::args::Args;
use rushlight_core::Result;
use rushlight_tensor::{Tensor, einsum};

fn tensordot(a: &Args) -> Result<Tensor> {
    if !a.is_list(2, "dims") {
        return a.t(0)?.tensordot(a.t(1)?, a.size(2, "dims", 2)?);
    }
    let dims = a.nested(2, "dims")?;
    a.t(0)?.tensordot_dims(a.t(1)?, &dims[0], &dims[1])
}

super::ops! {
    "matmul" => |a| a.t(0)?.matmul(a.t(1)?);
    "mm" => |a| a.t(0)?.mm(a.t(1)?);
    "bmm" => |a| a.t(0)?.bmm(a.t(1)?);
    "mv" => |a| a.t(0)?.mv(a.t(1)?);
    "dot" => |a| a.t(0)?.dot(a.t(1)?);
    "outer" => |a| a.t(0)?.outer(a.t(1)?);
    "linear" => |a| a.t(0)?.linear(a.t(1)?, a.opt(2, "bias"));
    "addmm" => |a| a.t(0)?.addmm(a.t(1)?, a.t(2)?, a.scalar_or(3, "beta", 1)?, a.scalar_or(4, "alpha", 1)?);
    "addmv" => |a| a.t(0)?.addmv(a.t(1)?, a.t(2)?, a.scalar_or(3, "beta", 1)?, a.scalar_or(4, "alpha", 1)?);
    "baddbmm" => |a| a.t(0)?.baddbmm(a.t(1)?, a.t(2)?, a.scalar_or(3, "beta", 1)?, a.scalar_or(4, "alpha", 1)?);
    "addbmm" => |a| a.t(0)?.addbmm(a.t(1)?, a.t(2)?, a.scalar_or(3, "beta", 1)?, a.scalar_or(4, "alpha", 1)?);
    "einsum" => |a| einsum(a.text(0, "equation").unwrap_or(""), &a.all(1)?);
    "tensordot" => |a| tensordot(a);
    "bilinear" => |a| a.t(0)?.bilinear(a.t(1)?, a.t(2)?, a.opt(3, "bias"));
}
