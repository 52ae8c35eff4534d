//! Complex numbers and Fourier transforms on a device: `RUSHLIGHT_TEST_DEVICE` names it.

use crate::device::{agree, learn, randn, turn};
use rushlight_core::{DType, Result};
use rushlight_tensor::{FftNorm, Tensor, complex};

#[test]
fn fourier_transforms() -> Result<()> {
    let _turn = turn();
    for n in [1, 8, 12, 100, 257, 1024] {
        let x = randn(&[5, n])?;
        let parts = |t: Tensor| t.view_as_real();
        agree("rfft", 1e-5, &[&x], |t| parts(t[0].rfft(None, -1, FftNorm::Backward)?))?;
        agree("there and back", 1e-5, &[&x], |t| {
            t[0].rfft(None, -1, FftNorm::Ortho)?.irfft(Some(n), -1, FftNorm::Ortho)
        })?;
        agree("fft down", 1e-5, &[&x], |t| parts(t[0].transpose(0, 1)?.fft(None, 0, FftNorm::Forward)?))?;
        agree("ifft", 1e-10, &[&x.to_dtype(DType::F64)?], |t| parts(t[0].ifft(None, -1, FftNorm::Backward)?))?;
    }
    Ok(())
}

/// The last dimensions are one transform of the vendor's library; others one by one.
#[test]
fn fourier_transforms_of_several_dimensions() -> Result<()> {
    let _turn = turn();
    let x = randn(&[2, 6, 5, 8])?;
    let norm = FftNorm::Backward;
    for dims in [&[-2isize, -1][..], &[1, 2, 3], &[0, 1, 2, 3], &[1, 2], &[0, 3]] {
        let wave = |t: &Tensor| complex(t, &t.mul(0.5)?.add(0.25)?)?.fftn(None, Some(dims), norm)?.view_as_real();
        learn(&format!("fftn {dims:?}"), 1e-4, &[&x], |t| wave(&t[0]))?;
        let back = |t: &Tensor| t.rfftn(None, Some(dims), norm)?.irfftn(None, Some(dims), FftNorm::Ortho);
        learn(&format!("rfftn and back {dims:?}"), 1e-4, &[&x], |t| back(&t[0]))?;
        let longer = |t: &Tensor| t.rfftn(Some(&vec![7; dims.len()]), Some(dims), norm)?.view_as_real();
        learn(&format!("rfftn of 7 {dims:?}"), 1e-4, &[&x], |t| longer(&t[0]))?;
    }
    let x = x.to_dtype(DType::F64)?;
    agree("ifftn", 1e-10, &[&x], |t| t[0].ifftn(None, None, FftNorm::Forward)?.view_as_real())
}

#[test]
fn complex_numbers() -> Result<()> {
    let _turn = turn();
    for (dtype, close) in [(DType::F32, 1e-5), (DType::F64, 1e-12)] {
        let [a, b] = [randn(&[3, 7, 5, 2])?.to_dtype(dtype)?, randn(&[3, 5, 4, 2])?.to_dtype(dtype)?];
        let ops: [(&str, fn(&Tensor, &Tensor) -> Result<Tensor>); 5] = [
            ("product", |x, y| x.mul(y)),
            ("product with the conjugate", |x, y| x.mul(&y.conj()?)),
            ("quotient", |x, y| x.div(y)),
            ("one number", |x, y| x.mul(&y.narrow(0, 1, 1)?.narrow(1, 2, 1)?.narrow(2, 3, 1)?)),
            ("matrix product", |x, y| x.matmul(&y.mt()?.narrow(1, 0, 5)?)),
        ];
        for (name, op) in ops {
            learn(&format!("{name} of {dtype}"), close, &[&a, &a.flip(0)?], |t| {
                op(&t[0].view_as_complex()?, &t[1].view_as_complex()?)?.view_as_real()
            })?;
        }
        learn(&format!("batched {dtype}"), close, &[&a, &b], |t| {
            t[0].view_as_complex()?.matmul(&t[1].view_as_complex()?)?.view_as_real()
        })?;
        // Division by zero and by numbers of very different parts.
        let below = Tensor::new([[0.0, 0.0], [1e-30, 1.0], [1.0, 1e-30], [-2.0, 0.0]])?.to_dtype(dtype)?;
        let above = Tensor::new([[1.0, -1.0], [1.0, 2.0], [3.0, -1.0], [0.5, 4.0]])?.to_dtype(dtype)?;
        agree("quotients", close, &[&above, &below], |t| {
            let y = t[0].view_as_complex()?.div(&t[1].view_as_complex()?)?;
            y.view_as_real()?.nan_to_num(Some(7.0), Some(8.0), Some(9.0))
        })?;
    }
    Ok(())
}
