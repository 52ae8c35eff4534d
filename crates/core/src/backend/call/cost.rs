//! What a call costs: operations and bytes, and the name of a family's op.

use super::{Access, Call};
use crate::DType;
use crate::backend::spec::{Complex, Conv};
use crate::backend::{AttentionInputs, View};
use std::borrow::Cow;

/// A view whose shape is known: of memory, or of a recorded program's buffer.
pub trait Shaped {
    /// Sizes.
    fn sizes(&self) -> &[usize];
    /// Element type.
    fn element(&self) -> DType;

    /// Bytes of the elements.
    fn byte_count(&self) -> u64 {
        self.sizes().iter().product::<usize>() as u64 * self.element().size() as u64
    }
}

impl Shaped for View<'_> {
    fn sizes(&self) -> &[usize] {
        self.shape()
    }

    fn element(&self) -> DType {
        self.dtype()
    }
}

/// Two operations for each product of elements.
fn product(inner: Option<&usize>, out: &impl Shaped) -> u64 {
    2 * out.sizes().iter().product::<usize>() as u64 * inner.copied().unwrap_or(1) as u64
}

fn convolution(spec: &Conv) -> u64 {
    let outputs = spec.batch * spec.out_channels * spec.output.iter().product::<usize>();
    let window = spec.in_channels / spec.groups.max(1) * spec.kernel.iter().product::<usize>();
    2 * outputs as u64 * window as u64
}

/// Scores and their product with the values.
fn attention<V: Shaped>(of: &AttentionInputs<V>) -> u64 {
    let (q, v) = (of.q.sizes(), of.v.sizes());
    let [batch, heads, l, d] = [0, 1, 2, 3].map(|i| q.get(i).copied().unwrap_or(1) as u64);
    let (s, dv) = (v.get(2).copied().unwrap_or(1) as u64, v.get(3).copied().unwrap_or(1) as u64);
    let pairs = if of.causal { l * s / 2 } else { l * s };
    2 * batch * heads * pairs * (d + dv)
}

impl<V: Shaped> Call<V> {
    /// Additions and multiplications of products, convolutions and attention; 0 for other families.
    pub fn flops(&self) -> u64 {
        match self {
            Call::MatMul(c) => product(c.a.sizes().last(), &c.out),
            Call::PackedMatMul(c) => product(c.a.sizes().last(), &c.out),
            Call::MatMulGelu(c) => product(c.product.a.sizes().last(), &c.product.out),
            Call::MatMulGeluBackward(c) => product(c.product.a.sizes().last(), &c.product.out),
            Call::Complex(c) if c.op == Complex::Product => 2 * product(c.a.sizes().get(2), &c.out),
            Call::ConvForward(c) => convolution(&c.spec),
            Call::ConvPacked(c) => convolution(&c.spec),
            Call::ConvBackwardInput(c) => convolution(&c.spec),
            Call::ConvBackwardWeight(c) => convolution(&c.spec),
            Call::Attention(c) => attention(&c.of),
            Call::AttentionBackward(c) => attention(&c.of) * 5 / 2,
            _ => 0,
        }
    }

    /// Bytes of all inputs and outputs; a changed view counts twice.
    pub fn bytes(&self) -> u64 {
        let mut bytes = 0;
        self.visit(&mut |access, view| {
            bytes += view.byte_count() * if access == Access::Change { 2 } else { 1 };
        });
        bytes
    }
}

impl<V> Call<V> {
    /// The family's name with that of its op: `exp`, `exp_backward`, `reduce_sum`.
    pub fn op_name(&self) -> Cow<'static, str> {
        let detail = |op: &dyn std::fmt::Debug| {
            let text = format!("{op:?}");
            let name = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            Cow::Owned(format!("{}_{}", self.name(), name.to_lowercase()))
        };
        match self {
            Call::Pointwise(c) => Cow::Borrowed(c.op.name()),
            Call::PointwiseGrad(c) => Cow::Owned(format!("{}_backward", c.op.name())),
            Call::Reduce(c) => detail(&c.op),
            Call::ArgReduce(c) => detail(&c.op),
            Call::Scan(c) => detail(&c.op),
            Call::Scatter(c) => detail(&c.op),
            Call::Linalg(c) => detail(&c.op),
            _ => Cow::Borrowed(self.name()),
        }
    }
}
