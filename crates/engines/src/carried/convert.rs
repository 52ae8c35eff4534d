//! Conversion from and to carried dtypes.
//!
//! Unsigned integers convert by the engine's own kernels for signed ones. 8-bit floats convert from and to `f32`, and
//! `uint64` from and to floats, by loops on the host; other dtypes go by way of one that the engine has kernels for.

use super::{bits, execute};
use rushlight_core::DType::*;
use rushlight_core::backend::call;
use rushlight_core::float8;
use rushlight_core::sync::SendPtr;
use rushlight_core::{Backend, DType, Device, Element, Layout, Operand, Pointwise, Result, Scalar, Storage, View};
use rushlight_cpu::pool;

/// Contiguous memory for one conversion.
pub(super) struct Temporary {
    storage: Storage,
    layout: Layout,
    dtype: DType,
}

impl Temporary {
    /// Memory of a view's shape.
    pub(super) fn new(engine: &'static dyn Backend, like: View, dtype: DType) -> Result<Self> {
        let layout = Layout::contiguous(like.shape())?;
        Ok(Self { storage: engine.alloc(layout.numel() * dtype.size())?, layout, dtype })
    }

    pub(super) fn view(&self) -> View<'_> {
        // SAFETY: contiguous, and the storage was allocated for it.
        unsafe { View::new_unchecked(&self.storage, &self.layout, self.dtype) }
    }
}

/// Copies elements, converting them; at least one of the two dtypes is carried.
pub(super) fn copy(engine: &'static dyn Backend, src: View, out: View) -> Result<()> {
    if engine.device() == Device::Meta || out.numel() == 0 {
        return Ok(());
    }
    if src.dtype().is_complex() || out.dtype().is_complex() {
        return super::complex::copy(engine, src, out);
    }
    let by_way_of = |dtype: DType| {
        let between = Temporary::new(engine, src, dtype)?;
        copy(engine, src, between.view())?;
        copy(engine, between.view(), out)
    };
    match (src.dtype(), out.dtype()) {
        (from, to) if from == to || !(from.is_carried() || to.is_carried()) => {
            execute(engine, call::Copy { src: bits(src), out: bits(out) })
        }
        // Widen to a signed integer of twice the size, then mask off the extended sign bits.
        (U16, I32) => masked(engine, src, out, 0xffff),
        (U32, I64) => masked(engine, src, out, 0xffff_ffff),
        // As PyTorch does: the integer is rounded to `f32` first.
        (U32, F16 | BF16) => by_way_of(F32),
        (U16, _) => by_way_of(I32),
        (U32, _) => by_way_of(I64),
        (U64, F32) => on_host(engine, src, out, |from: &[u64], to: &mut [f32]| {
            to.iter_mut().zip(from).for_each(|(to, &v)| *to = v as f32);
        }),
        (U64, F64) => on_host(engine, src, out, |from: &[u64], to: &mut [f64]| {
            to.iter_mut().zip(from).for_each(|(to, &v)| *to = v as f64);
        }),
        (U64, to) if to.is_float() => by_way_of(F32),
        // Integers wrap, so unsigned and signed results have the same bits.
        (U64, _) => execute(engine, call::Copy { src: bits(src), out: bits(out) }),
        (from, F32) if from.is_float8() => {
            let table = float8::table(from);
            on_host(engine, src, out, |from: &[u8], to: &mut [f32]| {
                to.iter_mut().zip(from).for_each(|(to, &code)| *to = table[code as usize]);
            })
        }
        (from, _) if from.is_float8() => by_way_of(F32),
        (F32, to) if to.is_float8() => on_host(engine, src, out, |from: &[f32], codes: &mut [u8]| {
            float8::encode_all(to, from, codes);
        }),
        (_, to) if to.is_float8() => by_way_of(F32),
        (F64, U64) => on_host(engine, src, out, |from: &[f64], to: &mut [u64]| {
            to.iter_mut().zip(from).for_each(|(to, &v)| *to = u64::from_f64(v));
        }),
        (from, U64) if from.is_float() => by_way_of(F64),
        (from, _) if from.is_float() => by_way_of(I64),
        _ => execute(engine, call::Copy { src, out: bits(out) }),
    }
}

/// Copies unsigned integers as signed ones of twice their size.
fn masked(engine: &'static dyn Backend, src: View, out: View, mask: i64) -> Result<()> {
    execute(engine, call::Copy { src: bits(src), out })?;
    let inputs = [Operand::Tensor(out), Operand::Scalar(Scalar::Int(mask))];
    execute(
        engine,
        call::Pointwise {
            op: Pointwise::BitwiseAnd,
            compute: out.dtype(),
            inputs: inputs[..].into(),
            params: Default::default(),
            out,
        },
    )
}

/// Elements a task converts at least.
const GRAIN: usize = 16_384;

/// Runs a loop over contiguous elements of the two views on the host.
fn on_host<S: Element, D: Element>(
    engine: &'static dyn Backend,
    src: View,
    out: View,
    run: impl Fn(&[S], &mut [D]) + Sync,
) -> Result<()> {
    if !src.layout().is_contiguous() {
        let dense = Temporary::new(engine, src, src.dtype())?;
        execute(engine, call::Copy { src: bits(src), out: bits(dense.view()) })?;
        return on_host(engine, dense.view(), out, run);
    }
    if !out.layout().is_contiguous() {
        let dense = Temporary::new(engine, out, out.dtype())?;
        on_host(engine, src, dense.view(), run)?;
        return execute(engine, call::Copy { src: bits(dense.view()), out: bits(out) });
    }
    let n = out.numel();
    if engine.device() == Device::Cpu {
        let (from, to) = (SendPtr::new(src.ptr()), SendPtr::new(out.ptr()));
        let grain = n.div_ceil(4 * pool::num_threads()).max(GRAIN);
        pool::parallel_ranges(n, grain, |start, end| {
            let (from, to) = (from.get().cast::<S>(), to.get().cast::<D>());
            // SAFETY: contiguous views of `n` elements of these types, which do not overlap; ranges are disjoint.
            unsafe {
                let from = std::slice::from_raw_parts(from.add(start), end - start);
                run(from, std::slice::from_raw_parts_mut(to.add(start), end - start));
            }
        });
        return Ok(());
    }
    let (mut from, mut to) = (vec![S::default(); n], vec![D::default(); n]);
    // SAFETY: elements are plain bytes; the slices cover exactly the vectors.
    unsafe {
        let bytes = std::slice::from_raw_parts_mut(from.as_mut_ptr().cast::<u8>(), n * size_of::<S>());
        engine.download(src.storage(), src.layout().offset() * size_of::<S>(), bytes)?;
        run(&from, &mut to);
        let bytes = std::slice::from_raw_parts(to.as_ptr().cast::<u8>(), n * size_of::<D>());
        engine.upload(bytes, out.storage(), out.layout().offset() * size_of::<D>())
    }
}
