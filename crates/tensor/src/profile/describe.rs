//! Descriptions of engine calls for spans: name, operations and inputs.

use rushlight_core::Pointwise;
use rushlight_core::backend::*;
use rushlight_profile::{Category, Details, Span, shapes_wanted, span};
use std::borrow::Cow;

/// A span of an engine call. Its parts are made only while the profiler records.
pub(super) fn span_of<N: Into<Cow<'static, str>>>(
    name: impl FnOnce() -> N,
    flops: impl FnOnce() -> u64,
    inputs: impl FnOnce(&mut Details),
) -> Span {
    let mut span = span(Category::Op, name);
    if span.is_recorded() {
        span.describe(|details| {
            details.flops = flops();
            if shapes_wanted() {
                inputs(details);
            }
        });
    }
    span
}

pub(super) fn op_name(op: Pointwise) -> String {
    format!("rushlight::{}", op.name())
}

pub(super) fn op_grad_name(op: Pointwise) -> String {
    format!("rushlight::{}_backward", op.name())
}

/// A family and which of its ops: `rushlight::reduce_sum`.
pub(super) fn family(family: &str, op: &dyn std::fmt::Debug) -> String {
    let text = format!("{op:?}");
    let name = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    format!("rushlight::{family}_{}", name.to_lowercase())
}

/// Two operations for each product of elements.
pub(super) fn product_flops(spec: &MatMul) -> u64 {
    let k = spec.a.layout.shape().last().copied().unwrap_or(1);
    2 * spec.out.layout.numel() as u64 * k as u64
}

pub(super) fn conv_flops(spec: &Conv) -> u64 {
    let outputs = spec.batch * spec.out_channels * spec.output.iter().product::<usize>();
    let window = spec.in_channels / spec.groups.max(1) * spec.kernel.iter().product::<usize>();
    2 * outputs as u64 * window as u64
}

/// Scores and their product with the values.
pub(super) fn attention_flops(spec: &Attention) -> u64 {
    let (q, v) = (spec.q.layout.shape(), spec.v.layout.shape());
    let [batch, heads, l, d] = [0, 1, 2, 3].map(|i| q.get(i).copied().unwrap_or(1) as u64);
    let (s, dv) = (v.get(2).copied().unwrap_or(1) as u64, v.get(3).copied().unwrap_or(1) as u64);
    let pairs = if spec.causal { l * s / 2 } else { l * s };
    2 * batch * heads * pairs * (d + dv)
}

/// Inputs that a span can name.
pub(super) trait Note {
    fn note(&self, details: &mut Details);
}

impl Note for View<'_> {
    fn note(&self, details: &mut Details) {
        details.shapes.push(self.layout.shape().to_vec());
        details.dtypes.push(self.dtype.name());
    }
}

impl Note for Operand<'_> {
    fn note(&self, details: &mut Details) {
        match self {
            Operand::Tensor(view) => view.note(details),
            Operand::Scalar(_) => {
                details.shapes.push(Vec::new());
                details.dtypes.push("Scalar");
            }
        }
    }
}

impl<T: Note> Note for Option<T> {
    fn note(&self, details: &mut Details) {
        if let Some(inner) = self {
            inner.note(details);
        }
    }
}

impl<T: Note + ?Sized> Note for &T {
    fn note(&self, details: &mut Details) {
        (**self).note(details);
    }
}

/// Several inputs of one call.
macro_rules! tuples {
    ($($($name:ident)+;)*) => {$(
        impl<$($name: Note),+> Note for ($($name,)+) {
            fn note(&self, details: &mut Details) {
                #[allow(non_snake_case)]
                let ($($name,)+) = self;
                $($name.note(details);)+
            }
        }
    )*};
}

tuples! {
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
}

impl<T: Note> Note for [T] {
    fn note(&self, details: &mut Details) {
        self.iter().for_each(|inner| inner.note(details));
    }
}
