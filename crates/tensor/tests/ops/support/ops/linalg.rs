use crate::support::args::Args;
use rushlight_core::Result;
use rushlight_tensor::{MatrixNorm, SolveTriangular, Tensor};

/// Vectors are unique only up to sign, so their squares and the reconstruction are compared.
fn svd(a: &Args) -> Result<Vec<Tensor>> {
    let (u, s, vh) = a.t(0)?.svd(a.flag(1, "full_matrices", false)?)?;
    let whole = u.mul(&s.unsqueeze(-2)?)?.matmul(&vh)?;
    Ok(vec![s, whole, u.square()?, vh.square()?])
}

fn eigh(a: &Args) -> Result<Vec<Tensor>> {
    let (w, v) = a.t(0)?.eigh(upper(a))?;
    let whole = v.mul(&w.unsqueeze(-2)?)?.matmul(&v.mt()?)?;
    Ok(vec![w, whole, v.square()?])
}

fn upper(a: &Args) -> bool {
    a.text(1, "UPLO") == Some("U")
}

fn triangular(a: &Args) -> Result<Tensor> {
    let options = SolveTriangular::new(a.flag(usize::MAX, "upper", false)?)
        .left(a.flag(usize::MAX, "left", true)?)
        .unitriangular(a.flag(usize::MAX, "unitriangular", false)?);
    a.t(0)?.solve_triangular(a.t(1)?, options)
}

fn matrix_norm(a: &Args) -> Result<Tensor> {
    let ord = match a.text(1, "ord") {
        Some("nuc") => MatrixNorm::Nuc,
        None if a.has(1, "ord") => MatrixNorm::Ord(a.f64(1, "ord", 0.0)?),
        _ => MatrixNorm::Fro,
    };
    let dims = match a.dims(2, "dim")?[..] {
        [rows, columns] => [rows, columns],
        _ => [-2, -1],
    };
    a.t(0)?.matrix_norm(ord, dims, a.flag(3, "keepdim", false)?)
}

super::ops! {
    "det" => |a| a.t(0)?.det();
    "slogdet" => |a| a.t(0)?.slogdet();
    "logdet" => |a| a.t(0)?.logdet();
    "inv" => |a| a.t(0)?.inv();
    "solve" => |a| a.t(0)?.solve(a.t(1)?, a.flag(2, "left", true)?);
    "solve_triangular" => |a| triangular(a);
    "cholesky" => |a| a.t(0)?.cholesky(a.flag(1, "upper", false)?);
    "qr" => |a| a.t(0)?.qr(a.text(1, "mode") == Some("complete"));
    "svd" => |a| svd(a);
    "svdvals" => |a| a.t(0)?.svdvals();
    "eigh" => |a| eigh(a);
    "eigvalsh" => |a| a.t(0)?.eigvalsh(upper(a));
    "matrix_norm" => |a| matrix_norm(a);
    "cross" => |a| a.t(0)?.cross(a.t(1)?, a.dim(2, "dim", -1)?);
    "lu" => |a| a.t(0)?.lu().map(|(_, l, u)| (l, u));
    "lu_solve" => |a| {
        let (lu, pivots, _) = a.t(0)?.lu_factor()?;
        lu.lu_solve(&pivots, a.t(1)?, a.flag(2, "left", true)?, a.flag(3, "adjoint", false)?)
    };
    "lstsq" => |a| a.t(0)?.lstsq(a.t(1)?);
}
