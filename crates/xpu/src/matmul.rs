//! Batched matrix products (`kernels/matmul.cl`).

use crate::device::{Scratch, Xpu};
use crate::driver::Arg;
use crate::program::{Argument, At, Defines, Family, Key, Kind, Number, run};
use rushlight_core::backend::{Activation, MatMul};
use rushlight_core::{DType, Error, Result, View};

/// Multiplications from which on operands are packed and multiplied in tiles.
const TILED: u64 = 1 << 15;

/// Flags of the kernels beside the activation; the same as in `matmul.cl`.
const WITH_BIAS: u32 = 16;
const WITH_OUTPUT: u32 = 32;
const BIAS_OF_ROWS: u32 = 64;

/// Sizes and strides; the same as `Problem` in `matmul.cl`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Problem {
    heads: u64,
    m: u64,
    n: u64,
    k: u64,
    a: [i64; 4],
    b: [i64; 4],
    out: [i64; 4],
    bias: i64,
}

impl Argument for Problem {
    fn arg(&self) -> Arg<'_> {
        // SAFETY: a plain struct without padding, which the kernel declares alike.
        Arg::Value(unsafe { std::slice::from_raw_parts((self as *const Self).cast(), size_of::<Self>()) })
    }
}

/// A matrix for each head of each image.
#[derive(Clone, Copy)]
pub struct Matrix {
    pub address: u64,
    pub dtype: DType,
    /// Of images, heads, rows and columns.
    pub strides: [i64; 4],
}

impl Matrix {
    /// A batch of matrices `[batch, rows, columns]`.
    pub fn of(view: View) -> Self {
        let s = view.strides();
        Self { address: view.ptr() as u64, dtype: view.dtype, strides: [s[0] as i64, 0, s[1] as i64, s[2] as i64] }
    }

    pub fn transposed(self) -> Self {
        let [image, head, row, column] = self.strides;
        Self { strides: [image, head, column, row], ..self }
    }
}

/// `out = activation(alpha * a @ b + beta * out + bias)` for each head of each image. Operands may differ in dtype; sums have the wider's arithmetic.
#[derive(Clone, Copy)]
pub struct Product {
    pub images: usize,
    pub heads: usize,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: Matrix,
    pub b: Matrix,
    pub out: Matrix,
    /// Address, dtype and stride.
    pub bias: Option<(u64, DType, i64)>,
    pub alpha: f64,
    pub beta: f64,
    pub activation: Activation,
}

impl Product {
    /// Without bias and activation.
    pub fn new([images, heads]: [usize; 2], [m, n, k]: [usize; 3], a: Matrix, b: Matrix, out: Matrix) -> Self {
        let (alpha, beta, activation) = (1.0, 0.0, Activation::None);
        Self { images, heads, m, n, k, a, b, out, bias: None, alpha, beta, activation }
    }

    fn batch(&self) -> usize {
        self.images * self.heads
    }

    fn problem(&self) -> Problem {
        Problem {
            heads: self.heads as u64,
            m: self.m as u64,
            n: self.n as u64,
            k: self.k as u64,
            a: self.a.strides,
            b: self.b.strides,
            out: self.out.strides,
            bias: self.bias.map_or(0, |bias| bias.2),
        }
    }

    /// The same computed transposed.
    fn transposed(&self) -> Self {
        Self {
            m: self.n,
            n: self.m,
            a: self.b.transposed(),
            b: self.a.transposed(),
            out: self.out.transposed(),
            ..*self
        }
    }
}

impl Xpu {
    pub fn matmul(&self, spec: &MatMul) -> Result<()> {
        let (dtype, shape) = (spec.a.dtype, spec.out.shape());
        if spec.b.dtype != dtype || spec.bias.is_some_and(|bias| bias.dtype != dtype) {
            return Err(Error::dtype(format!("matmul: one dtype is needed, not {dtype} and {}", spec.b.dtype)));
        }
        if !dtype.is_float() && matches!(spec.activation, Activation::Gelu | Activation::GeluTanh) {
            return Err(Error::dtype(format!("matmul: {:?} takes floats, not {dtype}", spec.activation)));
        }
        self.product(&Product {
            images: shape[0],
            heads: 1,
            m: shape[1],
            n: shape[2],
            k: spec.a.shape()[2],
            a: Matrix::of(spec.a),
            b: Matrix::of(spec.b),
            out: Matrix::of(spec.out),
            bias: spec.bias.map(|bias| (bias.ptr() as u64, bias.dtype, bias.strides()[0] as i64)),
            alpha: spec.alpha,
            beta: spec.beta,
            activation: spec.activation,
        })
    }

    /// Any product.
    pub fn product(&self, p: &Product) -> Result<()> {
        if p.batch() == 0 || p.m == 0 || p.n == 0 {
            return Ok(());
        }
        self.require(&[p.a.dtype, p.b.dtype, p.out.dtype])?;
        let activation = match p.activation {
            Activation::None => 0u32,
            Activation::Relu => 1,
            Activation::Gelu => 2,
            Activation::GeluTanh => 3,
        };
        let kind = if p.b.dtype == DType::F64 { Kind::F64 } else { Kind::of(p.a.dtype) };
        let flags =
            activation | if p.bias.is_some() { WITH_BIAS } else { 0 } | if p.beta != 0.0 { WITH_OUTPUT } else { 0 };
        let work = [p.batch(), p.m, p.n, p.k].iter().fold(1u64, |work, &n| work.saturating_mul(n as u64));
        if kind != Kind::I64 && work >= TILED {
            return self.tiles(p, kind, flags);
        }
        let bias = p.bias.unwrap_or((p.out.address, p.out.dtype, 0));
        let codes = p.a.dtype as u32 | (p.out.dtype as u32) << 4 | (p.b.dtype as u32) << 8 | (bias.1 as u32) << 12;
        let key = Key::new(Family::MatMul, "matmul_plain", [kind as u16]);
        let kernel = self.kernel(key, || {
            Defines::default().define("PLAIN", 1).kind(kind).any("A", 0).any("OUT", 4).any("B", 8).any("C", 12)
        })?;
        let (a, b, out, bias) = (At(p.a.address), At(p.b.address), At(p.out.address), At(bias.0));
        let (alpha, beta) = (kind.number(p.alpha), kind.number(p.beta));
        const GROUP: usize = 64;
        run!(self, kernel, [p.n.div_ceil(GROUP), p.m, p.batch()], [GROUP, 1, 1];
            p.problem(), a, b, bias, out, alpha, beta, codes, flags)
    }

    /// The tiled kernels. The right operand is packed into panels; so is the left one, but where a CPU can read it where it lies.
    fn tiles(&self, p: &Product, kind: Kind, flags: u32) -> Result<()> {
        let cpu = self.driver.abilities().is_cpu;
        let arithmetic = if kind == Kind::F64 { DType::F64 } else { DType::F32 };
        // Few rows times a weight whose rows lie in a line: transposed, the weight needs no packing.
        let is_direct = |x: &Matrix| cpu && x.dtype == arithmetic && (x.strides[3] == 1 || x.strides[2] == 1);
        let few = cpu && p.m <= 64 && p.n >= 4 * p.m;
        let (p, flags) = if few && p.b.dtype == arithmetic && p.b.strides[2] == 1 {
            (&p.transposed(), flags | BIAS_OF_ROWS)
        } else {
            (p, flags)
        };
        let lanes = if kind == Kind::F64 { 8 } else { 16 };
        // Rows and columns of a tile.
        let (rows, columns) = if cpu { (12, 2 * lanes) } else { (64, 64) };
        // Rows that lie a multiple of 2 KiB apart share a set of the cache.
        let row_bytes = p.a.strides[2].unsigned_abs() * arithmetic.size() as u64;
        let form = match &p.a {
            a if !is_direct(a) => 0,
            a if a.strides[3] == 1 && (!row_bytes.is_multiple_of(2048) || p.n <= 2 * columns) => 1u16,
            a if a.strides[2] == 1 => 2,
            _ => 0,
        };
        let (a, a_batch) = match form {
            0 => {
                let (scratch, batch) = self.panels(p.a, kind, rows, [p.images, p.heads, p.m, p.k])?;
                (Some(scratch), batch)
            }
            _ => (None, 0),
        };
        let (b, b_batch) = self.panels(p.b.transposed(), kind, columns, [p.images, p.heads, p.n, p.k])?;
        let bias = p.bias.unwrap_or((p.out.address, p.out.dtype, 0));
        let tags = [kind as u16, p.out.dtype as u16, bias.1 as u16, form];
        let kernel = self.kernel(Key::new(Family::MatMul, "matmul_tiles", tags), || {
            let defines = Defines::default().define("TILES", 1).define("ROWS", rows).define("VECTORS", 2);
            let defines = defines.define("LEFT_FORM", form).vector("OUT", p.out.dtype).vector("C", bias.1);
            if cpu { defines.lanes(kind, lanes) } else { defines.kind(kind) }
        })?;
        let left = At(a.as_ref().map_or(p.a.address, |a| a.address));
        let (right, out, bias) = (At(b.address), At(p.out.address), At(bias.0));
        let (alpha, beta): (Number, Number) = (kind.number(p.alpha), kind.number(p.beta));
        let groups = [p.m.div_ceil(rows), p.n.div_ceil(columns), p.batch()];
        let items = if cpu { [1, 1, 1] } else { [16, 16, 1] };
        run!(self, kernel, groups, items; p.problem(), left, right, a_batch, b_batch, bias, out, alpha, beta, flags)
    }

    /// An operand in panels of `width` rows: the memory, and the elements between batches. `sizes` are images, heads, rows and depth. A matrix that all
    /// batches share is packed once.
    fn panels(&self, x: Matrix, kind: Kind, width: usize, sizes: [usize; 4]) -> Result<(Scratch<'_>, u64)> {
        let [images, heads, count, depth] = sizes;
        let [image_stride, head_stride, stride, depth_stride] = x.strides;
        let shared = (image_stride == 0 || images == 1) && (head_stride == 0 || heads == 1);
        let batch = if shared { 1 } else { images * heads };
        let (number, dense) = (count.div_ceil(width), stride == 1);
        let key = Key::new(Family::MatMul, "pack", [kind as u16, x.dtype as u16, width as u16, dense as u16]);
        let kernel = self.kernel(key, || {
            let defines = Defines::default().define("PACK", 1).kind(kind).dtype("T", x.dtype);
            defines.define("WIDTH", width).define("DENSE", dense as u8)
        })?;
        let size = if kind == Kind::F64 { 8 } else { 4 };
        let scratch = self.scratch(batch * number * depth * width * size)?;
        let (from, to) = (At(x.address), At(scratch.address));
        const GROUP: usize = 16;
        run!(self, kernel, [depth.div_ceil(GROUP), number, batch], [GROUP, 1, 1];
            from, to, count, depth, stride, depth_stride, heads, image_stride, head_stride)?;
        Ok((scratch, if shared { 0 } else { (number * depth * width) as u64 }))
    }
}
