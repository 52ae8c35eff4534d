//! Calls on complex tensors: moves, conversions and sums, on the real numbers that they are pairs of.
//!
//! A view of complex numbers is a view of real ones with a last dimension of two. Index tensors and masks get that
//! dimension by expansion. Arithmetic is the tensor layer's.

use super::{convert, execute};
use rushlight_core::backend::{Call, Operand, Reduce, Scan, Scatter, View, call};
use rushlight_core::{Backend, DType, Device, Error, Layout, Pointwise, Result, Scalar};

/// A layout with a last dimension of two: the parts of complex numbers, or for a real view each element twice.
fn paired(view: View) -> Result<Layout> {
    let layout = view.layout();
    let factor = if view.dtype().is_complex() { 2 } else { 1 };
    let mut shape = rushlight_core::Dims::from_slice(layout.shape());
    let mut strides: rushlight_core::Dims = layout.strides().iter().map(|s| s * factor).collect();
    shape.push(2);
    strides.push(factor - 1);
    Layout::strided(&shape, &strides, layout.offset() * factor)
}

/// The layout of one part.
fn part(view: View, imag: bool) -> Result<Layout> {
    let layout = paired(view)?;
    Ok(layout.select(layout.rank() - 1, usize::from(imag)))
}

/// A view under another layout, with the dtype of its parts.
fn real<'a>(view: View<'a>, layout: &'a Layout) -> View<'a> {
    // SAFETY: the layout has the elements of the view, or the parts of its numbers.
    unsafe { View::new_unchecked(view.storage(), layout, view.dtype().real()) }
}

/// Runs a call on a complex dtype.
pub(super) fn run(engine: &'static dyn Backend, dtype: DType, call: &Call<View>) -> Result<()> {
    match call {
        Call::Copy(c) => copy(engine, c.src, c.out),
        Call::ForeachCopy(c) => c.from.iter().zip(&c.to).try_for_each(|(from, to)| copy(engine, *from, *to)),
        Call::Fill(c) => {
            if c.value.is_zero() {
                return pairs(engine, &call::Fill { value: Scalar::Int(0), ..*c }.into(), true);
            }
            parts(c.out, |imag, out| execute(engine, call::Fill { value: of(c.value, imag), out }))
        }
        Call::Select(c) => match (c.a, c.b) {
            (Operand::Tensor(_), Operand::Tensor(_)) => pairs(engine, call, true),
            _ => [false, true].into_iter().try_for_each(|imag| {
                let layouts = [c.a, c.b].map(|side| match side {
                    Operand::Tensor(view) => part(view, imag).map(Some),
                    Operand::Scalar(_) => Ok(None),
                });
                let [a_layout, b_layout] = layouts;
                let (a_layout, b_layout, out_layout) = (a_layout?, b_layout?, part(c.out, imag)?);
                fn side<'a>(side: Operand<'a>, layout: &'a Option<Layout>, imag: bool) -> Operand<'a> {
                    match (side, layout) {
                        (Operand::Tensor(view), Some(layout)) => Operand::Tensor(real(view, layout)),
                        (Operand::Scalar(value), _) => Operand::Scalar(of(value, imag)),
                        (view, None) => view,
                    }
                }
                execute(
                    engine,
                    call::Select {
                        condition: c.condition,
                        a: side(c.a, &a_layout, imag),
                        b: side(c.b, &b_layout, imag),
                        out: real(c.out, &out_layout),
                    },
                )
            }),
        },
        Call::Flip(c) => {
            let mut flipped = c.flipped.clone();
            flipped.push(false);
            pairs(engine, &call::Flip { flipped, ..c.clone() }.into(), true)
        }
        Call::PadFrom(c) => {
            let sources = c.sources.iter().cloned().chain([vec![0, 1]]).collect();
            pairs(engine, &call::PadFrom { sources, ..c.clone() }.into(), true)
        }
        // Index tensors index leading dimensions: the parts come last and stay.
        Call::Index(_) | Call::IndexPut(_) => pairs(engine, call, false),
        Call::Gather(_) => pairs(engine, call, true),
        Call::Scatter(c) if matches!(c.op, Scatter::Set | Scatter::Add) => match c.src {
            Operand::Tensor(_) => pairs(engine, call, true),
            Operand::Scalar(value) => parts(c.out, |imag, out| {
                execute(engine, call::Scatter { src: Operand::Scalar(of(value, imag)), out, ..*c })
            }),
        },
        Call::Reduce(c) if matches!(c.op, Reduce::Sum | Reduce::Mean) => {
            let mut reduced = c.reduced.clone();
            reduced.push(false);
            pairs(engine, &call::Reduce { reduced, ..c.clone() }.into(), true)
        }
        Call::Scan(c) if c.op == Scan::Sum => pairs(engine, call, true),
        // Factorisations of complex matrices are the CPU's; the tensor layer moves the data.
        Call::Linalg(_) if engine.device() != Device::Cpu => {
            Err(Error::unsupported(format!("{}: not available on {}", call.op_name(), engine.device())))
        }
        Call::Linalg(_) => execute(engine, call.clone()),
        call => Err(Error::dtype(format!("{}: not implemented for {dtype}", call.op_name()))),
    }
}

/// A part of a number.
fn of(value: Scalar, imag: bool) -> Scalar {
    match value {
        Scalar::Complex(re, im) => Scalar::Float(if imag { im } else { re }),
        _ if imag => Scalar::Int(0),
        value => value,
    }
}

/// Runs something for both parts of a view.
fn parts(view: View, run: impl Fn(bool, View) -> Result<()>) -> Result<()> {
    [false, true].into_iter().try_for_each(|imag| {
        let layout = part(view, imag)?;
        run(imag, real(view, &layout))
    })
}

/// A call on the pairs of its complex views. Other views are expanded to them, or left as they are.
fn pairs(engine: &'static dyn Backend, call: &Call<View>, expand: bool) -> Result<()> {
    let mut layouts = Vec::new();
    let mut failure = None;
    call.visit(&mut |_, view| {
        layouts.push(match paired(*view) {
            Ok(layout) if expand || view.dtype().is_complex() => layout,
            Ok(_) => view.layout().clone(),
            Err(e) => {
                failure = Some(e);
                view.layout().clone()
            }
        });
    });
    if let Some(failure) = failure {
        return Err(failure);
    }
    let mut next = layouts.iter();
    execute(engine, call.map(&mut |_, view| next.next().map_or(*view, |layout| real(*view, layout))))
}

/// Copies elements, converting them; at least one of the two dtypes is complex.
pub(super) fn copy(engine: &'static dyn Backend, src: View, out: View) -> Result<()> {
    match (src.dtype().is_complex(), out.dtype().is_complex()) {
        (true, true) => {
            let (from, to) = (paired(src)?, paired(out)?);
            execute(engine, call::Copy { src: real(src, &from), out: real(out, &to) })
        }
        (false, _) => parts(out, |imag, out| match imag {
            false => convert::copy(engine, src, out),
            true => execute(engine, call::Fill { value: Scalar::Int(0), out }),
        }),
        (true, _) if out.dtype() == DType::Bool => {
            // True where either part is not zero.
            let imaginary = convert::Temporary::new(engine, src, DType::Bool)?;
            parts(src, |imag, part| {
                execute(engine, call::Copy { src: part, out: if imag { imaginary.view() } else { out } })
            })?;
            let inputs = [Operand::Tensor(out), Operand::Tensor(imaginary.view())];
            execute(
                engine,
                call::Pointwise {
                    op: Pointwise::BitwiseOr,
                    compute: DType::U8,
                    params: Default::default(),
                    inputs: inputs[..].into(),
                    out,
                },
            )
        }
        (true, _) => {
            let layout = part(src, false)?;
            convert::copy(engine, real(src, &layout), out)
        }
    }
}
