//! Batched matrix products (`kernels/matmul.cl`).

use crate::device::{Scratch, Xpu};
use crate::driver::Arg;
use crate::matmul_xmx::MatrixUnits;
use crate::program::{Argument, At, Defines, Family, Key, Kind, Number, run};
use rushlight_core::backend::{Activation, MatMul};
use rushlight_core::{DType, Error, Result, View};

/// Multiplications from which operands are packed and multiplied in tiles.
const TILED: u64 = 1 << 15;

/// Flags of the kernels besides the activation; match `matmul.cl`.
const WITH_BIAS: u32 = 16;
const WITH_OUTPUT: u32 = 32;
const BIAS_OF_ROWS: u32 = 64;
const ROW_FACTORS: u32 = 128;

/// Sizes and strides; matches `Problem` in `matmul.cl`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Problem {
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
    /// Strides of images, heads, rows and columns.
    pub strides: [i64; 4],
}

impl Matrix {
    /// A batch of matrices `[batch, rows, columns]`.
    pub fn of(view: View) -> Self {
        let s = view.strides();
        Self { address: view.ptr() as u64, dtype: view.dtype(), strides: [s[0] as i64, 0, s[1] as i64, s[2] as i64] }
    }

    pub fn transposed(self) -> Self {
        let [image, head, row, column] = self.strides;
        Self { strides: [image, head, column, row], ..self }
    }
}

/// `out = activation(alpha * a @ b + beta * out + bias)` for each head of each image. Operands may differ in dtype;
/// sums use the wider one's arithmetic.
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
    /// Instead of a bias: the address of a factor for each row, `[images, heads, m]`, of the type of sums.
    pub row_factors: Option<u64>,
    /// The right operand in panels, from [`Xpu::packed`]: address, and batch stride in elements.
    pub packed: Option<(u64, u64)>,
    pub alpha: f64,
    pub beta: f64,
    pub activation: Activation,
}

impl Product {
    /// Without bias and activation.
    pub fn new([images, heads]: [usize; 2], [m, n, k]: [usize; 3], a: Matrix, b: Matrix, out: Matrix) -> Self {
        let (alpha, beta, activation) = (1.0, 0.0, Activation::None);
        Self { images, heads, m, n, k, a, b, out, bias: None, row_factors: None, packed: None, alpha, beta, activation }
    }

    fn batch(&self) -> usize {
        self.images * self.heads
    }

    /// The arithmetic of sums.
    fn kind(&self) -> Kind {
        if self.b.dtype == DType::F64 { Kind::F64 } else { Kind::of(self.a.dtype) }
    }

    /// Multiplications.
    fn work(&self) -> u64 {
        [self.batch(), self.m, self.n, self.k].iter().fold(1u64, |work, &n| work.saturating_mul(n as u64))
    }

    pub fn problem(&self) -> Problem {
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

    /// The transposed problem.
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

/// Lanes of a CPU's vectors.
fn lanes(kind: Kind) -> usize {
    if kind == Kind::F64 { 8 } else { 16 }
}

/// Compile-time parameters of the tiled kernels.
struct Form {
    cpu: bool,
    /// Whether the transposed product is computed.
    transposed: bool,
    lanes: usize,
    rows: usize,
    columns: usize,
    /// Matches `LEFT_FORM` and `RIGHT_FORM` in `matmul.cl`.
    left: u16,
    right: u16,
}

impl Xpu {
    pub fn matmul(&self, spec: &MatMul) -> Result<()> {
        let (dtype, shape) = (spec.a.dtype(), spec.out.shape());
        if spec.b.dtype() != dtype || spec.bias.is_some_and(|bias| bias.dtype() != dtype) {
            return Err(Error::dtype(format!("matmul: one dtype is needed, not {dtype} and {}", spec.b.dtype())));
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
            bias: spec.bias.map(|bias| (bias.ptr() as u64, bias.dtype(), bias.strides()[0] as i64)),
            row_factors: None,
            packed: None,
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
        let kind = p.kind();
        let flags = activation
            | if p.bias.is_some() { WITH_BIAS } else { 0 }
            | if p.beta != 0.0 { WITH_OUTPUT } else { 0 }
            | if p.row_factors.is_some() { ROW_FACTORS } else { 0 };
        if kind != Kind::I64 && p.work() >= TILED {
            if self.takes_matrix_units(p) {
                let emulated = self.driver.abilities().matrix_units == MatrixUnits::Emulated;
                return self.product_xmx(p, flags, emulated);
            }
            if let Some((turned, by_rows)) = self.takes_vector(p, kind) {
                let (p, flags) = if turned { (&p.transposed(), flags | BIAS_OF_ROWS) } else { (p, flags) };
                return self.matrix_vector(p, kind, flags, by_rows);
            }
            return self.tiles(p, kind, flags);
        }
        let bias = p.bias.unwrap_or((p.row_factors.unwrap_or(p.out.address), p.out.dtype, 0));
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

    /// Whether a product is that of a matrix and a vector that a CPU reads in place: whether the vector is on the left,
    /// and whether the matrix is contiguous along its rows (else its columns).
    fn takes_vector(&self, p: &Product, kind: Kind) -> Option<(bool, bool)> {
        if !self.driver.abilities().is_cpu || p.n.min(p.m) != 1 || p.row_factors.is_some() || p.packed.is_some() {
            return None;
        }
        let turned = p.n != 1;
        let p = if turned { &p.transposed() } else { p };
        let arithmetic = if kind == Kind::F64 { DType::F64 } else { DType::F32 };
        let readable = p.b.dtype == arithmetic && (kind != Kind::F64 || p.a.dtype == DType::F64);
        match p.a.strides {
            _ if !readable => None,
            [.., 1] if p.b.strides[2] == 1 => Some((turned, true)),
            [.., 1, _] => Some((turned, false)),
            _ => None,
        }
    }

    /// A matrix times a vector on a CPU; see `takes_vector`.
    fn matrix_vector(&self, p: &Product, kind: Kind, flags: u32, by_rows: bool) -> Result<()> {
        const EACH: usize = 32;
        let bias = p.bias.unwrap_or((p.out.address, p.out.dtype, 0));
        let tags = [kind as u16, p.a.dtype as u16, p.out.dtype as u16, bias.1 as u16, by_rows as u16];
        let lanes = lanes(kind);
        let kernel = self.kernel(Key::new(Family::MatMul, "matrix_vector", tags), || {
            let defines = Defines::default().define("MATRIX_VECTOR", 1).define("BY_ROWS", by_rows as u8);
            let defines = defines.define("EACH", EACH).lanes(kind, lanes);
            defines.vector("A", p.a.dtype).vector("OUT", p.out.dtype).vector("C", bias.1)
        })?;
        let (a, b, out, bias) = (At(p.a.address), At(p.b.address), At(p.out.address), At(bias.0));
        let (alpha, beta) = (kind.number(p.alpha), kind.number(p.beta));
        let each = if by_rows { EACH } else { 8 * lanes };
        run!(self, kernel, [p.m.div_ceil(each), p.batch(), 1], [1, 1, 1];
            p.problem(), a, b, bias, out, alpha, beta, flags)
    }

    /// The tiled kernels. Operands are packed into panels, unless a CPU can read them in place as fast.
    pub fn tiles(&self, p: &Product, kind: Kind, flags: u32) -> Result<()> {
        let form = self.form(p, kind);
        let (p, flags) = if form.transposed { (&p.transposed(), flags | BIAS_OF_ROWS) } else { (p, flags) };
        let Form { cpu, lanes, rows, columns, left: left_form, right: right_form, .. } = form;
        let (mut a, mut b, mut batches) = (None, None, (0u64, 0u64));
        if left_form == 0 {
            let (scratch, batch) = self.panels(p.a, kind, rows, [p.images, p.heads, p.m, p.k])?;
            (a, batches.0) = (Some(scratch), batch);
        }
        match p.packed {
            Some((_, batch)) => batches.1 = batch,
            None if right_form == 0 => {
                let (scratch, batch) = self.panels(p.b.transposed(), kind, columns, [p.images, p.heads, p.n, p.k])?;
                (b, batches.1) = (Some(scratch), batch);
            }
            None => {}
        }
        let (m_tiles, n_tiles) = (p.m.div_ceil(rows), p.n.div_ceil(columns));
        // Where each work item packs its panel: its tiles along a column, and the work items of a batch.
        let wanted = (2 * self.driver.abilities().compute_units).div_ceil(n_tiles * p.batch());
        let each = m_tiles.div_ceil(wanted.clamp(1, m_tiles));
        let items = n_tiles * m_tiles.div_ceil(each);
        let packs = right_form > 1;
        if packs {
            b = Some(self.scratch(p.batch() * items * p.k * columns * kind.size())?);
        }
        let bias = p.bias.unwrap_or((p.row_factors.unwrap_or(p.out.address), p.out.dtype, 0));
        let tags = [kind as u16, p.out.dtype as u16, bias.1 as u16, left_form, right_form];
        let kernel = self.kernel(Key::new(Family::MatMul, "matmul_tiles", tags), || {
            let defines = Defines::default().define("TILES", 1).define("ROWS", rows).define("VECTORS", 2);
            let defines = defines.define("LEFT_FORM", left_form).define("RIGHT_FORM", right_form);
            let defines = defines.vector("OUT", p.out.dtype).vector("C", bias.1);
            let defines = if packs {
                let defines = defines.define("PACKS", 1).define("WIDTH", columns).define("ORDER", right_form - 1);
                defines.vector("T", p.b.dtype)
            } else {
                defines
            };
            if cpu { defines.lanes(kind, lanes) } else { defines.kind(kind) }
        })?;
        let left = At(a.as_ref().map_or(p.a.address, |a| a.address));
        let right = At(match (&b, p.packed) {
            (Some(b), _) if right_form == 0 => b.address,
            (None, Some((address, _))) => address,
            _ => p.b.address,
        });
        let (out, bias) = (At(p.out.address), At(bias.0));
        let (alpha, beta): (Number, Number) = (kind.number(p.alpha), kind.number(p.beta));
        if !cpu {
            return run!(self, kernel, [m_tiles, n_tiles, p.batch()], [16, 16, 1];
                p.problem(), left, right, batches.0, batches.1, bias, out, alpha, beta, flags);
        }
        if m_tiles.saturating_mul(n_tiles) > u32::MAX as usize / 2 {
            return Err(Error::unsupported(format!("{}: a product of {} x {} is too large", self.device, p.m, p.n)));
        }
        // Panels that stay in the L2 cache together.
        const CACHED: usize = 1 << 18;
        let near = (CACHED / (p.k * columns * kind.size())).clamp(1, n_tiles);
        let (near, items) = if packs { (each, items) } else { (near, m_tiles * n_tiles) };
        let panels = At(b.as_ref().map_or(p.out.address, |b| b.address));
        run!(self, kernel, [items, p.batch(), 1], [1, 1, 1];
            p.problem(), left, right, batches.0, batches.1, bias, out, alpha, beta, flags,
            m_tiles as u32, n_tiles as u32, near as u32, panels)
    }

    /// How a product of tiles is computed.
    fn form(&self, p: &Product, kind: Kind) -> Form {
        let cpu = self.driver.abilities().is_cpu;
        let lanes = lanes(kind);
        if !cpu {
            return Form { cpu, transposed: false, lanes, rows: 64, columns: 64, left: 0, right: 0 };
        }
        let arithmetic = if kind == Kind::F64 { DType::F64 } else { DType::F32 };
        let (rows, columns) = (12, 2 * lanes);
        // Few rows times a weight with contiguous rows: computed transposed, so the weight is not packed.
        let few = p.m <= 64 && p.n >= 4 * p.m && p.row_factors.is_none() && p.packed.is_none();
        let transposed = few && p.b.dtype == arithmetic && p.b.strides[2] == 1;
        let p = if transposed { &p.transposed() } else { p };
        // At multiples of these strides in bytes, the rows that a tile reads crowd into a few cache sets: 12 rows of
        // the left operand, k rows of the right one.
        let (left_set, right_set) = (2048, 1024);
        // Elements from which packing is cheap compared to the product.
        const LARGE: usize = 1 << 17;
        let spread = |stride: i64, set: u64| !(stride.unsigned_abs() * kind.size() as u64).is_multiple_of(set);
        let small = p.m * p.k < LARGE;
        let left = match &p.a {
            a if a.dtype != arithmetic => 0u16,
            a if a.strides[3] == 1 && (p.n <= 4 * columns || spread(a.strides[2], left_set) && small) => 1,
            a if a.strides[2] == 1 && (p.n <= 4 * columns || small) => 2,
            _ => 0,
        };
        let in_place = |stride| p.m <= 4 * rows || spread(stride, right_set);
        let shared = p.batch() > 1 && p.b.strides[..2] == [0; 2];
        let right = match &p.b {
            b if p.packed.is_some() || b.dtype != arithmetic || p.k * p.n >= LARGE => 0,
            b if b.strides[3] == 1 && p.n.is_multiple_of(columns) && in_place(b.strides[2]) => 1,
            // Packed by the product's own launch. Batches that share a matrix would pack it again and again.
            b if b.strides[3] == 1 && !shared => 2,
            b if b.strides[2] == 1 && !shared => 3,
            _ => 0,
        };
        Form { cpu, transposed, lanes, rows, columns, left, right }
    }

    /// The right operand in panels for several products like this one; `None` if such a product would not pack it.
    pub fn packed(&self, p: &Product) -> Result<Option<(Scratch<'_>, u64)>> {
        let kind = p.kind();
        if kind == Kind::I64 || p.work() < TILED || self.takes_matrix_units(p) {
            return Ok(None);
        }
        let form = self.form(p, kind);
        if form.transposed || form.right == 1 {
            return Ok(None);
        }
        self.panels(p.b.transposed(), kind, form.columns, [p.images, p.heads, p.n, p.k]).map(Some)
    }

    /// An operand in panels of `width` rows: the memory, and the batch stride in elements. `sizes` are images, heads,
    /// rows and depth. A matrix shared by all batches is packed once.
    pub fn panels(&self, x: Matrix, kind: Kind, width: usize, sizes: [usize; 4]) -> Result<(Scratch<'_>, u64)> {
        let [images, heads, count, depth] = sizes;
        let [image_stride, head_stride, stride, depth_stride] = x.strides;
        let shared = (image_stride == 0 || images == 1) && (head_stride == 0 || heads == 1);
        let batch = if shared { 1 } else { images * heads };
        let number = count.div_ceil(width);
        let order = match (stride, depth_stride) {
            // Vectors of f64 can only be loaded from f64.
            _ if kind == Kind::F64 && x.dtype != DType::F64 => 0u16,
            (1, _) => 1,
            (_, 1) => 2,
            _ => 0,
        };
        let cpu = self.driver.abilities().is_cpu;
        let key = Key::new(Family::MatMul, "pack", [kind as u16, x.dtype as u16, width as u16, order]);
        let kernel = self.kernel(key, || {
            let defines = Defines::default().define("PACK", 1).define("WIDTH", width);
            if cpu {
                let defines = defines.define("ORDER", order).define("CHUNK", CHUNK);
                defines.lanes(kind, lanes(kind)).vector("T", x.dtype)
            } else {
                defines.kind(kind).dtype("T", x.dtype)
            }
        })?;
        let scratch = self.scratch(batch * number * depth * width * kind.size())?;
        let (from, to) = (At(x.address), At(scratch.address));
        // Elements along the depth per work item of a CPU.
        const CHUNK: usize = 256;
        let (each, items) = if cpu { (CHUNK, 1) } else { (16, 16) };
        run!(self, kernel, [depth.div_ceil(each), number, batch], [items, 1, 1];
            from, to, count, depth, stride, depth_stride, heads, image_stride, head_stride)?;
        Ok((scratch, if shared { 0 } else { (number * depth * width) as u64 }))
    }
}
