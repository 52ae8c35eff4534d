//! Gradient scaling, clipping and averaged weights.

use crate::support::{cases, close, flat, near, report, same, tensor, value};
use rushlight_core::DType;
use rushlight_optim::{Ema, GradScaler, Optimizer, Sgd};
use rushlight_tensor::state::{Stateful, Value};
use rushlight_tensor::{NormOptions, Tensor, clip_grad_norm_with, clip_grad_value_, get_total_norm};

fn param(values: &[f32]) -> Tensor {
    Tensor::from_slice(values, [values.len()]).unwrap().requires_grad_(true).unwrap()
}

#[test]
fn a_scaler_steps_skips_and_grows_as_pytorchs() {
    let golden = report("scaler");
    let infinite: Vec<u64> = golden["infinite"].as_array().unwrap().iter().map(|i| i.as_u64().unwrap()).collect();
    for unscale_first in [false, true] {
        let p = param(&[0.0; 3]);
        let mut optimizer = Sgd::new([p.clone()], 1.0).unwrap();
        let scaler = GradScaler::new().init_scale(8.0).growth_interval(3);
        let mut scaler = scaler.growth_factor(2.0).unwrap().backoff_factor(0.25).unwrap();
        for (step, row) in golden["rows"].as_array().unwrap().iter().enumerate() {
            optimizer.zero_grad();
            let loss = p.mul(&Tensor::new([1.0f32, 2.0, 3.0]).unwrap()).unwrap().sum(..).unwrap();
            scaler.scale(&loss).unwrap().backward().unwrap();
            let bad = infinite.contains(&(step as u64));
            if bad {
                let grad = Tensor::new([1.0f32, if step == 6 { f32::NAN } else { f32::INFINITY }, 0.0]).unwrap();
                p.set_grad(Some(grad)).unwrap();
            }
            if unscale_first {
                scaler.unscale_(&mut optimizer).unwrap();
                if !bad {
                    assert_eq!(flat([&p.grad().unwrap()]), [1.0, 2.0, 3.0]);
                }
                assert!(scaler.unscale_(&mut optimizer).is_err());
            }
            assert_eq!(scaler.step(&mut optimizer).unwrap(), !bad);
            assert!(scaler.step(&mut optimizer).is_err());
            scaler.update().unwrap();
            let want: Vec<f64> = row.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
            near("scale", scaler.get_scale(), want[0], 0.0);
            close("parameters", &flat([&p]), &want[1..], 0.0);
        }
        same("scaler", &scaler.state().unwrap(), &value(&golden["state"]));
        let mut other = GradScaler::new();
        other.load_state(&scaler.state().unwrap()).unwrap();
        same("scaler", &other.state().unwrap(), &value(&golden["state"]));
    }
}

#[test]
fn misused_scalers_say_so() {
    let p = param(&[0.0]);
    let mut optimizer = Sgd::builder([p.clone()]).build().unwrap();
    let mut scaler = GradScaler::new();
    assert!(scaler.update().unwrap_err().to_string().contains("No inf checks"));
    assert!(scaler.step(&mut optimizer).is_err());
    assert!(GradScaler::new().growth_factor(1.0).is_err());
    assert!(GradScaler::new().backoff_factor(1.0).is_err());
    assert!(scaler.load_state(&Value::Dict(Default::default())).is_err());
    let half = Tensor::zeros_with([2], DType::F16).unwrap().requires_grad_(true).unwrap();
    half.set_grad(Some(half.zeros_like().unwrap())).unwrap();
    let mut optimizer = Sgd::builder([half]).build().unwrap();
    assert!(scaler.unscale_(&mut optimizer).unwrap_err().to_string().contains("FP16"));
    // Disabled, it has no effect.
    let mut off = GradScaler::new().enabled(false);
    assert_eq!(off.get_scale(), 1.0);
    assert!(off.step(&mut optimizer).unwrap());
    off.update().unwrap();
    assert!(off.state().unwrap().as_dict().unwrap().is_empty());
}

#[test]
fn clipping_is_pytorchs() {
    for case in cases("clip") {
        let norm_type = value(&case["norm_type"]).as_float().unwrap();
        let params: Vec<Tensor> = (0..4)
            .map(|i| {
                let grad = tensor(&format!("any/grad/{i}")).select(0, 0).unwrap().to_dtype(DType::F32).unwrap();
                let p = grad.zeros_like().unwrap().requires_grad_(true).unwrap();
                p.set_grad(Some(grad)).unwrap();
                p
            })
            .chain([param(&[1.0])])
            .collect();
        let options = NormOptions::default().norm_type(norm_type);
        let total = clip_grad_norm_with(&params, case["max_norm"].as_f64().unwrap(), options).unwrap();
        let name = case["name"].as_str().unwrap();
        near(name, total.item().unwrap(), case["total"].as_f64().unwrap(), 2e-6);
        let grads: Vec<Tensor> = params.iter().filter_map(Tensor::grad).collect();
        close(name, &flat(&grads), &flat(&[tensor(name)]), 1e-6);
    }
}

#[test]
fn clipping_at_the_edges() {
    let none: [&Tensor; 0] = [];
    assert_eq!(get_total_norm(none, NormOptions::default()).unwrap().item::<f32>().unwrap(), 0.0);
    let p = param(&[0.0, 0.0]);
    p.set_grad(Some(Tensor::new([f32::NAN, 1.0]).unwrap())).unwrap();
    let strict = NormOptions::default().error_if_nonfinite(true);
    assert!(clip_grad_norm_with([&p], 1.0, strict).unwrap_err().to_string().contains("non-finite"));
    p.set_grad(Some(Tensor::new([-3.0f32, 0.5]).unwrap())).unwrap();
    clip_grad_value_([&p], 1.0).unwrap();
    assert_eq!(flat([&p.grad().unwrap()]), [-1.0, 0.5]);
}

#[test]
fn averages_are_pytorchs() {
    let golden = report("ema");
    let (weight, bias) = (param(&[0.0; 6]), param(&[0.0; 2]));
    let count = Tensor::new([0i64]).unwrap();
    let named =
        || [("weight", &weight), ("bias", &bias), ("count", &count)].map(|(name, t)| (name.to_string(), t.clone()));
    let mut ema = Ema::new(named(), 0.9).unwrap();
    for (step, row) in golden["rows"].as_array().unwrap().iter().enumerate() {
        rushlight_tensor::autograd::no_grad(|| {
            [&weight, &bias, &count].iter().try_for_each(|p| p.fill_((step * step + 1) as i64).map(drop))
        })
        .unwrap();
        ema.update().unwrap();
        let averages = ema.averages();
        near("weight", averages["weight"].to_vec::<f64>().unwrap()[0], row[0].as_f64().unwrap(), 1e-6);
        near("bias", averages["bias"].to_vec::<f64>().unwrap()[1], row[1].as_f64().unwrap(), 1e-6);
    }
    assert_eq!(ema.averages()["count"].item::<i64>().unwrap(), 26);
    let state = ema.state().unwrap();
    for key in golden["keys"].as_array().unwrap() {
        assert!(state.get(key.as_str().unwrap()).is_ok(), "{key}");
    }
    let mut other = Ema::new(named(), 0.9).unwrap();
    other.load_state(&state).unwrap();
    assert_eq!(other.n_averaged(), 6);
    assert_eq!(flat([&other.averages()["weight"]]), flat([&ema.averages()["weight"]]));
    ema.apply().unwrap();
    assert!(ema.apply().is_err() && ema.update().is_err());
    near("applied", weight.to_vec::<f64>().unwrap()[0], 6.02621, 1e-5);
    ema.restore().unwrap();
    assert!(ema.restore().is_err());
    assert_eq!(weight.to_vec::<f64>().unwrap()[0], 26.0);
    assert!(Ema::new([], 1.5).is_err());
}
