//! Complex numbers of their parts, and Fourier transforms.

use crate::rows;
use rushlight_core::{Error, Result};
use rushlight_tensor::{FftNorm, Tensor, complex, polar};

fn norm(text: Option<&str>) -> Result<FftNorm> {
    match text {
        None | Some("backward") => Ok(FftNorm::Backward),
        Some("forward") => Ok(FftNorm::Forward),
        Some("ortho") => Ok(FftNorm::Ortho),
        Some(other) => Err(Error::value(format!("Invalid normalization mode: \"{other}\""))),
    }
}

fn points(n: Option<i64>) -> Result<Option<usize>> {
    n.map(|n| {
        usize::try_from(n)
            .ok()
            .filter(|&n| n > 0)
            .ok_or_else(|| Error::value(format!("Invalid number of data points ({n}) specified")))
    })
    .transpose()
}

type Many = fn(&Tensor, Option<&[isize]>, Option<&[isize]>, FftNorm) -> Result<Tensor>;

fn many(f: Many, input: &Tensor, s: Option<&[i64]>, dim: Option<&[i64]>, text: Option<&str>) -> Result<Tensor> {
    let s: Option<Vec<isize>> = s.map(|s| s.iter().map(|&n| n as isize).collect());
    let dim: Option<Vec<isize>> = dim.map(|d| d.iter().map(|&d| d as isize).collect());
    f(input, s.as_deref(), dim.as_deref(), norm(text)?)
}

macro_rules! transforms {
    ($table:ident: $($(#[doc = $doc:literal])* $one:ident $two:ident $several:ident;)*) => {
        rows! { $table: $(
            $(#[doc = $doc])*
            $one [Fft] { concat!(stringify!($one), "(Tensor input, int? n=None, int dim=-1, str? norm=None)") }
                |input: &Tensor, n: Option<i64>, dim: isize, text: Option<&str>| input.$one(points(n)?, dim, norm(text)?);
            $(#[doc = $doc])*
            #[doc = " Along two dimensions."]
            $two [Fft] { concat!(stringify!($two), "(Tensor input, int[1]? s=None, int[1]? dim=None, str? norm=None)") }
                |input: &Tensor, s: Option<&[i64]>, dim: Option<&[i64]>, text: Option<&str>|
                    many(Tensor::$several, input, s, Some(dim.unwrap_or(&[-2, -1])), text);
            $(#[doc = $doc])*
            #[doc = " Along several dimensions."]
            $several [Fft] { concat!(stringify!($several), "(Tensor input, int[1]? s=None, int[1]? dim=None, str? norm=None)") }
                |input: &Tensor, s: Option<&[i64]>, dim: Option<&[i64]>, text: Option<&str>|
                    many(Tensor::$several, input, s, dim, text);
        )* }
    };
}

transforms! { TRANSFORMS:
    /// The discrete Fourier transform.
    fft fft2 fftn;
    /// The inverse discrete Fourier transform.
    ifft ifft2 ifftn;
    /// The discrete Fourier transform of a real signal, its first half.
    rfft rfft2 rfftn;
    /// The real signal of the first half of its transform.
    irfft irfft2 irfftn;
    /// The real transform of a Hermitian signal, given by its first half.
    hfft hfft2 hfftn;
    /// The inverse of the transform of a Hermitian signal, its first half.
    ihfft ihfft2 ihfftn;
}

fn shifted(input: &Tensor, dim: Option<&[i64]>, back: bool) -> Result<Tensor> {
    let dims: Vec<isize> = match dim {
        Some(dim) => dim.iter().map(|&d| d as isize).collect(),
        None => (0..input.rank() as isize).collect(),
    };
    let mut shifts = Vec::with_capacity(dims.len());
    for &d in &dims {
        let n = input.size(d)?;
        shifts.push((if back { n.div_ceil(2) } else { n / 2 }) as isize);
    }
    if dims.is_empty() { Ok(input.clone()) } else { input.roll(shifts, dims) }
}

rows! { ROWS:
    /// Zero frequency moved to the middle.
    fftshift [Fft] "fftshift(Tensor input, int[1]? dim=None)" |input: &Tensor, dim: Option<&[i64]>| shifted(input, dim, false);
    /// The inverse of `fftshift`.
    ifftshift [Fft] "ifftshift(Tensor input, int[1]? dim=None)" |input: &Tensor, dim: Option<&[i64]>| shifted(input, dim, true);
    /// Complex numbers of their real and imaginary parts.
    complex [Torch] "complex(Tensor real, Tensor imag)" |real: &Tensor, imag: &Tensor| complex(real, imag);
    /// Complex numbers of their magnitudes and angles.
    polar [Torch] "polar(Tensor abs, Tensor angle)" |abs: &Tensor, angle: &Tensor| polar(abs, angle);
    /// A view of complex numbers as pairs of real ones.
    view_as_real [Torch] "view_as_real(Tensor input)" |input: &Tensor| input.view_as_real();
    /// A view of pairs of real numbers as complex ones.
    view_as_complex [Torch] "view_as_complex(Tensor input)" |input: &Tensor| input.view_as_complex();
    /// The real parts, a view.
    real [Torch] "real(Tensor input)" |input: &Tensor| input.real();
    /// The imaginary parts, a view.
    imag [Torch] "imag(Tensor input)" |input: &Tensor| input.imag();
}
