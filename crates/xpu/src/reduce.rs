//! Reductions: kept and reduced dimensions, and how work items share them (`kernels/reduce.cl`).

use crate::device::Xpu;
use crate::program::{At, Defines, Family, Key, Kind, Number, converted, run};
use rushlight_core::backend::{ArgReduce, Reduce};
use rushlight_core::{DType, Error, Result, View};
use rushlight_gpu::launch::nest::{Loops, Nest, is_wide, loops, merged};

/// Work items per group, and per group that combines pieces.
const GROUP: usize = 64;
/// Elements from which a kernel for the reduction, the dtypes and the layout is compiled.
const LARGE: usize = 1 << 14;
/// Work items per group of the generic kernel for small tensors.
const GROUP_ANY: usize = 16;
/// Minimum elements per work item before an output is split into pieces.
const MIN_PER_ITEM: usize = 1024;
/// Maximum elements per accumulator: longer sums lose digits.
const MAX_PER_SUM: usize = 4096;
/// Maximum bytes of partial results.
const PARTIAL: usize = 24;

/// The reduction as a code of `reduce.cl`, and its parameters: the order of a norm, and the divisor or exponent of a
/// result.
fn code(op: Reduce, length: usize) -> (u16, f64, f64) {
    let count = length as f64;
    match op {
        Reduce::Sum => (0, 0.0, 0.0),
        Reduce::Mean => (1, 0.0, count),
        Reduce::Prod => (2, 0.0, 0.0),
        Reduce::Max => (3, 0.0, 0.0),
        Reduce::Min => (4, 0.0, 0.0),
        Reduce::Any => (5, 0.0, 0.0),
        Reduce::All => (6, 0.0, 0.0),
        Reduce::Var { correction } => (7, 0.0, (count - correction).max(0.0)),
        Reduce::Norm { p: 0.0 } => (8, 0.0, 0.0),
        Reduce::Norm { p: 1.0 } => (9, 0.0, 0.0),
        Reduce::Norm { p: 2.0 } => (10, 0.0, 0.0),
        Reduce::Norm { p } if p == f64::INFINITY => (11, 0.0, 0.0),
        Reduce::Norm { p } if p == f64::NEG_INFINITY => (12, 0.0, 0.0),
        Reduce::Norm { p } => (13, p, 1.0 / p),
        Reduce::LogSumExp => (14, 0.0, 0.0),
        Reduce::SumSquares => (15, 0.0, 0.0),
        Reduce::CountNonzero => (16, 0.0, 0.0),
    }
}

fn product<const N: usize>(loops: &Loops<N>) -> usize {
    loops.iter().map(|l| l.0).product()
}

/// Compile-time parameters of the kernels.
#[derive(Clone, Copy)]
struct Form {
    code: u16,
    x: DType,
    out: DType,
    items_in: u16,
    across: bool,
    width: u16,
    one_loop: bool,
    narrow: bool,
}

impl Form {
    /// The dtype of the accumulation: sums of integers and counts are `i64`.
    fn folded(&self) -> DType {
        match self.x {
            _ if matches!(self.code, 5 | 6 | 16) => DType::I64,
            DType::F64 => DType::F64,
            x if x.is_float() => DType::F32,
            _ => DType::I64,
        }
    }

    /// The type of parameters.
    fn parameters(&self) -> DType {
        if self.folded() == DType::F64 { DType::F64 } else { DType::F32 }
    }

    fn key(&self, entry: &'static str) -> Key {
        let flags = self.across as u16 | (self.one_loop as u16) << 1 | (self.narrow as u16) << 2;
        Key::new(Family::Reduce, entry, [self.code, self.x as u16, self.out as u16, self.items_in, self.width, flags])
    }

    fn defines(&self, entry: &str) -> Defines {
        let folded = self.folded();
        let wide = crate::program::wide;
        // Truth is tested before conversion: a float would lose its fraction on conversion to an integer.
        let element = if matches!(self.code, 5 | 6 | 16) {
            converted(DType::Bool, DType::I64, &converted(self.x, DType::Bool, "(v)"))
        } else {
            converted(self.x, folded, "(v)")
        };
        let defines = Defines::default()
            .define(entry, 1)
            .define("OP_CODE", self.code)
            .define("GROUP", GROUP)
            .define("ITEMS_IN", self.items_in)
            .define("ACROSS", self.across as u8)
            .define("WIDTH", self.width)
            .define("ONE_LOOP", self.one_loop as u8)
            .dtype("T", self.x)
            .dtype("OUT", self.out)
            .define("W", wide(folded))
            .define("W_IS_LONG", (folded == DType::I64) as u8)
            .define("P", wide(self.parameters()))
            .define("ELEMENT(v)", element)
            .conversion("RESULT", folded, self.out);
        if self.narrow { defines.define("NARROW", 1) } else { defines }
    }
}

impl Xpu {
    pub fn reduce(&self, op: Reduce, x: View, reduced: &[bool], out: View) -> Result<()> {
        let needs_float = matches!(
            op,
            Reduce::Mean | Reduce::Var { .. } | Reduce::Norm { .. } | Reduce::LogSumExp | Reduce::SumSquares
        );
        if needs_float && !x.dtype().is_float() {
            return Err(Error::dtype(format!("{op:?}: takes floats, not {}", x.dtype())));
        }
        let length: usize = x.shape().iter().zip(reduced).filter(|(_, r)| **r).map(|(s, _)| *s).product();
        if out.numel() > 0 && length == 0 && matches!(op, Reduce::Max | Reduce::Min) {
            return Err(Error::value(format!(
                "{op:?}: cannot reduce over no elements, which have no largest or smallest (input shape {:?})",
                x.shape()
            )));
        }
        self.fold(code(op, length), x, reduced, out, None)
    }

    pub fn arg_reduce(&self, op: ArgReduce, x: View, dim: usize, values: View, indices: View) -> Result<()> {
        let code = if op == ArgReduce::Max { 17 } else { 18 };
        let reduced: Vec<bool> = (0..x.shape().len()).map(|d| d == dim).collect();
        if values.strides() == indices.strides() {
            return self.fold((code, 0.0, 0.0), x, &reduced, values, Some(indices));
        }
        // One kernel writes both at the same offsets.
        let (best, at) = (self.temporary(values.shape(), x.dtype())?, self.temporary(values.shape(), DType::I64)?);
        self.fold((code, 0.0, 0.0), x, &reduced, best.view(), Some(at.view()))?;
        self.copy(best.view(), values)?;
        self.copy(at.view(), indices)
    }

    fn fold(
        &self,
        (code, first, second): (u16, f64, f64),
        x: View,
        reduced: &[bool],
        out: View,
        indices: Option<View>,
    ) -> Result<()> {
        self.require(&[x.dtype(), out.dtype()])?;
        let all = loops(x.shape(), [x.strides(), out.strides()]);
        let mut marks = (0..x.shape().len()).filter(|&d| x.shape()[d] != 1).map(|d| reduced[d]);
        let (mut kept, mut inner): (Loops<2>, Loops<1>) = (Loops::new(), Loops::new());
        for (size, strides) in all {
            if marks.next().unwrap_or(false) {
                inner.push((size, [strides[0]]));
            } else {
                kept.push((size, strides));
            }
        }
        let (kept, inner) = (merged(&kept), merged(&inner));
        let (outputs, length) = (product(&kept), product(&inner));
        if outputs == 0 {
            return Ok(());
        }
        if outputs.saturating_mul(length) < LARGE {
            return self.fold_any((code, first, second), x, out, indices, &kept, &inner);
        }
        let abilities = self.driver.abilities();
        let lanes = if abilities.is_cpu { 64 / x.dtype().size().max(4) } else { 4 };
        let (last, one_loop) = (kept[kept.len() - 1], inner.len() == 1);
        // Neighbouring outputs are adjacent, and an output's elements are not.
        let across = last.1[0] == 1
            && last.0 % lanes == 0
            && outputs >= lanes
            && !(one_loop && inner[0].1[0] == 1)
            && outputs.saturating_mul(length) >= 4096;
        let along = !across && one_loop && inner[0].1[0] == 1 && length >= 2 * lanes && code < 17;
        let width = if across || along { lanes } else { 1 };
        let owned = if across { width } else { 1 };
        let items_in = if abilities.is_cpu || across || length < 64 {
            1
        } else {
            (length / width / 4).max(1).next_power_of_two().min(GROUP)
        };
        let groups = outputs.div_ceil(owned * (GROUP / items_in));
        // Enough groups to fill the device, and no sum too long.
        let taken = if across { 1 } else { width * items_in };
        let wanted = (if abilities.is_cpu { 4 } else { 16 } * abilities.compute_units.max(1)).div_ceil(groups);
        let pieces = wanted
            .min(length / (MIN_PER_ITEM * taken.min(64)).max(1))
            .max(length.div_ceil(MAX_PER_SUM * taken))
            .clamp(1, 32768);
        let step = if along { width } else { 1 };
        let piece = length.div_ceil(pieces).next_multiple_of(step).max(1);
        let pieces = length.div_ceil(piece).max(1);
        let form = Form {
            code,
            x: x.dtype(),
            out: out.dtype(),
            items_in: items_in as u16,
            across,
            width: width as u16,
            one_loop,
            narrow: !(is_wide(&kept) || is_wide(&inner)),
        };
        let kernel = self.kernel(form.key("reduce"), || form.defines("FOLD"))?;
        let (kept, inner) = (Nest::new(&kept)?, Nest::new(&inner)?);
        let (first, second) = (Number::float(first, form.parameters()), Number::float(second, form.parameters()));
        let (from, to) = (At(x.ptr() as u64), At(out.ptr() as u64));
        // An unused argument gets any valid address.
        let at = At(indices.map_or(out.ptr() as u64, |view| view.ptr() as u64));
        let scratch = if pieces > 1 { Some(self.scratch(pieces * outputs * PARTIAL)?) } else { None };
        let partial = At(scratch.as_ref().map_or(to.0, |s| s.address));
        run!(self, kernel, [groups, pieces, 1], [GROUP, 1, 1];
            kept, inner, from, to, at, partial, outputs, length, piece, first, second)?;
        if pieces > 1 {
            let form = Form { items_in: 1, across: false, width: 1, one_loop: true, ..form };
            let join = self.kernel(form.key("reduce_join"), || form.defines("JOIN"))?;
            run!(self, join, [outputs.div_ceil(GROUP), 1, 1], [GROUP, 1, 1];
                kept, to, at, partial, outputs, pieces, first, second)?;
        }
        Ok(())
    }

    /// The same for small tensors, by the generic kernel.
    fn fold_any(
        &self,
        (code, first, second): (u16, f64, f64),
        x: View,
        out: View,
        indices: Option<View>,
        kept: &Loops<2>,
        inner: &Loops<1>,
    ) -> Result<()> {
        let truth = matches!(code, 5 | 6 | 16);
        let kind = if truth { Kind::I64 } else { Kind::of(x.dtype()) };
        let parameters = if kind == Kind::F64 { DType::F64 } else { DType::F32 };
        let kernel = self.kernel(Key::new(Family::ReduceAny, "reduce_any", [kind as u16]), || {
            Defines::default()
                .kind(kind)
                .define("P", crate::program::wide(parameters))
                .define("GROUP", GROUP_ANY)
                .define("NARROW", 1)
        })?;
        let (outputs, length) = (product(kept), product(inner));
        let (kept, inner) = (Nest::new(kept)?, Nest::new(inner)?);
        let (first, second) = (Number::float(first, parameters), Number::float(second, parameters));
        let (from, to) = (At(x.ptr() as u64), At(out.ptr() as u64));
        let at = At(indices.map_or(out.ptr() as u64, |view| view.ptr() as u64));
        let mode = if truth { DType::Bool } else { DType::I64 } as u32;
        let (code, x_code, out_code) = (code as u32, x.dtype() as u32, out.dtype() as u32);
        run!(self, kernel, [outputs.div_ceil(GROUP_ANY), 1, 1], [GROUP_ANY, 1, 1];
            kept, inner, from, to, at, outputs, length, first, second, code, x_code, out_code, mode)
    }
}
