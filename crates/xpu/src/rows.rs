//! Softmax, row norms and cross-entropy of contiguous rows (`kernels/row_families.cl`).

use crate::device::Xpu;
use crate::driver::Kernel;
use crate::program::{At, Defines, Family, Key, Kind, run};
use rushlight_core::backend::{CrossEntropy, RowNorm};
use rushlight_core::{DType, Error, Result, View};

/// How work items share rows: compile-time parameters apart from the family's own definitions.
#[derive(Clone, Copy)]
pub struct Shape {
    pub kind: Kind,
    pub lanes: usize,
    /// Work items that share a row.
    pub items: usize,
}

impl Shape {
    pub fn tags(&self) -> [u16; 3] {
        [self.kind as u16, self.lanes as u16, self.items as u16]
    }

    pub fn defines(&self) -> Defines {
        let statistics = if self.kind == Kind::F64 { DType::F64 } else { DType::F32 };
        Defines::default().lanes(self.kind, self.lanes).define("ITEMS", self.items).vector("S", statistics)
    }
}

/// The address of an optional view; any valid address if absent.
fn or(view: Option<View>, other: View) -> At {
    At(view.unwrap_or(other).ptr() as u64)
}

/// Only floats support these families.
pub fn float(family: &str, dtype: DType) -> Result<()> {
    if dtype.is_float() { Ok(()) } else { Err(Error::dtype(format!("{family} takes floats, not {dtype}"))) }
}

impl Xpu {
    /// The form for rows of `columns` elements.
    pub fn row_shape(&self, dtype: DType, columns: usize) -> Shape {
        let kind = Kind::of(dtype);
        if self.driver.abilities().is_cpu {
            return Shape { kind, lanes: if kind == Kind::F64 { 8 } else { 16 }, items: 1 };
        }
        let items = match columns {
            0..=128 => 32,
            129..=1024 => 128,
            _ => 256,
        };
        Shape { kind, lanes: 1, items }
    }

    /// A kernel of the family: `tags` identify the definitions of `own`.
    fn row_kernel(
        &self,
        entry: &'static str,
        shape: Shape,
        dtype: DType,
        tags: [u16; 4],
        own: impl FnOnce(Defines) -> Defines,
    ) -> Result<&'static Kernel> {
        let ([a, b, c], [d, e, f, g]) = (shape.tags(), tags);
        let key = Key::new(Family::Rows, entry, [a, b, c, dtype as u16, d, e, f, g]);
        self.kernel(key, || own(shape.defines().vector("T", dtype)))
    }

    pub fn softmax(&self, log: bool, [outer, n, inner]: [usize; 3], x: View, y: View) -> Result<()> {
        float("softmax", x.dtype())?;
        self.require(&[x.dtype()])?;
        if outer * n * inner == 0 {
            return Ok(());
        }
        let shape = self.row_shape(x.dtype(), n);
        let (from, to) = (At(x.ptr() as u64), At(y.ptr() as u64));
        let form = |entry, name: &'static str| {
            self.row_kernel(entry, shape, x.dtype(), [log as u16, 0, 0, 0], |defines| {
                defines.define(name, 1).define("LOG", log as u8)
            })
        };
        if inner == 1 {
            let kernel = form("softmax", "SOFTMAX")?;
            let each = self.rows_each(outer);
            return run!(self, kernel, [outer.div_ceil(each), 1, 1], [shape.items, 1, 1]; from, to, n, outer, each);
        }
        let kernel = form("softmax_across", "SOFTMAX_ACROSS")?;
        let (groups, items) = self.columns(inner, outer, shape);
        run!(self, kernel, groups, items; from, to, n, inner)
    }

    pub fn softmax_backward(
        &self,
        log: bool,
        [outer, n, inner]: [usize; 3],
        dy: View,
        y: View,
        dx: View,
    ) -> Result<()> {
        float("softmax", y.dtype())?;
        self.require(&[y.dtype()])?;
        if outer * n * inner == 0 {
            return Ok(());
        }
        let shape = self.row_shape(y.dtype(), n);
        let (from, out, to) = (At(dy.ptr() as u64), At(y.ptr() as u64), At(dx.ptr() as u64));
        let form = |entry, name: &'static str| {
            self.row_kernel(entry, shape, y.dtype(), [log as u16, 0, 0, 0], |defines| {
                defines.define(name, 1).define("LOG", log as u8)
            })
        };
        if inner == 1 {
            let kernel = form("softmax_backward", "SOFTMAX_BACKWARD")?;
            return run!(self, kernel, [outer, 1, 1], [shape.items, 1, 1]; from, out, to, n);
        }
        let kernel = form("softmax_across_backward", "SOFTMAX_ACROSS_BACKWARD")?;
        let (groups, items) = self.columns(inner, outer, shape);
        run!(self, kernel, groups, items; from, out, to, n, inner)
    }

    /// Rows per group: several on a CPU, because starting a group takes about as long as a short row.
    fn rows_each(&self, rows: usize) -> usize {
        let abilities = self.driver.abilities();
        if abilities.is_cpu { (rows / (16 * abilities.compute_units.max(1))).clamp(1, 32) } else { 1 }
    }

    /// A launch with a work item for each vector of columns, by `outer`.
    fn columns(&self, columns: usize, outer: usize, shape: Shape) -> ([usize; 3], [usize; 3]) {
        let vectors = columns.div_ceil(shape.lanes);
        let items = if shape.lanes > 1 { 1 } else { 64 };
        ([vectors.div_ceil(items), outer, 1], [items, 1, 1])
    }

    pub fn row_norm(
        &self,
        spec: &RowNorm,
        x: View,
        [weight, bias]: [Option<View>; 2],
        y: View,
        low: Option<View>,
        mean: View,
        rstd: View,
    ) -> Result<()> {
        if spec.rows * spec.cols == 0 {
            return Ok(());
        }
        self.require(&[x.dtype()])?;
        let present = weight.is_some() as u16 | (bias.is_some() as u16) << 1 | (low.is_some() as u16) << 2;
        let shape = self.row_shape(x.dtype(), spec.cols);
        let kernel = self.norm_kernel("row_norm", "NORM", shape, spec, x.dtype(), weight.or(bias), low, present)?;
        let (from, to) = (At(x.ptr() as u64), At(y.ptr() as u64));
        let (w, b, copy) = (or(weight, x), or(bias, x), or(low, y));
        let (means, rstds) = (At(mean.ptr() as u64), At(rstd.ptr() as u64));
        let (rows, each) = (spec.rows, self.rows_each(spec.rows));
        run!(self, kernel, [rows.div_ceil(each), 1, 1], [shape.items, 1, 1];
            from, w, b, to, copy, means, rstds, spec.cols, shape.kind.number(spec.eps), rows, each)
    }

    fn norm_kernel(
        &self,
        entry: &'static str,
        name: &'static str,
        shape: Shape,
        spec: &RowNorm,
        dtype: DType,
        parameter: Option<View>,
        low: Option<View>,
        present: u16,
    ) -> Result<&'static Kernel> {
        let (p, copy) = (parameter.map_or(dtype, |view| view.dtype()), low.map_or(dtype, |view| view.dtype()));
        let tags = [present, spec.rms as u16, p as u16, copy as u16];
        self.row_kernel(entry, shape, dtype, tags, |defines| {
            let defines = defines.define(name, 1).define("RMS", spec.rms as u8).define("PRESENT", present);
            defines.vector("P", p).vector("LOW", copy)
        })
    }

    /// Gradients of a row norm; unneeded ones are `None`.
    pub fn row_norm_backward(
        &self,
        spec: &RowNorm,
        [dy, x, mean, rstd]: [View; 4],
        weight: Option<View>,
        so_far: Option<View>,
        [dx, low]: [Option<View>; 2],
        [dweight, dbias]: [Option<View>; 2],
    ) -> Result<()> {
        if spec.cols == 0 {
            return Ok(());
        }
        self.require(&[x.dtype()])?;
        let shape = self.row_shape(x.dtype(), spec.cols);
        let (from, slope) = (At(x.ptr() as u64), At(dy.ptr() as u64));
        let (means, rstds) = (At(mean.ptr() as u64), At(rstd.ptr() as u64));
        if let Some(dx) = dx.filter(|_| spec.rows > 0) {
            let present = weight.is_some() as u16 | (low.is_some() as u16) << 2 | (so_far.is_some() as u16) << 3;
            let (entry, name) = ("row_norm_backward", "NORM_BACKWARD");
            let kernel = self.norm_kernel(entry, name, shape, spec, x.dtype(), weight, low, present)?;
            let (w, before, copy, to) = (or(weight, x), or(so_far, x), or(low, dx), At(dx.ptr() as u64));
            run!(self, kernel, [spec.rows, 1, 1], [shape.items, 1, 1];
                slope, from, w, means, rstds, before, to, copy, spec.cols)?;
        }
        if dweight.is_none() && dbias.is_none() {
            return Ok(());
        }
        // Rows are split into pieces, whose sums are added in order.
        let wanted = 4 * self.driver.abilities().compute_units.max(1);
        let piece = spec.rows.div_ceil(wanted).max(16);
        let pieces = spec.rows.div_ceil(piece).max(1);
        let statistics = if shape.kind == Kind::F64 { DType::F64 } else { DType::F32 };
        let sums = self.temporary(&[pieces, 2, spec.cols], statistics)?;
        let kernel = self.norm_kernel("row_norm_columns", "NORM_COLUMNS", shape, spec, x.dtype(), None, None, 0)?;
        let (groups, items) = self.columns(spec.cols, pieces, shape);
        let to = At(sums.view().ptr() as u64);
        run!(self, kernel, groups, items; slope, from, means, rstds, to, spec.rows, spec.cols, piece)?;
        for (i, out) in [dweight, dbias].into_iter().enumerate() {
            if let Some(out) = out {
                let part = sums.view().layout().slice(1, i, 1, 1);
                let from = sums.view().with_layout(&part)?;
                let dense = rushlight_core::Layout::contiguous(&[1, 1, spec.cols])?.with_offset(out.layout().offset());
                let to = out.with_layout(&dense)?;
                self.reduce(rushlight_core::backend::Reduce::Sum, from, &[true, false, false], to)?;
            }
        }
        Ok(())
    }

    fn cross_entropy_kernel(&self, entry: &'static str, name: &'static str, spec: &CrossEntropy) -> Result<Loss> {
        let (dtype, classes) = (spec.logits.dtype(), spec.logits.shape()[1]);
        float("cross_entropy", dtype)?;
        self.require(&[dtype])?;
        if spec.weight.is_some_and(|weight| weight.dtype() != dtype) {
            return Err(Error::dtype(format!("cross_entropy: the weight must be of dtype {dtype}, as the logits")));
        }
        let shape = self.row_shape(dtype, classes);
        let (weighted, smooth) = (spec.weight.is_some() as u16, (spec.label_smoothing > 0.0) as u16);
        let kernel = self.row_kernel(entry, shape, dtype, [weighted, smooth, 0, 0], |defines| {
            let defines = defines.define("CROSS_ENTROPY", 1).define(name, 1);
            defines.define("WEIGHTED", weighted).define("SMOOTH", smooth)
        })?;
        let mut bytes = Vec::with_capacity(24);
        bytes.extend((classes as u64).to_ne_bytes());
        bytes.extend(spec.ignore_index.to_ne_bytes());
        bytes.extend(spec.label_smoothing.to_ne_bytes());
        if shape.kind == Kind::F32 {
            // A float and its padding.
            bytes.truncate(16);
            bytes.extend((spec.label_smoothing as f32).to_ne_bytes());
            bytes.extend([0; 4]);
        }
        Ok(Loss { kernel, shape, spec: Plain(bytes) })
    }

    pub fn cross_entropy(&self, spec: &CrossEntropy, loss: View, row_weight: View, lse: View) -> Result<()> {
        let rows = spec.logits.shape()[0];
        if rows == 0 {
            return Ok(());
        }
        let form = self.cross_entropy_kernel("cross_entropy", "CROSS_ENTROPY_FORWARD", spec)?;
        let (x, targets) = (At(spec.logits.ptr() as u64), At(spec.target.ptr() as u64));
        let weight = or(spec.weight, spec.logits);
        let (loss, row_weight, lse) = (At(loss.ptr() as u64), At(row_weight.ptr() as u64), At(lse.ptr() as u64));
        run!(self, form.kernel, [rows, 1, 1], [form.shape.items, 1, 1];
            form.spec, x, targets, weight, loss, row_weight, lse, At(self.fault()))
    }

    pub fn cross_entropy_backward(&self, spec: &CrossEntropy, lse: View, dloss: View, dlogits: View) -> Result<()> {
        if spec.logits.numel() == 0 {
            return Ok(());
        }
        let rows = spec.logits.shape()[0];
        let form = self.cross_entropy_kernel("cross_entropy_backward", "CROSS_ENTROPY_BACKWARD", spec)?;
        let (x, targets) = (At(spec.logits.ptr() as u64), At(spec.target.ptr() as u64));
        let weight = or(spec.weight, spec.logits);
        let (lse, dloss, to) = (At(lse.ptr() as u64), At(dloss.ptr() as u64), At(dlogits.ptr() as u64));
        run!(self, form.kernel, [rows, 1, 1], [form.shape.items, 1, 1];
            form.spec, x, targets, weight, lse, dloss, to, At(self.fault()))
    }
}

/// Compile-time parameters of cross-entropy's kernels and their struct `Spec`.
struct Loss {
    kernel: &'static Kernel,
    shape: Shape,
    spec: Plain,
}

/// The bytes of a struct that a kernel declares.
pub struct Plain(pub Vec<u8>);

impl crate::program::Argument for Plain {
    fn arg(&self) -> crate::driver::Arg<'_> {
        crate::driver::Arg::Value(&self.0)
    }
}

/// Scalars in the arithmetic of `kind`, concatenated.
pub fn numbers(kind: Kind, values: &[f64]) -> Plain {
    Plain(match kind {
        Kind::F64 => values.iter().flat_map(|v| v.to_ne_bytes()).collect(),
        _ => values.iter().flat_map(|v| (*v as f32).to_ne_bytes()).collect(),
    })
}
