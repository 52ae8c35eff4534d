use crate::testing::{Array, Float, at_every_level, close, each_float, numbers, tolerance, wide, with_any_threads};
use rushlight_core::backend::{ParamUpdate, UpdateRule};
use rushlight_core::{Element, Operand, Scalar, View};
use rushlight_cpu::reduce::foreach_norm;
use rushlight_cpu::update::*;

/// The rules by their formulas, one number at a time.
fn reference(rule: UpdateRule, shrink: f64, decay: f64, p: &mut f64, g: f64, s: &mut [Option<f64>; 3]) {
    *p *= shrink;
    let g = g + decay * *p;
    match rule {
        UpdateRule::Sgd { decay, gain, step, grad_step } => {
            if let Some(b) = &mut s[0] {
                *b = decay * *b + gain * g;
                *p -= step * *b;
            }
            *p -= grad_step * g;
        }
        UpdateRule::Adam { beta1, beta2, eps, root, step, grad_step } => {
            let (m, v) = (s[0].unwrap(), s[1].unwrap());
            let m = m + (1.0 - beta1) * (g - m);
            let v = beta2 * v + (1.0 - beta2) * g * g;
            s[2] = s[2].map(|u| u.max(v));
            *p -= (step * m + grad_step * g) / (root * s[2].unwrap_or(v).sqrt() + eps);
            (s[0], s[1]) = (Some(m), Some(v));
        }
        UpdateRule::Adamax { beta1, beta2, eps, step } => {
            let (m, u) = (s[0].unwrap(), s[1].unwrap());
            let (m, u) = (m + (1.0 - beta1) * (g - m), (beta2 * u).max(g.abs() + eps));
            *p -= step * m / u;
            (s[0], s[1]) = (Some(m), Some(u));
        }
        UpdateRule::RmsProp { decay, gain, eps, momentum, step } => {
            let v = decay * s[0].unwrap() + gain * g * g;
            s[0] = Some(v);
            s[1] = s[1].map(|a| a + gain * (g - a));
            let d = g / ((v - s[1].map_or(0.0, |a| a * a)).sqrt() + eps);
            s[2] = s[2].map(|b| momentum * b + d);
            *p -= step * s[2].unwrap_or(d);
        }
        UpdateRule::Adadelta { rho, eps, step } => {
            let v = rho * s[0].unwrap() + (1.0 - rho) * g * g;
            let d = g * (s[1].unwrap() + eps).sqrt() / (v + eps).sqrt();
            s[1] = Some(rho * s[1].unwrap() + (1.0 - rho) * d * d);
            s[0] = Some(v);
            *p -= step * d;
        }
    }
}

const SGD: UpdateRule = UpdateRule::Sgd { decay: 0.9, gain: 0.8, step: 0.1, grad_step: 0.05 };
const ADAM: UpdateRule = UpdateRule::Adam { beta1: 0.9, beta2: 0.99, eps: 0.1, root: 1.5, step: 0.1, grad_step: 0.02 };
const RMSPROP: UpdateRule = UpdateRule::RmsProp { decay: 0.9, gain: 0.1, eps: 0.1, momentum: 0.5, step: 0.1 };
/// Rules with the number of their states, and which of them exist.
const CASES: [(UpdateRule, [bool; 3]); 10] = [
    (SGD, [false, false, false]),
    (SGD, [true, false, false]),
    (ADAM, [true, true, false]),
    (ADAM, [true, true, true]),
    (UpdateRule::Adamax { beta1: 0.9, beta2: 0.99, eps: 0.1, step: 0.1 }, [true, true, false]),
    (RMSPROP, [true, false, false]),
    (RMSPROP, [true, false, true]),
    (RMSPROP, [true, true, false]),
    (RMSPROP, [true, true, true]),
    (UpdateRule::Adadelta { rho: 0.9, eps: 0.1, step: 0.5 }, [true, true, false]),
];

/// Tensors of an update: parameter, gradient, states.
struct Setting {
    arrays: [Array; 5],
    there: [bool; 3],
}

impl Setting {
    fn new<T: Float>(n: usize, there: [bool; 3]) -> Self {
        let mut arrays = std::array::from_fn(|i| Array::contiguous(&[n], numbers::<T>(i as u64, n, 1.0)));
        // A mean of squares is not less than the squared mean.
        arrays[2] =
            Array::contiguous(&[n], numbers::<T>(2, n, 1.0).iter().map(|v| T::from_f64(1.5 + v.to_f64())).collect());
        arrays[3] =
            Array::contiguous(&[n], numbers::<T>(3, n, 0.5).iter().map(|v| T::from_f64(v.to_f64().abs())).collect());
        Self { arrays, there }
    }

    fn update(&self, rule: UpdateRule) -> ParamUpdate<'_> {
        ParamUpdate {
            param: self.arrays[0].view(),
            grad: self.arrays[1].view(),
            state: std::array::from_fn(|k| self.there[k].then(|| self.arrays[2 + k].view())),
            maximize: true,
            weight_decay: 0.25,
            shrink: 0.9,
            rule,
        }
    }
}

#[test]
fn rules_at_every_level_in_every_dtype() {
    at_every_level(|| {
        for (rule, there) in CASES {
            each_float!(T => {
                for n in [0, 1, 5, 63, 64, 1024 + 37] {
                    let setting = Setting::new::<T>(n, there);
                    let before = setting.arrays.each_ref().map(|a| wide(&a.to_vec::<T>()));
                    update(&[setting.update(rule)], Operand::Scalar(Scalar::Float(0.5))).unwrap();
                    let mut want = before.clone();
                    for i in 0..n {
                        let mut s = std::array::from_fn(|k| there[k].then_some(before[2 + k][i]));
                        reference(rule, 0.9, 0.25, &mut want[0][i], -0.5 * before[1][i], &mut s);
                        for k in 0..3 {
                            want[2 + k][i] = s[k].unwrap_or(before[2 + k][i]);
                        }
                    }
                    for (array, want) in setting.arrays.iter().zip(&want) {
                        close(&array.to_vec::<T>(), want, 4.0 * tolerance::<T>());
                    }
                }
            });
        }
    });
}

#[test]
fn lists_of_any_sizes_do_not_depend_on_threads() {
    let sizes = [3, PIECE, 0, 1, 2 * PIECE + 17, 500, PIECE + 1];
    with_any_threads(|| {
        let settings: Vec<Setting> = sizes.iter().map(|&n| Setting::new::<f32>(n, [true, true, false])).collect();
        let updates: Vec<ParamUpdate> = settings.iter().map(|s| s.update(ADAM)).collect();
        update(&updates, Operand::Scalar(Scalar::Float(1.0))).unwrap();
        // Each as if it were the only one.
        for (setting, &n) in settings.iter().zip(&sizes) {
            let alone = Setting::new::<f32>(n, [true, true, false]);
            update(&[alone.update(ADAM)], Operand::Scalar(Scalar::Float(1.0))).unwrap();
            assert!(alone.arrays[0].to_vec::<f32>() == setting.arrays[0].to_vec::<f32>());
        }
        let found = Array::zeros(&[], rushlight_core::DType::F32);
        let views: Vec<View> = settings.iter().map(|s| s.arrays[0].view()).collect();
        let total = Array::zeros(&[], rushlight_core::DType::F64);
        foreach_norm(2.0, &views, total.view()).unwrap();
        foreach_scale(Some(Operand::Scalar(Scalar::Float(0.5))), &views, Some(found.view())).unwrap();
        assert_eq!(found.get(0), 0.0);
        let all: Vec<f32> = settings.iter().flat_map(|s| s.arrays[0].to_vec::<f32>()).collect();
        (all, total.get(0).to_bits())
    });
}

#[test]
fn a_norm_is_that_of_all_elements() {
    let (a, b) = (numbers::<f32>(1, 70_000, 1.0), numbers::<f64>(2, 33, 3.0));
    let views = [Array::contiguous(&[700, 100], a.clone()), Array::contiguous(&[33], b.clone())];
    let all: Vec<f64> = wide(&a).into_iter().chain(b).map(f64::abs).collect();
    for p in [0.0, 0.5, 1.0, 2.0, 3.0, f64::INFINITY, f64::NEG_INFINITY] {
        let out = Array::zeros(&[], rushlight_core::DType::F64);
        foreach_norm(p, &[views[0].view(), views[1].view()], out.view()).unwrap();
        let want = match p {
            0.0 => all.iter().filter(|v| **v != 0.0).count() as f64,
            f64::INFINITY => all.iter().copied().fold(0.0, f64::max),
            f64::NEG_INFINITY => all.iter().copied().fold(f64::INFINITY, f64::min),
            p => all.iter().map(|v| v.powf(p)).sum::<f64>().powf(1.0 / p),
        };
        assert!((out.get(0) - want).abs() <= 1e-6 * want, "{p}: {}, not {want}", out.get(0));
    }
    let out = Array::zeros(&[], rushlight_core::DType::F32);
    foreach_norm(2.0, &[], out.view()).unwrap();
    assert_eq!(out.get(0), 0.0);
}

#[test]
fn what_is_not_finite_is_found_anywhere() {
    at_every_level(|| {
        each_float!(T => {
            for bad in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
                for at in [0, 15, 1023, 1024, 2000] {
                    let mut x = numbers::<T>(5, 2001, 1.0);
                    x[at] = T::from_f64(bad);
                    let (clean, bad) = (Array::contiguous(&[3], numbers::<T>(6, 3, 1.0)), Array::contiguous(&[2001], x));
                    let found = Array::zeros(&[], rushlight_core::DType::F32);
                    foreach_scale(None, &[clean.view()], Some(found.view())).unwrap();
                    assert_eq!(found.get(0), 0.0);
                    foreach_scale(Some(Operand::Scalar(Scalar::Float(2.0))), &[clean.view(), bad.view()], Some(found.view())).unwrap();
                    assert_eq!(found.get(0), 1.0);
                    close(&clean.to_vec::<T>(), &wide(&numbers::<T>(6, 3, 1.0)).iter().map(|v| 2.0 * v).collect::<Vec<_>>(), tolerance::<T>());
                    // Once set, it stays set.
                    foreach_scale(None, &[clean.view()], Some(found.view())).unwrap();
                    assert_eq!(found.get(0), 1.0);
                }
            }
        });
    });
}

#[test]
fn an_infinite_parameter_stays_out_of_the_gradient() {
    let setting = Setting::new::<f32>(3, [false; 3]);
    let param = Array::contiguous(&[3], vec![f32::INFINITY, 1.0, f32::NEG_INFINITY]);
    let rule = UpdateRule::Sgd { decay: 0.0, gain: 0.0, step: 0.0, grad_step: 0.1 };
    let one = ParamUpdate { param: param.view(), weight_decay: 0.0, shrink: 1.0, ..setting.update(rule) };
    update(&[one], Operand::Scalar(Scalar::Float(1.0))).unwrap();
    assert_eq!(param.get(0), f64::INFINITY);
    assert_eq!(param.get(2), f64::NEG_INFINITY);
}

#[test]
fn views_that_do_not_fit_are_errors() {
    let (setting, short) = (Setting::new::<f32>(8, [true, true, false]), Setting::new::<f32>(7, [true; 3]));
    let doubles = Setting::new::<f64>(8, [false; 3]);
    let scale = Operand::Scalar(Scalar::Float(1.0));
    let good = setting.update(ADAM);
    for bad in [
        ParamUpdate { grad: short.arrays[1].view(), ..good },
        ParamUpdate { state: [good.state[0], Some(short.arrays[2].view()), None], ..good },
        ParamUpdate { state: [good.state[0], None, None], ..good },
        ParamUpdate { grad: doubles.arrays[1].view(), ..good },
    ] {
        let before = setting.arrays[0].to_vec::<f32>();
        assert!(update(&[good, bad], scale).is_err());
        assert_eq!(setting.arrays[0].to_vec::<f32>(), before);
    }
    assert!(update(&[good], Operand::Tensor(short.arrays[0].view())).is_err());
    assert!(foreach_scale(None, &[good.param], Some(short.arrays[0].view())).is_err());
}
