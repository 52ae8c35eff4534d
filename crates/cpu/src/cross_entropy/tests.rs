use super::*;
use crate::testing::*;

fn problem<'a, T: Float>(
    logits: &[T],
    target: &[i64],
    weight: Option<&'a [T::Acc]>,
    ignore_index: i64,
    smoothing: f64,
) -> Problem<'a, T> {
    let (rows, classes) = (target.len(), logits.len() / target.len().max(1));
    Problem {
        rows,
        classes,
        logits: Shared::new(logits.as_ptr().cast_mut()),
        target: Shared::new(target.as_ptr().cast_mut()),
        weight,
        weight_sum: weight_sum::<T>(weight, classes),
        ignore_index,
        smoothing,
    }
}

type Loss<A> = (Vec<A>, Vec<A>, Vec<A>);

fn run<T: Float>(p: &Problem<T>) -> Result<Loss<T::Acc>> {
    let (mut loss, mut weight, mut lse) =
        (vec![T::Acc::ZERO; p.rows], vec![T::Acc::ZERO; p.rows], vec![T::Acc::ZERO; p.rows]);
    // SAFETY: sizes as in the problem.
    unsafe { forward(p, loss.as_mut_ptr(), weight.as_mut_ptr(), lse.as_mut_ptr()) }?;
    Ok((loss, weight, lse))
}

fn run_backward<T: Float>(p: &Problem<T>, lse: &[T::Acc], dloss: &[T::Acc]) -> Result<Vec<T>> {
    let mut dx = vec![T::default(); p.rows * p.classes];
    // SAFETY: sizes as in the problem.
    unsafe { backward(p, lse.as_ptr(), dloss.as_ptr(), dx.as_mut_ptr()) }?;
    Ok(dx)
}

fn check<T: Float>(rows: usize, classes: usize, weighted: bool, eps: f64, seed: u64) {
    let logits = numbers::<T>(seed, rows * classes, 6.0);
    let target: Vec<i64> = (0..rows).map(|r| if r % 5 == 3 { -100 } else { (r * 7 % classes) as i64 }).collect();
    let weights: Vec<T::Acc> =
        numbers::<T::Acc>(seed + 1, classes, 0.5).iter().map(|w| *w + T::Acc::lit(0.6)).collect();
    let p = problem(&logits, &target, weighted.then_some(&weights[..]), -100, eps);
    let (loss, weight, lse) = run(&p).unwrap();
    let dloss = numbers::<T::Acc>(seed + 2, rows, 1.0);
    let dx = run_backward(&p, &lse, &dloss).unwrap();
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
        each_float!(T => for (seed, (rows, classes)) in [(1, 1), (4, 3), (9, 65), (33, 1000), (3, 2 * BLOCK + 77)].into_iter().enumerate() {
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
        let p = problem(&logits, &target, None, -100, 0.0);
        let wanted = format!("Target {bad} is out of bounds.");
        let error = run(&p).unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (rushlight_core::ErrorKind::Index, wanted.clone()));
        assert_eq!(run_backward(&p, &[0.0; 4], &[1.0; 4]).unwrap_err().to_string(), wanted);
    }
}

#[test]
fn an_impossible_class_costs_infinity_and_ignored_rows_nothing() {
    let logits = [0.0, f32::NEG_INFINITY, f32::NAN, f32::NAN];
    let (loss, weight, _) = run(&problem(&logits, &[1, 7], None, 7, 0.0)).unwrap();
    assert_eq!((loss, weight), (vec![f32::INFINITY, 0.0], vec![1.0, 0.0]));
    let dx = run_backward(&problem(&logits, &[0, 7], None, 7, 0.0), &[0.0, f32::NAN], &[1.0, f32::NAN]).unwrap();
    assert_eq!(dx, [0.0; 4]);
}

#[test]
fn no_rows() {
    assert!(run(&problem::<f32>(&[], &[], None, -100, 0.0)).is_ok());
}
