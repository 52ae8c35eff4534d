//! Optimizer steps and lists of tensors.

use crate::support::*;
use rushlight_core::backend::{Operand, ParamUpdate, UpdateRule, call};
use rushlight_core::{DType, Scalar};

#[test]
fn rules() {
    let adam = UpdateRule::Adam { beta1: 0.9, beta2: 0.99, eps: 1e-6, root: 1.3, step: 0.02, grad_step: 0.01 };
    let rms = UpdateRule::RmsProp { decay: 0.9, gain: 0.1, eps: 1e-3, momentum: 0.8, step: 0.05 };
    let rules = [
        (UpdateRule::Sgd { decay: 0.0, gain: 1.0, step: 0.0, grad_step: 0.1 }, 0b000),
        (UpdateRule::Sgd { decay: 0.9, gain: 0.7, step: 0.1, grad_step: 0.05 }, 0b001),
        (adam, 0b011),
        (adam, 0b111),
        (UpdateRule::Adamax { beta1: 0.9, beta2: 0.99, eps: 1e-6, step: 0.02 }, 0b011),
        (rms, 0b001),
        (rms, 0b011),
        (rms, 0b101),
        (rms, 0b111),
        (UpdateRule::Adadelta { rho: 0.9, eps: 1e-3, step: 0.5 }, 0b011),
    ];
    for dtype in FLOATS {
        for (n, (rule, states)) in rules.into_iter().enumerate() {
            for (maximize, weight_decay, shrink) in [(false, 0.0, 1.0), (true, 0.02, 0.97)] {
                compare(&format!("update {n} {rule:?} {dtype}"), |e| {
                    let tensors = [0, 1].map(|seed| Tensor::random(e, dtype, &[3, 17], seed));
                    // Averages of squares are larger than the square of the average.
                    let scales = [0.1, if matches!(rule, UpdateRule::RmsProp { .. }) { 0.01 } else { 1.0 }, 1.0];
                    let first = if matches!(rule, UpdateRule::RmsProp { .. }) { 1.0 } else { 0.1 };
                    let state: [Tensor; 3] = std::array::from_fn(|k| {
                        let scale = if k == 0 { first } else { scales[k] };
                        Tensor::new(e, dtype, &[3, 17], |i| scale * (number(7 + k as u64, i).abs() + 0.5))
                    });
                    let update = |scale: Operand| {
                        let views = std::array::from_fn(|k| (states >> k & 1 == 1).then(|| state[k].view()));
                        let (param, grad) = (tensors[0].view(), tensors[1].view());
                        let update = ParamUpdate { param, grad, state: views, maximize, weight_decay, shrink, rule };
                        run(
                            e,
                            call::Update {
                                updates: vec![update],
                                grad_scale: scale,
                                live: Vec::new(),
                                found_inf: None,
                            },
                        )
                        .unwrap();
                    };
                    update(Operand::Scalar(Scalar::Float(0.5)));
                    let factor = Tensor::new(e, DType::F32, &[1], |_| 0.25);
                    update(Operand::Tensor(factor.view()));
                    tensors.into_iter().chain(state).collect()
                });
            }
        }
    }
    for e in [rushlight_cpu::backend(), rushlight_cpu::composed()] {
        let x = Tensor::random(e, DType::F32, &[3], 1);
        let (param, grad) = (x.view(), x.view());
        let update =
            ParamUpdate { param, grad, state: [None; 3], maximize: false, weight_decay: 0.0, shrink: 1.0, rule: adam };
        assert!(
            run(
                e,
                call::Update {
                    updates: vec![update],
                    grad_scale: Operand::Scalar(Scalar::Float(1.0)),
                    live: Vec::new(),
                    found_inf: None
                }
            )
            .is_err()
        );
    }
}

#[test]
fn lists() {
    for p in [0.0, 1.0, 2.0, 3.0, -1.0, f64::INFINITY, f64::NEG_INFINITY] {
        compare(&format!("foreach_norm {p}"), |e| {
            let xs = [(DType::F32, 5), (DType::BF16, 1), (DType::F32, 0), (DType::F16, 300)]
                .map(|(dtype, n)| Tensor::new(e, dtype, &[n], |i| if i == 2 && p >= 0.0 { 0.0 } else { number(1, i) }));
            let views = xs.each_ref().map(|x| x.view());
            let (some, none) = (Tensor::out(e, DType::F32, &[]), Tensor::out(e, DType::F64, &[]));
            run(e, call::ForeachNorm { p, xs: call::List::from_slice(&views), out: some.view() }).unwrap();
            run(e, call::ForeachNorm { p, xs: call::List::from_slice(&[]), out: none.view() }).unwrap();
            vec![some, none]
        });
    }
    for broken in [1.0, f64::INFINITY, f64::NAN] {
        compare(&format!("foreach_scale {broken}"), |e| {
            let xs = FLOATS.map(|dtype| Tensor::new(e, dtype, &[4, 3], |i| if i == 7 { broken } else { number(1, i) }));
            let views = xs.each_ref().map(|x| x.view());
            let found = Tensor::new(e, DType::F32, &[], |_| 0.0);
            let factor = Tensor::new(e, DType::F32, &[], |_| 0.5);
            run(
                e,
                call::ForeachScale { factor: None, xs: call::List::from_slice(&views), found_inf: Some(found.view()) },
            )
            .unwrap();
            let only = found.values()[0];
            run(
                e,
                call::ForeachScale {
                    factor: Some(Operand::Tensor(factor.view())),
                    xs: call::List::from_slice(&views),
                    found_inf: Some(found.view()),
                },
            )
            .unwrap();
            run(
                e,
                call::ForeachScale {
                    factor: Some(Operand::Scalar(Scalar::Float(3.0))),
                    xs: call::List::from_slice(&views),
                    found_inf: None,
                },
            )
            .unwrap();
            xs.into_iter().chain([Tensor::new(e, DType::F32, &[], |_| only), found]).collect()
        });
    }
}
