//! Matrix products: the vendor's library for floats, our own kernel for integers and for cases the library does not
//! support.

use crate::device::Gpu;
use crate::launch::kernel::{Defines, Family, Grid, Key, launch, wide_type};
use crate::launch::nest::Nest;
use crate::vendor::driver::{Products, Rest};
use rushlight_core::backend::{Activation, MatMul, allow_tf32};
use rushlight_core::{DType, Error, Result, View};

/// A batched product of matrices at addresses on the device; strides are batch, row, column, in elements.
#[derive(Clone, Copy, Debug)]
pub struct Gemm {
    pub dtype: DType,
    /// `dtype`, or `f32` for halves.
    pub out_dtype: DType,
    pub batch: usize,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub a: u64,
    pub a_strides: [usize; 3],
    pub b: u64,
    pub b_strides: [usize; 3],
    pub out: u64,
    pub out_strides: [usize; 3],
    pub alpha: f64,
    pub beta: f64,
    /// One element per column, with this stride.
    pub bias: Option<(u64, usize)>,
    pub activation: Activation,
    pub gelu: Option<Gelu>,
    /// Whether `f32` inputs may be rounded to TF32.
    pub tf32: bool,
}

/// A tanh GELU and its input, which has the output's shape and is row-major.
#[derive(Clone, Copy, Debug)]
pub enum Gelu {
    /// GELU of the product; the product itself is written here.
    Keep(u64),
    /// The product is the gradient by its output. (If the bias's sums are requested too, the library runs a slow extra
    /// pass.)
    Backward(u64),
}

impl Gemm {
    /// A product described by shapes only, without addresses and epilogue.
    pub fn plain(dtype: DType, batch: usize, m: usize, n: usize, k: usize) -> Self {
        Gemm {
            dtype,
            out_dtype: dtype,
            batch,
            m,
            n,
            k,
            a: 0,
            a_strides: [0; 3],
            b: 0,
            b_strides: [0; 3],
            out: 0,
            out_strides: [0; 3],
            alpha: 1.0,
            beta: 0.0,
            bias: None,
            activation: Activation::None,
            gelu: None,
            tf32: allow_tf32(),
        }
    }

    /// A product of views.
    fn of(spec: &MatMul) -> Result<Self> {
        let (&[batch, m, k], &[_, _, n]) = (spec.a.shape(), spec.b.shape()) else {
            return Err(Error::shape(format!("matmul: expected batched matrices, got {:?}", spec.a.shape())));
        };
        let widened = spec.out.dtype() != spec.a.dtype();
        if widened && (spec.bias.is_some() || spec.activation != Activation::None) {
            return Err(Error::unsupported("matmul: a bias or an activation with an output of another dtype"));
        }
        Ok(Gemm {
            out_dtype: spec.out.dtype(),
            a: spec.a.ptr() as u64,
            a_strides: strides(spec.a),
            b: spec.b.ptr() as u64,
            b_strides: strides(spec.b),
            out: spec.out.ptr() as u64,
            out_strides: strides(spec.out),
            alpha: spec.alpha,
            beta: spec.beta,
            bias: spec.bias.map(|b| (b.ptr() as u64, b.strides()[0])),
            activation: spec.activation,
            ..Gemm::plain(spec.a.dtype(), batch, m, n, k)
        })
    }
}

fn strides(v: View) -> [usize; 3] {
    std::array::from_fn(|d| v.strides().get(d).copied().unwrap_or(0))
}

impl Gpu {
    fn products(&self) -> Result<&'static dyn Products> {
        self.products.get_or_init(|| self.libraries.products()).clone()
    }

    /// Runs the product in the library; `false` if it does not support it.
    pub(super) fn gemm_library(&self, g: &Gemm) -> Result<bool> {
        self.enter()?;
        let Some(rest) = self.products()?.gemm(self, g)? else { return Ok(false) };
        self.finish(g, rest)?;
        Ok(true)
    }

    pub fn matmul(&self, spec: &MatMul) -> Result<()> {
        // Operands that the library cannot read are packed first.
        let is_read = |v: View| -> Result<bool> {
            let &[_, rows, columns] = v.shape() else { return Ok(true) };
            Ok(!v.dtype().is_float() || v.numel() == 0 || self.products()?.reads(rows, columns, strides(v)))
        };
        let packed_a = if is_read(spec.a)? { None } else { Some(self.packed(spec.a)?) };
        let packed_b = if is_read(spec.b)? { None } else { Some(self.packed(spec.b)?) };
        let spec = MatMul {
            a: packed_a.as_ref().map_or(spec.a, |t| t.view()),
            b: packed_b.as_ref().map_or(spec.b, |t| t.view()),
            ..*spec
        };
        self.gemm(Gemm::of(&spec)?)
    }

    /// A product with GELU or its gradient in the epilogue. Returns whether the library supports it.
    pub fn matmul_gelu(&self, spec: &MatMul, gelu: Gelu) -> Result<bool> {
        let g = Gemm { gelu: Some(gelu), ..Gemm::of(spec)? };
        let half = matches!(g.dtype, DType::F16 | DType::BF16) && g.out_dtype == g.dtype;
        let fits = half && g.batch == 1 && g.m > 0 && g.n > 0 && g.k > 0 && g.n.is_multiple_of(8);
        if !fits || g.out_strides[1..] != [g.n, 1] {
            return Ok(false);
        }
        self.gemm_library(&g)
    }

    /// Computes a product on this device.
    pub fn gemm(&self, mut g: Gemm) -> Result<()> {
        if g.dtype == DType::Bool {
            return Err(Error::dtype("matmul: not implemented for bool"));
        }
        if g.batch == 0 || g.m == 0 || g.n == 0 {
            return Ok(());
        }
        // One right-hand matrix for the whole batch: all rows form a single product.
        let folds =
            g.b_strides[0] == 0 && g.a_strides[0] == g.m * g.a_strides[1] && g.out_strides[0] == g.m * g.out_strides[1];
        if g.batch > 1 && folds {
            g.m *= g.batch;
            g.batch = 1;
        }
        if g.dtype.is_float() && g.k > 0 && (self.padded_product(&g)? || self.gemm_library(&g)?) {
            return Ok(());
        }
        self.gemm_own(&g)
    }

    /// Adds the bias and applies the activation in a separate pass.
    fn finish(&self, g: &Gemm, rest: Rest) -> Result<()> {
        let activation = if rest.activation { g.activation } else { Activation::None };
        if !rest.bias && activation == Activation::None {
            return Ok(());
        }
        let key = Key::new(Family::MatMul, "epilogue", [g.dtype as u16, rest.bias as u16, activation as u16]);
        let function = self.function(key, || epilogue_defines(g.dtype, rest.bias, activation))?;
        let (bias, step) = g.bias.unwrap_or((0, 0));
        let nest = Nest::row_major(&[g.batch, g.m, g.n], [&g.out_strides, &[0, 0, step]])?;
        let count = g.batch * g.m * g.n;
        let out = g.out;
        let grid = Grid::line(count.div_ceil(256), 256)?;
        launch!(self, function, grid; nest, out, bias, count)
    }

    /// Our own kernel for products: any strides, any dtype.
    fn gemm_own(&self, g: &Gemm) -> Result<()> {
        let tags = [g.dtype as u16, g.out_dtype as u16, g.bias.is_some() as u16, g.activation as u16];
        let key = Key::new(Family::MatMul, "product", tags);
        let function = self.function(key, || product_defines(g.dtype, g.out_dtype, g.bias.is_some(), g.activation))?;
        let tiles = |n: usize| n.div_ceil(16);
        let blocks = tiles(g.m).saturating_mul(tiles(g.n));
        let (bias, bias_step) = g.bias.unwrap_or((0, 0));
        let strides = [g.a_strides, g.b_strides, g.out_strides].map(|s| s.map(|v| v as u64));
        let sizes = [g.m as u64, g.n as u64, g.k as u64];
        let (mut done, most) = (0, 65_535);
        while done < g.batch {
            let now = (g.batch - done).min(most);
            let at = |ptr: u64, stride: usize, dtype: DType| ptr + (done * stride * dtype.size()) as u64;
            let (a, b) = (at(g.a, g.a_strides[0], g.dtype), at(g.b, g.b_strides[0], g.dtype));
            let out = at(g.out, g.out_strides[0], g.out_dtype);
            let mut grid = Grid::plane(blocks, now, 16)?;
            grid.threads = [16, 16];
            let (alpha, beta) = (g.alpha, g.beta);
            launch!(self, function, grid; a, b, out, bias, strides, sizes, bias_step, alpha, beta)?;
            done += now;
        }
        Ok(())
    }
}

pub fn epilogue_defines(dtype: DType, bias: bool, activation: Activation) -> Defines {
    Defines::default()
        .define("EPILOGUE", 1)
        .define("WIDE", 1)
        .dtype("T", dtype)
        .define("W", wide_type(dtype))
        .define("BIAS", bias as u8)
        .define("ACTIVATION", activation as u8)
}

pub fn product_defines(dtype: DType, out: DType, bias: bool, activation: Activation) -> Defines {
    Defines::default()
        .define("PRODUCT", 1)
        .define("WIDE", 1)
        .dtype("T", dtype)
        .dtype("OUT", out)
        .define("W", wide_type(dtype))
        .define("BIAS", bias as u8)
        .define("ACTIVATION", activation as u8)
}
