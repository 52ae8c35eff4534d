//! Batched matrix products (`kernels/matmul.cl`).

use crate::device::{Scratch, Xpu};
use crate::driver::Arg;
use crate::program::{Argument, At, Defines, Family, Key, Kind, Number, run};
use rushlight_core::backend::{Activation, MatMul};
use rushlight_core::{Error, Result, View};

/// Multiplications from which on operands are packed and multiplied in tiles.
const TILED: u64 = 1 << 15;

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
        let work = problem.batch.saturating_mul(problem.m).saturating_mul(problem.n).saturating_mul(problem.k);
        let tiled = dtype.is_float() && work >= TILED;
        let (alpha, beta) = (kind.number(spec.alpha), kind.number(spec.beta));
        let flags = activation | (spec.bias.is_some() as u32) << 4 | ((spec.beta != 0.0) as u32) << 5;
        if tiled {
            return self.matmul_tiles(spec, &problem, kind, [alpha, beta], flags);
        }
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

    /// The tiled kernels: both operands are packed into panels first, so any strides and half types cost one pass.
    fn matmul_tiles(&self, spec: &MatMul, p: &Problem, kind: Kind, factors: [Number; 2], flags: u32) -> Result<()> {
        let (dtype, out) = (spec.a.dtype, spec.out);
        let cpu = self.driver.abilities().is_cpu;
        let lanes = if kind == Kind::F64 { 8 } else { 16 };
        // Rows and columns of a tile.
        let (rows, columns) = if cpu { (12, 2 * lanes) } else { (64, 64) };
        let (a, a_batch) = self.panels(spec.a, kind, rows, [p.a[0], p.a[1], p.a[2]], [p.batch, p.m, p.k])?;
        let (b, b_batch) = self.panels(spec.b, kind, columns, [p.b[0], p.b[2], p.b[1]], [p.batch, p.n, p.k])?;
        let key = Key::new(Family::MatMul, "matmul_tiles", [kind as u16, dtype as u16, out.dtype as u16]);
        let kernel = self.kernel(key, || {
            Defines::default()
                .define("TILES", 1)
                .kind(kind)
                .dtype("T", dtype)
                .dtype("OUT", out.dtype)
                .define("CPU_TILES", cpu as u8)
                .define("ROWS", rows)
                .define("VECTORS", 2)
                .define("LANES", lanes)
                .define("VECTOR", format!("{}{lanes}", kind.c_type()))
                .define("VLOAD", format!("vload{lanes}"))
                .define("VSTORE", format!("vstore{lanes}"))
        })?;
        let (left, right, to) = (At(a.address), At(b.address), At(out.ptr() as u64));
        let bias = At(spec.bias.map_or(to.0, |bias| bias.ptr() as u64));
        let [alpha, beta] = factors;
        let groups = [(p.m as usize).div_ceil(rows), (p.n as usize).div_ceil(columns), p.batch as usize];
        let items = if cpu { [1, 1, 1] } else { [16, 16, 1] };
        run!(self, kernel, groups, items; p, left, right, a_batch, b_batch, bias, to, alpha, beta, flags)
    }

    /// An operand in panels of `width` rows (of `a`) or columns (of `b`): the memory, and the elements between batches. `strides` and `sizes` are of
    /// batch, rows or columns, and depth. An operand that all batches share is packed once.
    fn panels(
        &self,
        x: View,
        kind: Kind,
        width: usize,
        strides: [i64; 3],
        sizes: [u64; 3],
    ) -> Result<(Scratch<'_>, u64)> {
        let [batch, count, depth] = sizes.map(|n| n as usize);
        let batch = if strides[0] == 0 { 1 } else { batch };
        let (number, dense) = (count.div_ceil(width), strides[1] == 1);
        let key = Key::new(Family::MatMul, "pack", [kind as u16, x.dtype as u16, width as u16, dense as u16]);
        let kernel = self.kernel(key, || {
            let defines = Defines::default().define("PACK", 1).kind(kind).dtype("T", x.dtype);
            defines.define("WIDTH", width).define("DENSE", dense as u8)
        })?;
        let size = if kind == Kind::F64 { 8 } else { 4 };
        let scratch = self.scratch(batch * number * depth * width * size)?;
        let (from, to) = (At(x.ptr() as u64), At(scratch.address));
        const GROUP: usize = 16;
        run!(self, kernel, [depth.div_ceil(GROUP), number, batch], [GROUP, 1, 1];
            from, to, count, depth, strides[1], strides[2], strides[0])?;
        Ok((scratch, if strides[0] == 0 { 0 } else { (number * depth * width) as u64 }))
    }
}
