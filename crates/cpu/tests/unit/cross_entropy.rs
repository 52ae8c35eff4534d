use crate::testing::*;
use rushlight_core::backend::CrossEntropy;
use rushlight_core::{DType, Element, Result};
use rushlight_cpu::cross_entropy::*;

struct Problem {
    logits: Array,
    target: Array,
    weight: Option<Array>,
    ignore_index: i64,
    label_smoothing: f64,
}

fn problem<T: Float>(
    logits: &[T],
    target: &[i64],
    weight: Option<&[T::Acc]>,
    ignore_index: i64,
    label_smoothing: f64,
) -> Problem {
    let (rows, classes) = (target.len(), logits.len() / target.len().max(1));
    Problem {
        logits: Array::contiguous(&[rows, classes], logits.to_vec()),
        target: Array::contiguous(&[rows], target.to_vec()),
        weight: weight.map(|w| Array::contiguous(&[classes], w.to_vec())),
        ignore_index,
        label_smoothing,
    }
}

impl Problem {
    fn spec(&self) -> CrossEntropy<'_> {
        CrossEntropy {
            logits: self.logits.view(),
            target: self.target.view(),
            weight: self.weight.as_ref().map(Array::view),
            ignore_index: self.ignore_index,
            label_smoothing: self.label_smoothing,
            log_probabilities: false,
        }
    }
}

type Loss<A> = (Vec<A>, Vec<A>, Vec<A>);

fn run<T: Float>(p: &Problem) -> Result<Loss<T::Acc>> {
    let [loss, weight, lse] = [0; 3].map(|_| Array::zeros(p.target.layout().shape(), T::Acc::DTYPE));
    cross_entropy(&p.spec(), loss.view(), weight.view(), lse.view())?;
    Ok((loss.to_vec(), weight.to_vec(), lse.to_vec()))
}

fn run_backward<T: Float>(p: &Problem, lse: &[T::Acc], dloss: &[T::Acc]) -> Result<Vec<T>> {
    let [lse, dloss] = [lse, dloss].map(|v| Array::contiguous(&[v.len()], v.to_vec()));
    let dx = Array::zeros(p.logits.layout().shape(), T::DTYPE);
    cross_entropy_backward(&p.spec(), lse.view(), dloss.view(), dx.view())?;
    Ok(dx.to_vec())
}

fn check<T: Float>(rows: usize, classes: usize, weighted: bool, eps: f64, seed: u64) {
    let logits = numbers::<T>(seed, rows * classes, 6.0);
    let target: Vec<i64> = (0..rows).map(|r| if r % 5 == 3 { -100 } else { (r * 7 % classes) as i64 }).collect();
    let weights: Vec<T::Acc> =
        numbers::<T::Acc>(seed + 1, classes, 0.5).iter().map(|w| T::Acc::from_f64(w.to_f64() + 0.6)).collect();
    let p = problem::<T>(&logits, &target, weighted.then_some(&weights[..]), -100, eps);
    let (loss, weight, lse) = run::<T>(&p).unwrap();
    let dloss = numbers::<T::Acc>(seed + 2, rows, 1.0);
    let dx = run_backward::<T>(&p, &lse, &dloss).unwrap();
    let mut want = (vec![0.0; rows], vec![0.0; rows], vec![0.0; rows], vec![0.0; rows * classes]);
    let of = |c: usize| if weighted { weights[c].to_f64() } else { 1.0 };
    for r in 0..rows {
        let x = wide(&logits[r * classes..(r + 1) * classes]);
        let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        want.2[r] = max + x.iter().map(|v| (v - max).exp()).sum::<f64>().ln();
        if target[r] < 0 {
            continue;
        }
        let t = target[r] as usize;
        want.1[r] = of(t);
        let log_p = |c: usize| x[c] - want.2[r];
        want.0[r] = -(1.0 - eps) * of(t) * log_p(t)
            - eps / classes as f64 * (0..classes).map(|c| of(c) * log_p(c)).sum::<f64>();
        // The derivative of -sum(q_c log p_c) is p_c sum(q) - q_c.
        let q = |c: usize| (if c == t { (1.0 - eps) * of(t) } else { 0.0 }) + eps / classes as f64 * of(c);
        let all: f64 = (0..classes).map(q).sum();
        for c in 0..classes {
            want.3[r * classes + c] = dloss[r].to_f64() * (log_p(c).exp() * all - q(c));
        }
    }
    let stats = if T::DTYPE == DType::F64 { 1e-12 } else { 1e-5 };
    close(&loss, &want.0, stats);
    close(&weight, &want.1, stats);
    close(&lse, &want.2, stats);
    close(&dx, &want.3, tolerance::<T>());
}

#[test]
fn matches_the_definition() {
    at_every_level(|| {
        each_float!(T => for (seed, (rows, classes)) in [(1, 1), (4, 3), (9, 65), (33, 1000), (3, 2 * 4096 + 77)].into_iter().enumerate() {
            for (weighted, eps) in [(false, 0.0), (true, 0.0), (false, 0.1), (true, 0.3)] {
                check::<T>(rows, classes, weighted, eps, 10 * seed as u64);
            }
        });
    });
}

#[test]
fn large_results_are_streamed_and_right() {
    check::<f32>(560, 16_384, false, 0.1, 3);
}

#[test]
fn targets_out_of_range_are_named() {
    let logits = [0.5f32; 40];
    for bad in [11, 10, -1, i64::MIN, i64::MAX] {
        let target = [1, -100, bad, 3];
        let p = problem::<f32>(&logits, &target, None, -100, 0.0);
        let wanted = format!("Target {bad} is out of bounds.");
        let error = run::<f32>(&p).unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (rushlight_core::ErrorKind::Index, wanted.clone()));
        assert_eq!(run_backward::<f32>(&p, &[0.0; 4], &[1.0; 4]).unwrap_err().to_string(), wanted);
    }
}

#[test]
fn an_impossible_class_costs_infinity_and_ignored_rows_nothing() {
    let logits = [0.0, f32::NEG_INFINITY, f32::NAN, f32::NAN];
    let (loss, weight, _) = run::<f32>(&problem::<f32>(&logits, &[1, 7], None, 7, 0.0)).unwrap();
    assert_eq!((loss, weight), (vec![f32::INFINITY, 0.0], vec![1.0, 0.0]));
    let dx = run_backward::<f32>(&problem::<f32>(&logits, &[0, 7], None, 7, 0.0), &[0.0, f32::NAN], &[1.0, f32::NAN])
        .unwrap();
    assert_eq!(dx, [0.0; 4]);
}

#[test]
fn no_rows() {
    assert!(run::<f32>(&problem::<f32>(&[], &[], None, -100, 0.0)).is_ok());
}
