//! LU factors: singular and rectangular matrices, and pivots that are not LAPACK's.

use rushlight_core::{DType, ErrorKind, Result};
use rushlight_tensor::{Tensor, lu_unpack};

#[test]
fn factors_multiply_to_the_matrix() -> Result<()> {
    let _turn = crate::turn();
    for shape in [vec![5, 5], vec![40, 17], vec![17, 40], vec![3, 4, 2], vec![2, 0, 3]] {
        let a = Tensor::randn_with(&shape, DType::F64)?;
        let (p, l, u) = a.lu()?;
        let back = p.matmul(&l)?.matmul(&u)?;
        let error = back.sub(&a)?.abs()?.sum(..)?.item::<f64>()?;
        assert!(error < 1e-11 * (a.numel() + 1) as f64, "{shape:?}: {error}");
    }
    Ok(())
}

#[test]
fn a_singular_matrix_says_where() -> Result<()> {
    let a = Tensor::new_with([[1.0, 2.0], [2.0, 4.0]], DType::F64)?;
    let (_, _, info) = a.lu_factor()?;
    assert_eq!(info.item::<i32>()?, 2);
    Ok(())
}

#[test]
fn wrong_pivots_are_errors() -> Result<()> {
    let (lu, pivots, _) = Tensor::eye_with(3, 3, DType::F64)?.lu_factor()?;
    let kind = |pivots: &Tensor| lu_unpack(&lu, pivots).err().map(|e| e.kind());
    assert_eq!(kind(&pivots), None);
    assert_eq!(kind(&pivots.to_dtype(DType::I64)?), Some(ErrorKind::DType));
    assert_eq!(kind(&pivots.narrow(0, 0, 2)?), Some(ErrorKind::Shape));
    assert_eq!(kind(&pivots.add(3)?), Some(ErrorKind::Value));
    assert_eq!(kind(&pivots.sub(1)?), Some(ErrorKind::Value));
    Ok(())
}

/// Only the lower triangle is read; values and gradients are those of the whole matrix.
#[test]
fn pseudo_inverses_of_symmetric_matrices() -> Result<()> {
    let half = Tensor::new_with([[2.0, 0.0, 0.0], [1.0, 3.0, 0.0], [-0.5, 0.25, 1.5]], DType::F64)?;
    let whole = half.add(&half.tril(-1)?.mt()?)?;
    let close = |a: &Tensor, b: &Tensor| -> Result<bool> { Ok(a.sub(b)?.abs()?.max(..)?.item::<f64>()? < 1e-12) };
    assert!(close(&half.pinv_symmetric(None)?, &whole.pinv(None)?)?);
    let gradient = |f: fn(&Tensor) -> Result<Tensor>| -> Result<Tensor> {
        let x = whole.clone().detach().requires_grad_(true)?;
        f(&x)?.mul(&Tensor::arange(0, 9, 1)?.reshape([3, 3])?)?.sum(..)?.backward()?;
        Ok(x.grad().expect("a gradient"))
    };
    assert!(close(&gradient(|x| x.pinv_symmetric(None))?, &gradient(|x| x.pinv(None))?)?);
    Ok(())
}
