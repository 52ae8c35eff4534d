//! Attention.

use crate::support::*;
use rushlight_core::backend::{Attention, Backend, call};
use rushlight_core::{DType, Layout};

#[derive(Clone, Copy, Debug)]
struct Case {
    /// Batch, heads, heads of keys, queries, keys, sizes of keys and values.
    sizes: [usize; 7],
    causal: bool,
    /// Added to the scores, or `bool`.
    mask: Option<DType>,
    dropout: f64,
}

impl Case {
    fn plain(sizes: [usize; 7]) -> Self {
        Self { sizes, causal: false, mask: None, dropout: 0.0 }
    }

    /// `[batch, length, heads, size]` in memory, as a projection leaves them.
    fn tensor(
        self,
        e: &'static dyn Backend,
        dtype: DType,
        heads: usize,
        rows: usize,
        size: usize,
        seed: u64,
    ) -> Tensor {
        let layout = Layout::contiguous(&[self.sizes[0], rows, heads, size]).unwrap().transpose(1, 2);
        Tensor::with_layout(e, dtype, layout, |i| number(seed, i))
    }

    fn run(self, e: &'static dyn Backend, dtype: DType) -> Vec<Tensor> {
        self.run_into(e, dtype, false)
    }

    /// Gradients are contiguous, or `[batch, length, heads, size]` in memory like the inputs.
    fn run_into(self, e: &'static dyn Backend, dtype: DType, interleaved: bool) -> Vec<Tensor> {
        let [batch, heads, kv_heads, l, s, d, dv] = self.sizes;
        let q = self.tensor(e, dtype, heads, l, d, 1);
        let k = self.tensor(e, dtype, kv_heads, s, d, 2);
        let v = self.tensor(e, dtype, kv_heads, s, dv, 3);
        // Some keys are masked out, and for every fifth query all are.
        let hidden = |i: usize| i.is_multiple_of(3) || i / s.max(1) % 5 == 2;
        let mask = self.mask.map(|mask| {
            Tensor::new(e, mask, &[batch, heads, l, s], |i| match (mask, hidden(i)) {
                (DType::Bool, hidden) => !hidden as u8 as f64,
                (_, true) => f64::NEG_INFINITY,
                (_, false) => number(4, i),
            })
        });
        let spec = Attention {
            q: q.view(),
            k: k.view(),
            v: v.view(),
            mask: mask.as_ref().map(|m| m.view()),
            causal: self.causal,
            scale: 0.7,
            dropout: (self.dropout > 0.0).then_some((self.dropout, STREAM)),
        };
        let (out, lse) = (self.tensor(e, dtype, heads, l, dv, 5), Tensor::out(e, wide(dtype), &[batch, heads, l]));
        run(e, call::Attention { of: spec, out: out.view(), lse: lse.view() }).unwrap();
        let dout = self.tensor(e, dtype, heads, l, dv, 6);
        let shapes = [[batch, heads, l, d], [batch, kv_heads, s, d], [batch, kv_heads, s, dv]];
        let gradients = shapes.map(|shape| match (interleaved, shape) {
            (true, [_, heads, rows, size]) => self.tensor(e, dtype, heads, rows, size, 7),
            (false, shape) => Tensor::out(e, dtype, &shape),
        });
        let [dq, dk, dvs] = gradients.each_ref().map(|t| t.view());
        run(
            e,
            call::AttentionBackward { of: spec, out: out.view(), lse: lse.view(), dout: dout.view(), dq, dk, dv: dvs },
        )
        .unwrap();
        [out, lse].into_iter().chain(gradients).collect()
    }
}

#[test]
fn attention() {
    let sizes = [2, 4, 2, 7, 9, 5, 3];
    for dtype in FLOATS {
        for causal in [false, true] {
            for mask in [None, Some(DType::Bool), Some(dtype)] {
                for dropout in [0.0, 0.3] {
                    let case = Case { sizes, causal, mask, dropout };
                    compare(&format!("attention {dtype} {case:?}"), |e| case.run(e, dtype));
                }
            }
        }
    }
}

/// Default bodies also support features that only other engines have kernels for: gradients of any strides.
#[test]
fn gradients_of_any_strides() {
    let case = Case { causal: true, ..Case::plain([2, 4, 2, 7, 9, 5, 3]) };
    let values = |interleaved| {
        let results = case.run_into(rushlight_cpu::composed(), DType::BF16, interleaved);
        results.iter().map(|t| t.values()).collect::<Vec<_>>()
    };
    assert_eq!(values(false), values(true));
}

#[test]
fn sizes_of_zero_and_one() {
    for sizes in [[1, 1, 1, 1, 1, 1, 1], [2, 2, 1, 3, 0, 4, 4], [2, 2, 1, 0, 3, 4, 4], [0, 2, 2, 3, 3, 4, 4]] {
        compare(&format!("attention {sizes:?}"), |e| Case::plain(sizes).run(e, DType::F32));
    }
}

#[test]
fn more_rows_than_a_block() {
    let case = Case { causal: true, dropout: 0.1, ..Case::plain([1, 2, 1, 2111, 2003, 4, 4]) };
    compare("attention in blocks", |e| case.run(e, DType::F32));
}

/// With the identity as values, the output shows every weight: both drop the same ones.
#[test]
fn dropout_is_bit_equal() {
    let [l, s] = [13, 11];
    for p in [0.1, 0.25, 0.9] {
        let dropped = [rushlight_cpu::backend(), rushlight_cpu::composed()].map(|e| {
            let q = Tensor::random(e, DType::F32, &[2, 3, l, 4], 1);
            let k = Tensor::random(e, DType::F32, &[2, 3, s, 4], 2);
            let v = Tensor::new(e, DType::F32, &[2, 3, s, s], |i| (i % s == i / s % s) as u8 as f64);
            let spec = Attention {
                q: q.view(),
                k: k.view(),
                v: v.view(),
                mask: None,
                causal: false,
                scale: 0.5,
                dropout: Some((p, STREAM)),
            };
            let (out, lse) = (Tensor::out(e, DType::F32, &[2, 3, l, s]), Tensor::out(e, DType::F32, &[2, 3, l]));
            run(e, call::Attention { of: spec, out: out.view(), lse: lse.view() }).unwrap();
            out.values().iter().map(|&v| v == 0.0).collect::<Vec<_>>()
        });
        assert!(dropped[0].contains(&true) && dropped[0].contains(&false));
        assert_eq!(dropped[0], dropped[1]);
    }
}
