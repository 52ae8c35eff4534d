use crate::testing::*;
use rushlight_core::backend::{Attention, call};
use rushlight_core::rng::uniform_f32;
use rushlight_core::{DType, Element, Layout, Philox};
use rushlight_cpu::attention::*;

/// A problem: sizes and options. The mask is none, `bool` or floating, of full size or one row for all
/// queries.
#[derive(Clone, Copy, Debug)]
struct Case {
    sizes: [usize; 7],
    causal: bool,
    mask: Option<(DType, bool)>,
    dropout: f64,
    /// `[batch, length, heads, size]` in memory, as a projection leaves them, instead of `[batch, heads, length,
    /// size]`.
    interleaved: bool,
}

impl Case {
    fn plain(sizes: [usize; 7]) -> Self {
        Self { sizes, causal: false, mask: None, dropout: 0.0, interleaved: false }
    }
}

fn strides(heads: usize, rows: usize, cols: usize, interleaved: bool) -> [usize; 4] {
    if interleaved { [rows * heads * cols, cols, heads * cols, 1] } else { [heads * rows * cols, rows * cols, cols, 1] }
}

#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    heads: usize,
    kv_heads: usize,
    l: usize,
    s: usize,
    d: usize,
    dv: usize,
}

impl Sizes {
    /// Queries of all heads.
    fn rows(&self) -> usize {
        self.batch * self.heads * self.l
    }
}

struct Data<T: Float> {
    sizes: Sizes,
    tensors: [Vec<T>; 3],
    dout: Vec<T>,
    mask: Vec<T>,
    mask_bits: Vec<u8>,
    case: Case,
}

const STREAM: Philox = Philox { seed: 11, offset: 3 };

impl<T: Float> Data<T> {
    fn new(case: Case) -> Self {
        let [batch, heads, kv_heads, l, s, d, dv] = case.sizes;
        let sizes = Sizes { batch, heads, kv_heads, l, s, d, dv };
        let tensors = [
            numbers(1, batch * heads * l * d, 1.0),
            numbers(2, batch * kv_heads * s * d, 1.0),
            numbers(3, batch * kv_heads * s * dv, 1.0),
        ];
        let mut mask: Vec<T> = numbers(4, batch * heads * l * s, 1.0);
        for (i, m) in mask.iter_mut().enumerate() {
            // Some keys are masked out, and for every seventh query all are.
            if i % 3 == 0 || i / s.max(1) % 7 == 2 {
                *m = T::from_f64(f64::NEG_INFINITY);
            }
        }
        let mask_bits = mask.iter().map(|m| m.to_f64().is_finite() as u8).collect();
        Self { sizes, tensors, dout: numbers(5, batch * heads * l * dv, 1.0), mask, mask_bits, case }
    }

    fn scale(&self) -> f64 {
        1.3 / (self.sizes.d as f64).sqrt()
    }

    fn mask_strides(&self) -> [usize; 4] {
        let Sizes { heads, l, s, .. } = self.sizes;
        match self.case.mask {
            Some((_, true)) => [0, 0, 0, 1],
            _ => [heads * l * s, l * s, s, 1],
        }
    }

    /// `data` as the case lays tensors out.
    fn array(&self, data: &[T], heads: usize, rows: usize, cols: usize) -> Array {
        let shape = [self.sizes.batch, heads, rows, cols];
        Array::over(
            data.to_vec(),
            Layout::strided(&shape, &strides(heads, rows, cols, self.case.interleaved), 0).unwrap(),
        )
    }

    /// Queries, keys and values.
    fn inputs(&self) -> [Array; 3] {
        let Sizes { heads, kv_heads, l, s, d, dv, .. } = self.sizes;
        let [q, k, v] = &self.tensors;
        [self.array(q, heads, l, d), self.array(k, kv_heads, s, d), self.array(v, kv_heads, s, dv)]
    }

    fn mask(&self) -> Option<Array> {
        let Sizes { batch, heads, l, s, .. } = self.sizes;
        self.case.mask.map(|(dtype, _)| {
            let layout = Layout::strided(&[batch, heads, l, s], &self.mask_strides(), 0).unwrap();
            match dtype {
                DType::Bool => Array::over(self.mask_bits.iter().map(|&bit| bit != 0).collect(), layout),
                _ => Array::over(self.mask.clone(), layout),
            }
        })
    }

    fn spec<'a>(&self, [q, k, v]: &'a [Array; 3], mask: &'a Option<Array>) -> Attention<'a> {
        Attention {
            q: q.view(),
            k: k.view(),
            v: v.view(),
            mask: mask.as_ref().map(Array::view),
            causal: self.case.causal,
            scale: self.scale(),
            dropout: (self.case.dropout > 0.0).then_some((self.case.dropout, STREAM)),
        }
    }

    fn run(&self) -> (Vec<T>, Vec<T::Acc>, [Vec<T>; 3]) {
        let Sizes { heads, l, dv, .. } = self.sizes;
        let (inputs, mask) = (self.inputs(), self.mask());
        let spec = self.spec(&inputs, &mask);
        let out = self.array(&vec![T::default(); self.dout.len()], heads, l, dv);
        let lse = Array::zeros(&[self.sizes.rows()], T::Acc::DTYPE);
        let dout = self.array(&self.dout, heads, l, dv);
        let gradients = [0, 1, 2].map(|i| Array::new(T::DTYPE, &[self.tensors[i].len()], |_| 7.0));
        attention(&call::Attention { of: spec, out: out.view(), lse: lse.view() }).unwrap();
        let [dq, dk, dv] = gradients.each_ref().map(Array::view);
        attention_backward(&call::AttentionBackward {
            of: spec,
            out: out.view(),
            lse: lse.view(),
            dout: dout.view(),
            dq,
            dk,
            dv,
        })
        .unwrap();
        (out.storage_to_vec(), lse.to_vec(), gradients.each_ref().map(Array::to_vec))
    }

    /// Computed from the definition, in `f64`.
    fn reference(&self) -> (Vec<f64>, Vec<f64>, [Vec<f64>; 3]) {
        let Sizes { batch, heads, kv_heads, l, s, d, dv } = self.sizes;
        let [q, k, v] = [0, 1, 2].map(|i| wide(&self.tensors[i]));
        let dout = wide(&self.dout);
        let mut out = vec![0.0; dout.len()];
        let mut lse = vec![f64::NEG_INFINITY; self.sizes.rows()];
        let mut gradients = [vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]];
        let at = |heads, rows, cols, b: usize, h: usize, i: usize| {
            let st = strides(heads, rows, cols, self.case.interleaved);
            b * st[0] + h * st[1] + i * st[2]
        };
        for b in 0..batch {
            for h in 0..heads {
                let kv = h / (heads / kv_heads);
                for i in 0..l {
                    let qi = at(heads, l, d, b, h, i);
                    let row = (b * heads + h) * l + i;
                    let score = |j: usize| {
                        let kj = at(kv_heads, s, d, b, kv, j);
                        let mut x = (0..d).map(|c| q[qi + c] * k[kj + c]).sum::<f64>() * self.scale();
                        let m = self.mask_strides();
                        let m = b * m[0] + h * m[1] + i * m[2] + j * m[3];
                        x += match self.case.mask {
                            Some((DType::Bool, _)) if self.mask_bits[m] == 0 => f64::NEG_INFINITY,
                            Some((DType::Bool, _)) | None => 0.0,
                            Some(_) => self.mask[m].to_f64(),
                        };
                        if self.case.causal && j > i { f64::NEG_INFINITY } else { x }
                    };
                    let scores: Vec<f64> = (0..s).map(score).collect();
                    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    if max == f64::NEG_INFINITY {
                        continue;
                    }
                    let sum: f64 = scores.iter().map(|x| (x - max).exp()).sum();
                    lse[row] = max + sum.ln();
                    let keep = |j: usize| {
                        let p = self.case.dropout;
                        let u = uniform_f32(STREAM.word((row * s + j) as u64));
                        if p == 0.0 {
                            1.0
                        } else if u >= p as f32 {
                            1.0 / (1.0 - p)
                        } else {
                            0.0
                        }
                    };
                    let p: Vec<f64> = scores.iter().map(|x| (x - max).exp() / sum).collect();
                    let oi = at(heads, l, dv, b, h, i);
                    let value = |j: usize| at(kv_heads, s, dv, b, kv, j);
                    for j in 0..s {
                        for c in 0..dv {
                            out[oi + c] += p[j] * keep(j) * v[value(j) + c];
                        }
                    }
                    let dp: Vec<f64> = (0..s)
                        .map(|j| keep(j) * (0..dv).map(|c| dout[oi + c] * v[value(j) + c]).sum::<f64>())
                        .collect();
                    let delta: f64 = (0..s).map(|j| p[j] * dp[j]).sum();
                    for j in 0..s {
                        let ds = p[j] * (dp[j] - delta) * self.scale();
                        let kj = at(kv_heads, s, d, b, kv, j);
                        // Gradients are contiguous whatever the inputs are.
                        let dk = ((b * kv_heads + kv) * s + j) * d;
                        for c in 0..d {
                            gradients[0][row * d + c] += ds * k[kj + c];
                            gradients[1][dk + c] += ds * q[qi + c];
                        }
                        for c in 0..dv {
                            gradients[2][((b * kv_heads + kv) * s + j) * dv + c] += p[j] * keep(j) * dout[oi + c];
                        }
                    }
                }
            }
        }
        (out, lse, gradients)
    }
}

fn check<T: Float>(case: Case) {
    let data = Data::<T>::new(case);
    let (out, lse, gradients) = data.run();
    let (want_out, want_lse, want_gradients) = data.reference();
    let tolerance = 2.0 * tolerance::<T>();
    close(&out, &want_out, tolerance);
    close(&lse, &want_lse, if T::DTYPE == DType::F64 { 1e-12 } else { 1e-5 });
    for (got, want) in gradients.iter().zip(&want_gradients) {
        close(got, want, tolerance);
    }
}

fn cases() -> Vec<Case> {
    let base = Case::plain([2, 2, 2, 70, 70, 16, 16]);
    vec![
        Case::plain([1, 1, 1, 1, 1, 1, 1]),
        base,
        Case { causal: true, ..base },
        Case { causal: true, interleaved: true, ..Case::plain([1, 2, 2, 300, 300, 64, 64]) },
        Case { causal: true, ..Case::plain([1, 1, 1, 40, 150, 33, 17]) },
        Case { causal: true, ..Case::plain([1, 1, 1, 150, 40, 8, 65]) },
        Case { mask: Some((DType::Bool, false)), ..base },
        Case { mask: Some((DType::F32, false)), interleaved: true, ..base },
        Case { mask: Some((DType::F32, true)), causal: true, ..base },
        Case { mask: Some((DType::Bool, true)), ..Case::plain([2, 3, 1, 9, 140, 5, 7]) },
        Case { dropout: 0.3, ..Case::plain([2, 4, 2, 33, 45, 24, 32]) },
        Case {
            dropout: 0.2,
            causal: true,
            mask: Some((DType::Bool, false)),
            ..Case::plain([1, 2, 1, 67, 131, 48, 40])
        },
        Case::plain([1, 2, 1, 3, 0, 4, 4]),
        Case::plain([1, 0, 0, 3, 2, 4, 4]),
        Case::plain([2, 1, 1, 0, 2, 4, 4]),
    ]
}

#[test]
fn matches_the_definition() {
    at_every_level(|| {
        each_float!(T => for case in cases() {
            check::<T>(case);
        });
    });
}

#[test]
fn a_last_stride_other_than_one() {
    // Keys stored as [d, s].
    let data = Data::<f32>::new(Case::plain([1, 1, 1, 20, 30, 8, 8]));
    let (want, ..) = data.reference();
    let mut turned = vec![0.0; 240];
    for j in 0..30 {
        for c in 0..8 {
            turned[c * 30 + j] = data.tensors[1][j * 8 + c];
        }
    }
    let [q, _, v] = data.inputs();
    let k = Array::over(turned, Layout::strided(&[1, 1, 30, 8], &[240, 240, 1, 30], 0).unwrap());
    // The output as [dv, l].
    let out = Array::over(vec![0f32; 160], Layout::strided(&[1, 1, 20, 8], &[160, 160, 1, 20], 0).unwrap());
    let lse = Array::zeros(&[20], DType::F32);
    let inputs = [q, k, v];
    attention(&call::Attention { of: data.spec(&inputs, &None), out: out.view(), lse: lse.view() }).unwrap();
    let out: Vec<f32> = out.to_vec();
    close(&out, &want, 1e-5);
}

#[test]
fn any_number_of_threads() {
    for case in [
        Case { causal: true, ..Case::plain([1, 1, 1, 400, 400, 16, 16]) },
        Case { dropout: 0.1, ..Case::plain([3, 4, 2, 90, 200, 32, 32]) },
    ] {
        let data = Data::<f32>::new(case);
        with_any_threads(|| data.run());
    }
}
