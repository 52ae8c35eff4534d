//! Matrix products. Strided operands go to the engine without a copy; derivatives are products of transposed views.

use crate::announce::announced;
use crate::autograd::{Ctx, Saved, no_grad, record, recording};
use crate::ops::complex::matrix_product;
use crate::ops::sizes::AsDims;
use crate::{Tensor, amp};
use rushlight_core::backend::{Activation, Reduce, call};
use rushlight_core::layout::{Nest, broadcast_shapes};
use rushlight_core::smallvec::{SmallVec, smallvec};
use rushlight_core::{DType, Dims, Error, Layout, Result, Scalar};

/// How a product enters its output: `alpha * a @ b + beta * out + bias`.
pub(crate) struct Blend<'a> {
    alpha: f64,
    beta: f64,
    bias: Option<&'a Tensor>,
}

impl<'a> Blend<'a> {
    pub(crate) const PLAIN: Blend<'static> = Blend { alpha: 1.0, beta: 0.0, bias: None };

    /// `a @ b + bias`.
    pub(super) fn with_bias(bias: Option<&'a Tensor>) -> Self {
        Blend { bias, ..Blend::PLAIN }
    }
}

/// The engine's product of `[.., m, k]` and `[.., k, n]` into `[.., m, n]`, batch sizes being equal. Not recorded.
///
/// Batch dimensions are merged where all three layouts allow it. Of those that remain, the largest goes to the engine
/// and the others are walked over, one call for each step; operands are packed instead where that costs less than the
/// calls.
pub(crate) fn multiply(a: &Tensor, b: &Tensor, out: &Tensor, blend: &Blend) -> Result<()> {
    // A gradient may have another dtype; the engine needs one dtype for both operands.
    if a.dtype() != b.dtype() {
        return Err(Error::dtype(format!(
            "matrix product: operands of dtypes {} and {} do not go together",
            a.dtype(),
            b.dtype()
        )));
    }
    if out.numel() == 0 {
        return Ok(());
    }
    let batch = out.rank() - 2;
    let sizes = &out.shape()[..batch];
    let nest = Nest::new(sizes, [a, b, out].map(|t| &t.strides()[..batch]));
    let (mut inner, mut count) = (0, 0);
    for (d, &size) in nest.shape.iter().enumerate() {
        if size >= count {
            (inner, count) = (d, size);
        }
    }
    let calls = nest.numel() / count;
    if calls > 1 && out.is_contiguous() {
        let merges = |t: &Tensor| Nest::new(sizes, [&t.strides()[..batch]]).shape.len() == 1;
        let cost = |t: &Tensor| if merges(t) { 0 } else { t.numel() * t.dtype().size() };
        let cost = cost(a) + cost(b);
        // Empty operands cost nothing to pack, and keep their strides.
        if cost > 0 && cost < (calls - 1) * out.backend().features().bytes_per_call {
            let packed = |t: &Tensor| if merges(t) { Ok(t.clone()) } else { packed(t) };
            return multiply(&packed(a)?, &packed(b)?, out, blend);
        }
    }
    let walked: Nest<3> =
        Nest { shape: without(&nest.shape, inner), strides: std::array::from_fn(|i| without(&nest.strides[i], inner)) };
    for step in 0..calls {
        let offsets = walked.offsets(step);
        let layout = |i: usize, t: &Tensor| {
            let shape = [count, t.shape()[batch], t.shape()[batch + 1]];
            let strides = [nest.strides[i][inner], t.strides()[batch], t.strides()[batch + 1]];
            Layout::strided(&shape, &strides, t.layout().offset() + offsets[i])
        };
        let (a_layout, b_layout, out_layout) = (layout(0, a)?, layout(1, b)?, layout(2, out)?);
        out.run(call::MatMul {
            a: a.view_as(&a_layout),
            b: b.view_as(&b_layout),
            out: out.view_as(&out_layout),
            bias: blend.bias.map(|t| t.engine_view()),
            alpha: blend.alpha,
            beta: blend.beta,
            activation: Activation::None,
        })?;
    }
    Ok(())
}

fn without(dims: &[usize], at: usize) -> Dims {
    dims.iter().enumerate().filter(|&(d, _)| d != at).map(|(_, &size)| size).collect()
}

/// A copy whose batch dimensions merge. Column-major matrices stay column-major, so that the copy reads and writes in
/// order.
fn packed(t: &Tensor) -> Result<Tensor> {
    let rank = t.rank();
    let by_columns = t.strides()[rank - 2] < t.strides()[rank - 1];
    no_grad(|| match by_columns {
        true => t.transpose(-2, -1)?.contiguous()?.transpose(-2, -1),
        false => t.contiguous(),
    })
}

/// The gradient of input `i`, `a @ b` of two matrices, in `shape`: in the dtype the input prefers, and
/// added to the sum accumulated so far if the product's epilogue can do that.
pub(crate) fn gradient_product(ctx: &Ctx, i: usize, a: &Tensor, b: &Tensor, shape: &[usize]) -> Result<Tensor> {
    if ctx.recording() {
        return a.mm(b)?.reshape(shape);
    }
    let dtype = gradient_dtype(ctx, i, a);
    let so_far = ctx.take_sum(i, |t| t.dtype() == dtype && t.is_contiguous() && t.is_sole_owner());
    let beta = if so_far.is_some() { 1.0 } else { 0.0 };
    let out = so_far.map_or_else(|| ctx.gradient_memory(i, a, shape, dtype), Ok)?;
    multiply(a, b, &out.reshape([a.shape()[0], b.shape()[1]])?, &Blend { beta, ..Blend::PLAIN })?;
    out.changed_unrecorded();
    Ok(out)
}

/// The dtype that gradients of input `i` are written in, computed from values of `a`'s dtype.
pub(crate) fn gradient_dtype(ctx: &Ctx, i: usize, a: &Tensor) -> DType {
    let half = matches!(a.dtype(), DType::F16 | DType::BF16);
    ctx.wanted_dtype(i).filter(|&d| d == DType::F32 && half && a.backend().features().wide_outputs).unwrap_or(a.dtype())
}

/// The gradient of input `i`, the sums of the columns of `dy`.
pub(crate) fn gradient_columns(ctx: &Ctx, i: usize, dy: &Tensor) -> Result<Tensor> {
    if ctx.recording() {
        return dy.sum(0);
    }
    dy.reduce(Reduce::Sum, &[true, false], false, gradient_dtype(ctx, i, dy))
}

/// `alpha * a @ b` of operands with equal batch sizes and fitting matrices, recorded.
fn product(name: &'static str, a: &Tensor, b: &Tensor, alpha: f64) -> Result<Tensor> {
    let rank = a.rank();
    let mut shape = Dims::from_slice(a.shape());
    shape[rank - 1] = b.shape()[rank - 1];
    if a.dtype() == DType::Bool {
        // Empty operands: others are refused.
        return Tensor::zeros_with(&shape, (a.dtype(), a.device()));
    }
    let out = if a.is_complex() {
        let product = matrix_product(a, b)?;
        if alpha == 1.0 { product } else { no_grad(|| product.mul(alpha))? }
    } else {
        let out = a.uninit_like(&shape, a.dtype())?;
        multiply(a, b, &out, &Blend { alpha, ..Blend::PLAIN })?;
        out
    };
    if recording(&[a, b]) {
        let (saved_a, saved_b) =
            (b.requires_grad().then(|| Saved::input(a)), a.requires_grad().then(|| Saved::input(b)));
        record(name, &[a, b], &out, move |ctx, dy| {
            let da = match &saved_b {
                Some(b) if ctx.needs(0) => Some(product(name, dy, &ctx.get(b)?.transpose(-2, -1)?.conj()?, alpha)?),
                _ => None,
            };
            let db = match &saved_a {
                Some(a) if ctx.needs(1) => Some(product(name, &ctx.get(a)?.transpose(-2, -1)?.conj()?, dy, alpha)?),
                _ => None,
            };
            Ok(smallvec![da, db])
        })?;
    }
    Ok(out)
}

/// `beta * input + alpha * a @ b`, `input` being broadcast, recorded.
fn product_onto(
    name: &'static str,
    input: &Tensor,
    a: &Tensor,
    b: &Tensor,
    beta: Scalar,
    alpha: Scalar,
) -> Result<Tensor> {
    let dtype = a.dtype();
    // PyTorch cuts off the factors of these products.
    let cuts_off = !dtype.is_differentiable() && matches!(name, "addmv" | "addbmm" | "baddbmm");
    let whole = |s: Scalar| if cuts_off { Scalar::Int(s.to_i64()) } else { s };
    let (beta, alpha) = (whole(beta), whole(alpha));
    if !dtype.is_differentiable() && (matches!(beta, Scalar::Float(_)) || matches!(alpha, Scalar::Float(_))) {
        return Err(Error::dtype(format!(
            "{name}: for integral input tensors, arguments alpha and beta must not be floating point numbers"
        )));
    }
    if input.dtype() != dtype {
        return Err(Error::dtype(format!(
            "{name}: self and mat2 must have the same dtype, but got {} and {dtype}",
            input.dtype()
        )));
    }
    a.same_device(input, name)?;
    if dtype.is_complex() {
        let product = product(name, a, b, 1.0)?;
        let product = if alpha == Scalar::Int(1) { product } else { product.mul(alpha)? };
        return match beta.is_zero() {
            // The tensor is not read: its NaN do not count.
            true => product.add(&input.detach().zeros_like()?),
            false => input.mul(beta)?.add(&product),
        };
    }
    let is_wide = |s: Scalar| s.to_i64().unsigned_abs() > 1 << f64::MANTISSA_DIGITS;
    if !dtype.is_float() && (is_wide(alpha) || is_wide(beta)) {
        // The engine's factors are floats, which do not hold these.
        return input.mul(beta)?.add(&product(name, a, b, 1.0)?.mul(alpha)?);
    }
    let (alpha, beta) = (alpha.to_f64(), beta.to_f64());
    let rank = a.rank();
    let mut shape = Dims::from_slice(a.shape());
    shape[rank - 1] = b.shape()[rank - 1];
    let stretched = input.layout().expand(&shape).map_err(|e| e.within(name))?;
    let out = a.uninit_like(&shape, dtype)?;
    if beta == 1.0 && input.rank() == 1 && input.shape()[0] == shape[rank - 1] {
        multiply(a, b, &out, &Blend { alpha, beta: 0.0, bias: Some(input) })?;
    } else {
        if beta != 0.0 && out.numel() > 0 {
            out.run(call::Copy { src: input.view_as(&stretched), out: out.engine_view() })?;
        }
        multiply(a, b, &out, &Blend { alpha, beta, bias: None })?;
    }
    if dtype.is_differentiable() && recording(&[input, a, b]) {
        let input_shape = Dims::from_slice(input.shape());
        let (saved_a, saved_b) =
            (b.requires_grad().then(|| Saved::input(a)), a.requires_grad().then(|| Saved::input(b)));
        record(name, &[input, a, b], &out, move |ctx, dy| {
            let dinput = match ctx.needs(0) {
                true if beta == 1.0 => Some(dy.sum_to_size(&input_shape)?),
                true => Some(dy.sum_to_size(&input_shape)?.mul(beta)?),
                false => None,
            };
            let da = match &saved_b {
                Some(b) if ctx.needs(1) => Some(product(name, dy, &ctx.get(b)?.transpose(-2, -1)?, alpha)?),
                _ => None,
            };
            let db = match &saved_a {
                Some(a) if ctx.needs(2) => Some(product(name, &ctx.get(a)?.transpose(-2, -1)?, dy, alpha)?),
                _ => None,
            };
            Ok(smallvec![dinput, da, db])
        })?;
    }
    Ok(out)
}

/// PyTorch's name of a dtype in its messages about products.
fn c_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float",
        DType::F64 => "double",
        DType::F16 => "c10::Half",
        DType::BF16 => "c10::BFloat16",
        DType::I64 => "long",
        DType::I32 => "int",
        DType::I16 => "short",
        DType::I8 => "signed char",
        DType::U8 => "unsigned char",
        DType::Bool => "bool",
        DType::C64 => "c10::complex<float>",
        DType::C128 => "c10::complex<double>",
        carried => carried.name(),
    }
}

/// Both operands on one device and of one dtype that can be multiplied.
pub(super) fn check_operands(name: &str, a: &Tensor, b: &Tensor) -> Result<()> {
    a.same_device(b, name)?;
    if a.dtype() != b.dtype() {
        return Err(Error::dtype(format!(
            "{name}: expected m1 and m2 to have the same dtype, but got: {} != {}; convert one with to_dtype",
            c_name(a.dtype()),
            c_name(b.dtype())
        )));
    }
    if a.dtype() == DType::Bool && a.rank() > 1 && b.rank() > 1 {
        // PyTorch checks the sizes first, and has no kernel to call for empty operands.
        let inner = a.shape()[a.rank() - 1] == b.shape()[b.rank() - 2];
        if !inner || a.numel() == 0 || b.numel() == 0 {
            return Ok(());
        }
    }
    if a.dtype() == DType::Bool || a.dtype().is_carried() && !a.is_complex() {
        return Err(Error::dtype(format!(
            "{name}: not implemented for {}; convert to a number with to_dtype first",
            a.dtype()
        )));
    }
    Ok(())
}

fn check_matrices(name: &str, a: &Tensor, b: &Tensor) -> Result<()> {
    check_operands(name, a, b)?;
    let (m, k) = (a.shape()[0], a.shape()[1]);
    let (rows, n) = (b.shape()[0], b.shape()[1]);
    if k != rows {
        return Err(Error::shape(format!(
            "{name}: mat1 and mat2 shapes cannot be multiplied ({m}x{k} and {rows}x{n})"
        )));
    }
    Ok(())
}

pub(super) fn check_rank(name: &str, what: &str, t: &Tensor, rank: usize) -> Result<()> {
    if t.rank() == rank {
        return Ok(());
    }
    Err(Error::shape(format!("{name}: {what} must be a {rank}-dimensional tensor, got shape {:?}", t.shape())))
}

fn check_batches(name: &str, a: &Tensor, b: &Tensor) -> Result<()> {
    check_rank(name, "batch1", a, 3)?;
    check_rank(name, "batch2", b, 3)?;
    check_operands(name, a, b)?;
    let (x, y) = (a.shape(), b.shape());
    if x[0] != y[0] || x[2] != y[1] {
        return Err(Error::shape(format!(
            "{name}: expected size for first two dimensions of batch2 tensor to be: [{}, {}] but got: [{}, {}]",
            x[0], x[2], y[0], y[1]
        )));
    }
    Ok(())
}

impl Tensor {
    /// Matrix product with PyTorch's rules: vectors, matrices, and batches of them that broadcast.
    ///
    /// ```
    /// # use rushlight_tensor::Tensor;
    /// let a = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(a.matmul(&a)?.to_vec::<f32>()?, [7.0, 10.0, 15.0, 22.0]);
    /// assert_eq!(a.matmul(&Tensor::ones([2])?)?.to_vec::<f32>()?, [3.0, 7.0]);
    /// # Ok::<(), rushlight_core::Error>(())
    /// ```
    #[doc(alias("mm", "bmm", "dot"))]
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        if let Some(cast) = amp::lower() {
            return cast.run(|| cast.of(self)?.matmul(&cast.of(other)?));
        }
        announced!("torch.matmul", [self, other]; self.matmul(other));
        match (self.rank(), other.rank()) {
            (0, _) | (_, 0) => Err(Error::shape(format!(
                "matmul: both arguments to matmul need to be at least 1D, but they are {}D and {}D",
                self.rank(),
                other.rank()
            ))),
            (1, 1) => self.dot(other),
            (2, 1) => self.mv(other),
            (2, 2) => {
                check_matrices("matmul", self, other)?;
                product("mm", self, other, 1.0)
            }
            (1, _) => self.unsqueeze(0)?.matmul(other)?.squeeze(-2),
            (_, 1) => self.matmul(&other.unsqueeze(1)?)?.squeeze(-1),
            (_, 2) => self.matmul_folded(other),
            _ => self.matmul_batched(other),
        }
    }

    /// `[.., m, k] @ [k, n]` as one product of matrices.
    fn matmul_folded(&self, other: &Tensor) -> Result<Tensor> {
        let last = self.rank() - 1;
        let k = self.shape()[last];
        let rows: usize = self.shape()[..last].iter().product();
        let mut shape = Dims::from_slice(self.shape());
        shape[last] = other.shape()[1];
        self.reshape([rows, k])?.mm(other)?.reshape(&shape)
    }

    fn matmul_batched(&self, other: &Tensor) -> Result<Tensor> {
        let name = "matmul";
        check_operands(name, self, other)?;
        let (a, b) = (self.rank() - 2, other.rank() - 2);
        if self.shape()[a + 1] != other.shape()[b] {
            return Err(Error::shape(format!(
                "{name}: mat1 and mat2 shapes cannot be multiplied ({}x{} and {}x{})",
                self.shape()[a],
                self.shape()[a + 1],
                other.shape()[b],
                other.shape()[b + 1]
            )));
        }
        let batch = broadcast_shapes(&self.shape()[..a], &other.shape()[..b]).map_err(|e| e.within(name))?;
        let stretched = |t: &Tensor| {
            let mut shape = batch.clone();
            shape.extend_from_slice(&t.shape()[t.rank() - 2..]);
            if shape[..] == *t.shape() { Ok(t.clone()) } else { t.expand(&shape) }
        };
        product(name, &stretched(self)?, &stretched(other)?, 1.0)
    }

    /// Product of two matrices.
    pub fn mm(&self, other: &Tensor) -> Result<Tensor> {
        if let Some(cast) = amp::lower() {
            return cast.run(|| cast.of(self)?.mm(&cast.of(other)?));
        }
        announced!("torch.mm", [self, other]; self.mm(other));
        check_rank("mm", "self", self, 2)?;
        check_rank("mm", "mat2", other, 2)?;
        check_matrices("mm", self, other)?;
        product("mm", self, other, 1.0)
    }

    /// Products of two batches of matrices.
    pub fn bmm(&self, other: &Tensor) -> Result<Tensor> {
        if let Some(cast) = amp::lower() {
            return cast.run(|| cast.of(self)?.bmm(&cast.of(other)?));
        }
        announced!("torch.bmm", [self, other]; self.bmm(other));
        check_batches("bmm", self, other)?;
        product("bmm", self, other, 1.0)
    }

    /// Product of a matrix and a vector.
    pub fn mv(&self, vector: &Tensor) -> Result<Tensor> {
        check_mv("mv", self, vector)?;
        announced!("torch.mv", [self, vector]; self.mv(vector));
        product("mv", self, &vector.unsqueeze(1)?, 1.0)?.squeeze(1)
    }

    /// Sum of the products of two vectors' elements.
    pub fn dot(&self, other: &Tensor) -> Result<Tensor> {
        if self.rank() != 1 || other.rank() != 1 {
            return Err(Error::shape(format!(
                "dot: 1D tensors expected, but got {}D and {}D tensors",
                self.rank(),
                other.rank()
            )));
        }
        self.same_device(other, "dot")?;
        if self.dtype() != other.dtype() {
            return Err(Error::dtype(format!(
                "dot: expected both vectors to have same dtype, but found {} and {}",
                self.dtype(),
                other.dtype()
            )));
        }
        check_operands("dot", self, other)?;
        announced!("torch.dot", [self, other]; self.dot(other));
        if self.numel() != other.numel() {
            return Err(Error::shape(format!(
                "dot: inconsistent tensor size, expected tensor {:?} and src {:?} to have the same number of elements",
                self.shape(),
                other.shape()
            )));
        }
        product("dot", &self.unsqueeze(0)?, &other.unsqueeze(1)?, 1.0)?.reshape([0usize; 0])
    }

    /// All products of an element of one vector and one of the other.
    pub fn outer(&self, other: &Tensor) -> Result<Tensor> {
        check_rank("outer", "self", self, 1)?;
        check_rank("outer", "vec2", other, 1)?;
        self.unsqueeze(1)?.mul(&other.unsqueeze(0)?)
    }

    /// Sum of products over the last dimension of both.
    pub fn inner(&self, other: &Tensor) -> Result<Tensor> {
        if self.rank() == 0 || other.rank() == 0 {
            return self.mul(other);
        }
        if self.shape()[self.rank() - 1] != other.shape()[other.rank() - 1] {
            return Err(Error::shape(format!(
                "inner: the last dimension must match on both input tensors but got shapes {:?} and {:?}",
                self.shape(),
                other.shape()
            )));
        }
        self.tensordot_dims(other, [-1], [-1])
    }

    /// `beta * self + alpha * mat1 @ mat2`; `self` broadcasts, and is not read where `beta` is 0.
    pub fn addmm(
        &self,
        mat1: &Tensor,
        mat2: &Tensor,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
    ) -> Result<Tensor> {
        if let Some(cast) = amp::lower() {
            return cast.run(|| cast.of(self)?.addmm(&cast.of(mat1)?, &cast.of(mat2)?, beta, alpha));
        }
        let (beta, alpha) = (beta.into(), alpha.into());
        announced!(
            "torch.addmm", [self, mat1, mat2], beta = beta, alpha = alpha;
            self.addmm(mat1, mat2, beta, alpha)
        );
        check_rank("addmm", "mat1", mat1, 2)?;
        check_rank("addmm", "mat2", mat2, 2)?;
        check_matrices("addmm", mat1, mat2)?;
        product_onto("addmm", self, mat1, mat2, beta, alpha)
    }

    /// `beta * self + alpha * mat @ vec`.
    pub fn addmv(
        &self,
        mat: &Tensor,
        vec: &Tensor,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
    ) -> Result<Tensor> {
        check_mv("addmv", mat, vec)?;
        let (beta, alpha) = (beta.into(), alpha.into());
        announced!("torch.addmv", [self, mat, vec], beta = beta, alpha = alpha; self.addmv(mat, vec, beta, alpha));
        if self.rank() > 1 {
            return Err(Error::shape(format!("addmv: self must be a vector, got shape {:?}", self.shape())));
        }
        let column = if self.rank() == 1 { self.unsqueeze(1)? } else { self.clone() };
        product_onto("addmv", &column, mat, &vec.unsqueeze(1)?, beta, alpha)?.squeeze(1)
    }

    /// `beta * self + alpha * batch1 @ batch2`, batch by batch.
    pub fn baddbmm(
        &self,
        batch1: &Tensor,
        batch2: &Tensor,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
    ) -> Result<Tensor> {
        if let Some(cast) = amp::lower() {
            return cast.run(|| cast.of(self)?.baddbmm(&cast.of(batch1)?, &cast.of(batch2)?, beta, alpha));
        }
        let (beta, alpha) = (beta.into(), alpha.into());
        announced!(
            "torch.baddbmm", [self, batch1, batch2], beta = beta, alpha = alpha;
            self.baddbmm(batch1, batch2, beta, alpha)
        );
        check_batches("baddbmm", batch1, batch2)?;
        product_onto("baddbmm", self, batch1, batch2, beta, alpha)
    }

    /// `beta * self + alpha * (sum of batch1 @ batch2 over the batch)`.
    pub fn addbmm(
        &self,
        batch1: &Tensor,
        batch2: &Tensor,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
    ) -> Result<Tensor> {
        if let Some(cast) = amp::lower() {
            return cast.run(|| cast.of(self)?.addbmm(&cast.of(batch1)?, &cast.of(batch2)?, beta, alpha));
        }
        let (beta, alpha) = (beta.into(), alpha.into());
        announced!(
            "torch.addbmm", [self, batch1, batch2], beta = beta, alpha = alpha;
            self.addbmm(batch1, batch2, beta, alpha)
        );
        check_batches("addbmm", batch1, batch2)?;
        let (b, k, m) = (batch2.shape()[0], batch2.shape()[1], batch2.shape()[2]);
        // The sum over the batch is part of one longer inner dimension.
        let left = batch1.transpose(0, 1)?.reshape([batch1.shape()[1], b * k])?;
        let right = batch2.reshape([b * k, m])?;
        product_onto("addbmm", self, &left, &right, beta, alpha)
    }

    /// Contraction of the last `n` dimensions with the first `n` of `other`.
    pub fn tensordot(&self, other: &Tensor, n: usize) -> Result<Tensor> {
        if n > self.rank() || n > other.rank() {
            return Err(Error::value(format!(
                "tensordot: cannot contract {n} dimensions of shapes {:?} and {:?}",
                self.shape(),
                other.shape()
            )));
        }
        let own: Vec<isize> = (self.rank() - n..self.rank()).map(|d| d as isize).collect();
        let others: Vec<isize> = (0..n as isize).collect();
        self.tensordot_dims(other, &own, &others)
    }

    /// Contraction of the named dimensions of both, pair by pair.
    pub fn tensordot_dims(&self, other: &Tensor, dims: impl AsDims, other_dims: impl AsDims) -> Result<Tensor> {
        let (dims, other_dims) = (dims.as_dims(), other_dims.as_dims());
        let (own, others) = (self.wrap_dims("tensordot", dims)?, other.wrap_dims("tensordot_dims", other_dims)?);
        if own.len() != others.len() {
            return Err(Error::value(format!(
                "tensordot: both dimension lists should have same length, got {dims:?} and {other_dims:?}"
            )));
        }
        let pairs = || own.iter().zip(&others).map(|(&a, &b)| (a, b));
        let size = |t: &Tensor, d: usize| t.shape().get(d).copied().unwrap_or(1);
        let apart = |&(a, b): &(usize, usize)| size(self, a) != size(other, b);
        if pairs().any(|p| apart(&p)) && pairs().filter(apart).all(|(a, b)| size(self, a) == 1 || size(other, b) == 1) {
            // A size of one is stretched: the other side's sum over that dimension is contracted with it.
            let summed = |t: &Tensor, over: Vec<isize>| match over.is_empty() {
                true => Ok(t.clone()),
                false => t.sum_dims(&over, true)?.to_dtype(t.dtype()),
            };
            let left = pairs().filter(apart).filter(|&(_, b)| size(other, b) == 1).map(|(a, _)| a as isize).collect();
            let right = pairs().filter(apart).filter(|&(_, b)| size(other, b) != 1).map(|(_, b)| b as isize).collect();
            return summed(self, left)?.tensordot_dims(&summed(other, right)?, dims, other_dims);
        }
        if let Some((a, b)) = pairs().find(apart) {
            return Err(Error::shape(format!(
                "tensordot: contracted dimensions need to match, but first has size {} in dim {a} and second has size {} in dim {b}",
                self.shape().get(a).unwrap_or(&1),
                other.shape().get(b).unwrap_or(&1)
            )));
        }
        let free = |t: &Tensor, used: &[usize]| -> SmallVec<[usize; 6]> {
            (0..t.rank()).filter(|d| !used.contains(d)).collect()
        };
        let (rows, columns) = (free(self, &own), free(other, &others));
        let order = |first: &[usize], second: &[usize]| -> Vec<isize> {
            first.iter().chain(second).map(|&d| d as isize).collect()
        };
        let size = |t: &Tensor, dims: &[usize]| -> usize { dims.iter().map(|&d| t.shape()[d]).product() };
        let k = size(self, &own);
        let left = self.permute(order(&rows, &own))?.reshape([size(self, &rows), k])?;
        let right = other.permute(order(&others, &columns))?.reshape([k, size(other, &columns)])?;
        let shape: Dims =
            rows.iter().map(|&d| self.shape()[d]).chain(columns.iter().map(|&d| other.shape()[d])).collect();
        left.mm(&right)?.reshape(&shape)
    }
}

fn check_mv(name: &str, mat: &Tensor, vec: &Tensor) -> Result<()> {
    if mat.rank() != 2 || vec.rank() != 1 {
        return Err(Error::shape(format!(
            "{name}: vector + matrix @ vector expected, got a matrix of {} and a vector of {} dimensions",
            mat.rank(),
            vec.rank()
        )));
    }
    check_operands(name, mat, vec)?;
    let (m, k) = (mat.shape()[0], mat.shape()[1]);
    if k != vec.shape()[0] {
        return Err(Error::shape(format!(
            "{name}: size mismatch, got input ({m}), mat ({m}x{k}), vec ({})",
            vec.shape()[0]
        )));
    }
    Ok(())
}
