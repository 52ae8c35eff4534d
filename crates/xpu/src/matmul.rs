//! Batched matrix products (`kernels/matmul.cl`).

use crate::device::Xpu;
use crate::driver::Arg;
use crate::program::{Argument, At, Defines, Family, Key, Kind, run};
use rushlight_core::backend::{Activation, MatMul};
use rushlight_core::{Error, Result};

/// Sizes and strides; the same as `Problem` in `matmul.cl`.
#[repr(C)]
struct Problem {
    batch: u64,
    m: u64,
    n: u64,
    k: u64,
    a: [i64; 3],
    b: [i64; 3],
    out: [i64; 3],
    bias: i64,
}

impl Argument for Problem {
    fn arg(&self) -> Arg<'_> {
        // SAFETY: a plain struct without padding, which the kernel declares alike.
        Arg::Value(unsafe { std::slice::from_raw_parts((self as *const Self).cast(), size_of::<Self>()) })
    }
}

impl Xpu {
    pub fn matmul(&self, spec: &MatMul) -> Result<()> {
        let (dtype, out) = (spec.a.dtype, spec.out);
        if out.numel() == 0 {
            return Ok(());
        }
        self.require(&[dtype, out.dtype])?;
        if spec.b.dtype != dtype || spec.bias.is_some_and(|bias| bias.dtype != dtype) {
            return Err(Error::dtype(format!("matmul: one dtype is needed, not {dtype} and {}", spec.b.dtype)));
        }
        let strides = |s: &[usize]| -> [i64; 3] { std::array::from_fn(|d| s[d] as i64) };
        let (shape, k) = (out.shape(), spec.a.shape()[2]);
        let problem = Problem {
            batch: shape[0] as u64,
            m: shape[1] as u64,
            n: shape[2] as u64,
            k: k as u64,
            a: strides(spec.a.strides()),
            b: strides(spec.b.strides()),
            out: strides(out.strides()),
            bias: spec.bias.map_or(0, |bias| bias.strides()[0] as i64),
        };
        let activation = match spec.activation {
            Activation::None => 0u32,
            Activation::Relu => 1,
            Activation::Gelu => 2,
            Activation::GeluTanh => 3,
        };
        if activation > 1 && !dtype.is_float() {
            return Err(Error::dtype(format!("matmul: {:?} takes floats, not {dtype}", spec.activation)));
        }
        let kind = Kind::of(dtype);
        let (alpha, beta) = (kind.number(spec.alpha), kind.number(spec.beta));
        let flags = activation | (spec.bias.is_some() as u32) << 4 | ((spec.beta != 0.0) as u32) << 5;
        let codes = dtype as u32 | (out.dtype as u32) << 4;
        let key = Key::new(Family::MatMul, "matmul_plain", [kind as u16]);
        let kernel = self.kernel(key, || Defines::default().define("PLAIN", 1).kind(kind).any("T", 0).any("OUT", 4))?;
        let (a, b, to) = (At(spec.a.ptr() as u64), At(spec.b.ptr() as u64), At(out.ptr() as u64));
        // What a form does not use is any memory of ours.
        let bias = At(spec.bias.map_or(to.0, |bias| bias.ptr() as u64));
        const GROUP: usize = 64;
        run!(self, kernel, [shape[2].div_ceil(GROUP), shape[1], shape[0]], [GROUP, 1, 1];
            problem, a, b, bias, to, alpha, beta, codes, flags)
    }
}
