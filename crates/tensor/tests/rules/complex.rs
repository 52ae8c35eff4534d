//! Complex numbers and Fourier transforms: values by definition, derivatives by differences.

use rushlight_core::{DType, Result, Scalar};
use rushlight_tensor::autograd::gradcheck;
use rushlight_tensor::{FftNorm, Tensor, complex, polar};
use std::f64::consts::TAU;

/// Numbers that are not special, `[count, 2]`.
fn parts(count: usize) -> Tensor {
    let values: Vec<f64> = (0..2 * count).map(|k| ((k * k * 7 + 3 * k + 1) % 19) as f64 / 7.0 - 1.2).collect();
    Tensor::from_slice(&values, [count, 2]).unwrap()
}

fn numbers(t: &Tensor) -> Vec<[f64; 2]> {
    t.detach().view_as_real().unwrap().to_vec::<f64>().unwrap().chunks(2).map(|p| [p[0], p[1]]).collect()
}

/// The derivative of a function of complex numbers, taken by their parts.
fn check(name: &str, count: usize, f: impl Fn(&Tensor) -> Result<Tensor>) {
    let x = parts(count).requires_grad_(true).unwrap();
    let real = |xs: &[Tensor]| {
        let y = f(&xs[0].view_as_complex()?)?;
        Ok(vec![if y.is_complex() { y.view_as_real()? } else { y }])
    };
    gradcheck(real, &[x]).unwrap_or_else(|e| panic!("{name}: {e}"));
}

#[test]
fn derivatives_are_those_of_the_parts() {
    check("mul", 4, |z| z.mul(&z.exp()?));
    check("div", 4, |z| z.rdiv(Scalar::Complex(1.0, 2.0))?.div(&z.add(Scalar::Complex(3.0, 1.0))?));
    check("conj", 4, |z| z.conj()?.mul(z));
    check("log", 4, |z| z.log());
    check("sqrt", 4, |z| z.sqrt());
    check("tanh", 4, |z| z.tanh());
    check("asin", 4, |z| z.asin());
    check("abs", 4, |z| z.abs());
    check("angle", 4, |z| z.angle());
    check("sgn", 4, |z| z.sgn());
    check("pow", 4, |z| z.pow(&z.mul(0.5)?));
    check("prod", 4, |z| z.prod(..));
    check("cumprod", 4, |z| z.cumprod(0));
    check("var", 4, |z| z.var(..));
    check("matmul", 4, |z| z.reshape([2, 2])?.matmul(&z.reshape([2, 2])?.mh()?));
    check("inv", 4, |z| z.reshape([2, 2])?.inv());
    check("flip", 4, |z| z.flip([0])?.narrow(0, 1, 2)?.mul(&z.select(0, 3)?.conj()?));
    check("fft", 6, |z| z.fft(None, -1, FftNorm::Ortho));
    check("ifft", 5, |z| z.ifft(Some(7), -1, FftNorm::Backward));
    check("irfft", 5, |z| z.irfft(None, -1, FftNorm::Backward));
    check("irfft of an odd size", 5, |z| z.irfft(Some(9), -1, FftNorm::Forward));
    check("hfft", 4, |z| z.hfft(None, -1, FftNorm::Backward));
    check("rfft", 4, |z| z.real()?.rfft(None, -1, FftNorm::Backward));
    check("fftn", 6, |z| z.reshape([2, 3])?.fftn(None, None, FftNorm::Backward));
    check("fftn of other sizes", 8, |z| z.reshape([2, 2, 2])?.fftn(Some(&[3, 1]), Some(&[0, 2]), FftNorm::Ortho));
    check("rfftn", 6, |z| z.real()?.reshape([2, 3])?.rfftn(None, None, FftNorm::Backward));
    check("irfftn", 6, |z| z.reshape([2, 3])?.irfftn(None, None, FftNorm::Backward));
    check("rms_norm", 4, |z| z.reshape([2, 2])?.rms_norm(&[2], Some(&z.narrow(0, 0, 2)?), Some(0.5)));
}

#[test]
fn transforms_are_those_of_the_definition() {
    for n in [1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 16, 17, 30, 34, 64, 97, 120, 200, 256, 500, 625] {
        let x = parts(n).view_as_complex().unwrap();
        let values = numbers(&x);
        let found = numbers(&x.fft(None, -1, FftNorm::Backward).unwrap());
        for (k, found) in found.iter().enumerate() {
            let mut sum = [0.0; 2];
            for (j, [re, im]) in values.iter().enumerate() {
                let (s, c) = (-TAU * ((j * k) % n) as f64 / n as f64).sin_cos();
                sum = [sum[0] + re * c - im * s, sum[1] + re * s + im * c];
            }
            assert!((sum[0] - found[0]).abs() < 1e-10 && (sum[1] - found[1]).abs() < 1e-10, "{n}: {sum:?} {found:?}");
        }
        let back = numbers(&x.fft(None, -1, FftNorm::Ortho).unwrap().ifft(None, -1, FftNorm::Ortho).unwrap());
        assert!(back.iter().zip(&values).all(|(a, b)| (a[0] - b[0]).abs() < 1e-12 && (a[1] - b[1]).abs() < 1e-12));
        let real = x.real().unwrap();
        let again = real.rfft(None, -1, FftNorm::Backward).unwrap().irfft(Some(n), -1, FftNorm::Backward).unwrap();
        assert!(again.allclose(&real, 1e-12, 1e-12).unwrap(), "{n}");
    }
}

/// Lines in any order of memory have the transforms of each by itself: whole vectors of them, and what is left over.
#[test]
fn transforms_of_many_lines_are_those_of_each() {
    for n in [3, 8, 17, 48, 100, 256] {
        let x = parts(2 * n * 19).view_as_complex().unwrap().reshape([2, n, 19]).unwrap();
        let rows = x.movedim(1, 2).unwrap().contiguous().unwrap();
        let found = numbers(&x.fft(None, 1, FftNorm::Backward).unwrap().movedim(1, 2).unwrap().contiguous().unwrap());
        let together = numbers(&rows.fft(None, -1, FftNorm::Backward).unwrap());
        for row in 0..2 {
            for side in 0..19 {
                let line = rows.select(0, row).unwrap().select(0, side).unwrap();
                let alone = numbers(&line.fft(None, -1, FftNorm::Backward).unwrap());
                let at = (row as usize * 19 + side as usize) * n;
                for (k, alone) in alone.iter().enumerate() {
                    for found in [found[at + k], together[at + k]] {
                        let gap = (found[0] - alone[0]).abs().max((found[1] - alone[1]).abs());
                        assert!(gap < 1e-10, "{n}: line {row}, {side}: {found:?} {alone:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn parts_are_views() {
    let z = Tensor::zeros_with([3], DType::C64).unwrap();
    z.real().unwrap().copy_(&Tensor::new([1.0, 2.0, 3.0]).unwrap()).unwrap();
    z.imag().unwrap().fill_(-1.0).unwrap();
    assert_eq!(z.to_string(), "tensor([1.-1.j, 2.-1.j, 3.-1.j])");
    assert!(z.view_as_real().unwrap().shares_storage(&z));
    assert!(Tensor::ones([2, 3]).unwrap().view_as_complex().is_err());
    assert!(z.lt(1.0).is_err() && z.floor().is_err() && z.abs_().is_err());
    assert_eq!(z.select(0, 1).unwrap().to_scalar().unwrap(), Scalar::Complex(2.0, -1.0));
}

#[test]
fn changes_of_parts_are_recorded() {
    let x = parts(3).requires_grad_(true).unwrap();
    let changed = |xs: &[Tensor]| {
        let z = xs[0].view_as_complex()?.mul(2.0)?;
        z.real()?.mul_(&z.imag()?.copy()?)?;
        Ok(vec![z.abs()?])
    };
    gradcheck(changed, &[x]).unwrap();
}

#[test]
fn kinds_of_numbers_promote() {
    let (single, double) = (Tensor::ones([2]).unwrap(), Tensor::ones_with([2], DType::F64).unwrap());
    let i = Scalar::Complex(0.0, 1.0);
    assert_eq!(single.mul(i).unwrap().dtype(), DType::C64);
    assert_eq!(double.mul(i).unwrap().dtype(), DType::C128);
    assert_eq!(complex(&single, &single).unwrap().add(&double).unwrap().dtype(), DType::C128);
    assert_eq!(Tensor::arange(0, 2, 1).unwrap().add(i).unwrap().dtype(), DType::C64);
    assert!(single.mul_(i).is_err());
}

/// Asserts that two tensors of complex or real numbers are equal.
fn assert_equal(found: &Tensor, expected: &Tensor) {
    let plain = |t: &Tensor| if t.is_complex() { t.view_as_real() } else { Ok(t.clone()) }.unwrap().to_vec::<f64>();
    assert_eq!(found.shape(), expected.shape());
    for (a, b) in plain(found).unwrap().iter().zip(plain(expected).unwrap()) {
        assert!((a - b).abs() < 1e-12, "{found} {expected}");
    }
}

#[test]
fn transforms_of_several_dimensions_are_those_of_each() -> Result<()> {
    let norm = FftNorm::Backward;
    let z = parts(12).view_as_complex()?.reshape([3, 4])?;
    let x = z.real()?.copy()?;
    assert_equal(&z.ifftn(None, None, norm)?, &z.ifft(None, 0, norm)?.ifft(None, 1, norm)?);
    assert_equal(&x.rfftn(None, None, norm)?, &x.rfft(None, 1, norm)?.fft(None, 0, norm)?);
    let half = x.rfftn(None, None, norm)?;
    assert_equal(&half.irfftn(Some(&[3, 4]), None, norm)?, &x);
    assert_equal(&z.hfftn(None, None, norm)?, &z.fft(None, 0, norm)?.hfft(None, 1, norm)?);
    assert_equal(&x.ihfft(None, 1, norm)?, &x.rfft(None, 1, norm)?.conj()?.div(4.0)?);
    assert_equal(&x.ihfftn(None, None, norm)?, &x.ihfft(None, 1, norm)?.ifft(None, 0, norm)?);
    Ok(())
}

/// A batch of more than fits the caches is transformed in groups, all but the first dimension in place.
#[test]
fn batches_are_transformed_in_groups() -> Result<()> {
    let norm = FftNorm::Backward;
    let z = parts(5 * 128 * 512).view_as_complex()?.reshape([5, 128, 512])?;
    let kept = z.copy()?;
    let close = |found: &Tensor, expected: &Tensor| {
        found.sub(expected)?.abs()?.max(..)?.item::<f64>().map(|gap| assert!(gap < 1e-7, "{gap}"))
    };
    close(&z.fftn(None, Some(&[2, 1]), norm)?, &z.fft(None, 1, norm)?.fft(None, 2, norm)?)?;
    close(&z.ifftn(None, Some(&[0, 2]), norm)?, &z.ifft(None, 2, norm)?.ifft(None, 0, norm)?)?;
    let turned = z.transpose(0, 2)?;
    close(&turned.fftn(None, Some(&[1, 2]), norm)?, &turned.fft(None, 1, norm)?.fft(None, 2, norm)?)?;
    let x = z.real()?.copy()?;
    close(&x.rfftn(None, Some(&[1, 2]), norm)?, &x.rfft(None, 2, norm)?.fft(None, 1, norm)?)?;
    assert_equal(&z, &kept);
    let error = z.fftn(None, Some(&[1, -2]), norm).unwrap_err().to_string();
    assert!(error.contains("dims must be unique"), "{error}");
    Ok(())
}

#[test]
fn numbers_are_made_of_magnitude_and_angle() -> Result<()> {
    let z = parts(5).view_as_complex()?;
    assert_equal(&polar(&z.abs()?, &z.angle()?)?, &z);
    assert!(polar(&z.abs()?, &z.angle()?.to_dtype(DType::F32)?).unwrap_err().to_string().contains("scalar type"));
    Ok(())
}
