//! Cross-entropy.

use crate::support::*;
use rushlight_core::DType;
use rushlight_core::backend::{CrossEntropy, call};

const ROWS: usize = 9;
const CLASSES: usize = 13;

#[test]
fn cross_entropy() {
    for dtype in FLOATS {
        for weighted in [false, true] {
            for (label_smoothing, log_probabilities) in [(0.0, false), (0.2, false), (0.0, true)] {
                let what = format!("weighted {weighted} smoothing {label_smoothing} given {log_probabilities}");
                compare(&format!("cross_entropy {dtype} {what}"), |e| {
                    let logits = Tensor::random(e, dtype, &[ROWS, CLASSES], 1);
                    let target = Tensor::new(e, DType::I64, &[ROWS], |i| [3.0, -100.0, 12.0][i % 3]);
                    let weight = Tensor::new(e, dtype, &[CLASSES], |i| 0.25 + i as f64 / 8.0);
                    let spec = CrossEntropy {
                        logits: logits.view(),
                        target: target.view(),
                        weight: weighted.then(|| weight.view()),
                        ignore_index: -100,
                        label_smoothing,
                        log_probabilities,
                    };
                    let statistics = [0; 3].map(|_| Tensor::out(e, wide(dtype), &[ROWS]));
                    let [loss, row_weight, lse] = statistics.each_ref().map(|t| t.view());
                    run(e, call::CrossEntropy { of: spec, loss, row_weight, lse }).unwrap();
                    // The incoming gradients of ignored rows do not matter.
                    let dloss =
                        Tensor::new(e, wide(dtype), &[ROWS], |i| if i % 3 == 1 { f64::NAN } else { number(2, i) });
                    let dlogits = Tensor::out(e, dtype, &[ROWS, CLASSES]);
                    run(e, call::CrossEntropyBackward { of: spec, lse, dloss: dloss.view(), dlogits: dlogits.view() })
                        .unwrap();
                    statistics.into_iter().chain([dlogits]).collect()
                });
            }
        }
    }
}

#[test]
fn targets_out_of_range_are_named() {
    for e in [rushlight_cpu::backend(), rushlight_cpu::composed()] {
        for bad in [-1.0, 13.0, 1e9] {
            let logits = Tensor::random(e, DType::F32, &[ROWS, CLASSES], 1);
            let target = Tensor::new(e, DType::I64, &[ROWS], |i| if i < 4 { -100.0 } else { bad });
            let spec = CrossEntropy {
                logits: logits.view(),
                target: target.view(),
                weight: None,
                ignore_index: -100,
                label_smoothing: 0.0,
                log_probabilities: false,
            };
            let [loss, weight, lse] = [0; 3].map(|_| Tensor::new(e, DType::F32, &[ROWS], |_| 0.0));
            let dlogits = Tensor::out(e, DType::F32, &[ROWS, CLASSES]);
            let wanted = format!("Target {bad} is out of bounds.");
            let forward =
                run(e, call::CrossEntropy { of: spec, loss: loss.view(), row_weight: weight.view(), lse: lse.view() })
                    .unwrap_err();
            let backward = run(
                e,
                call::CrossEntropyBackward { of: spec, lse: lse.view(), dloss: loss.view(), dlogits: dlogits.view() },
            )
            .unwrap_err();
            assert_eq!([forward.to_string(), backward.to_string()], [wanted.clone(), wanted]);
        }
    }
}
