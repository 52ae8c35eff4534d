//! ASGD, Rprop and Adafactor against PyTorch's answers (`tests/goldens/optim_python.py`), which the Python front is
//! compared with too.

use crate::support::value;
use rushlight_core::{DType, Result};
use rushlight_optim::{Adafactor, Asgd, Optimizer, ParamGroup, Rprop};
use rushlight_tensor::Tensor;
use serde_json::Value as Json;

fn build(name: &str, group: ParamGroup) -> Result<Box<dyn Optimizer>> {
    Ok(match name {
        "ASGD" => Box::new(Asgd::groups([group]).build()?),
        "Rprop" => Box::new(Rprop::groups([group]).build()?),
        "Adafactor" => Box::new(Adafactor::groups([group]).build()?),
        other => panic!("{other}"),
    })
}

fn params() -> Result<[Tensor; 2]> {
    let matrix = Tensor::linspace_with(-1.0, 2.0, 6, DType::F64)?.reshape([2, 3])?;
    Ok([matrix.requires_grad_(true)?, Tensor::linspace_with(1.0, -1.0, 3, DType::F64)?.requires_grad_(true)?])
}

fn flat(json: &Json, out: &mut Vec<f64>) {
    match json {
        Json::Array(items) => items.iter().for_each(|item| flat(item, out)),
        number => out.push(number.as_f64().unwrap()),
    }
}

fn close(got: &[f64], want: &Json, what: &str) {
    let mut wanted = Vec::new();
    flat(want, &mut wanted);
    assert_eq!(got.len(), wanted.len(), "{what}");
    for (a, b) in got.iter().zip(wanted) {
        assert!((a - b).abs() <= 1e-7 * b.abs().max(1.0), "{what}: {a} and not {b}");
    }
}

#[test]
fn composed_optimizers_step_as_pytorchs() -> Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/goldens/data/optim/python.json");
    let report: Json = serde_json::from_str(&std::fs::read_to_string(path)?).unwrap();
    let cases = report["optimizers"].as_array().unwrap();
    assert_eq!(cases.len(), 6);
    for case in cases {
        let name = case["optimizer"].as_str().unwrap();
        let params = params()?;
        let options = case["options"].as_object().unwrap().iter();
        let group = options.fold(ParamGroup::new(params.clone()), |group, (k, v)| group.option(k, value(v)));
        let mut optimizer = build(name, group)?;
        for (step, row) in case["rows"].as_array().unwrap().iter().enumerate() {
            // Saved and restored half-way.
            if step == 4 {
                let saved = optimizer.state_dict()?;
                optimizer = build(name, ParamGroup::new(params.clone()))?;
                optimizer.load_state_dict(&saved)?;
            }
            for (i, p) in params.iter().enumerate() {
                let grad = (Tensor::arange_with(0, p.numel(), 1, DType::F64)? * 3 + (step * 2 + i)).sin()?;
                p.set_grad(Some(grad.reshape(p.shape())?))?;
            }
            optimizer.step()?;
            let now: Vec<f64> = [params[0].to_vec::<f64>()?, params[1].to_vec()?].concat();
            close(&now, row, &format!("{name} step {step}"));
        }
        let state = optimizer.state_dict()?;
        for (i, kept) in case["state"].as_object().unwrap() {
            for (key, want) in kept.as_object().unwrap() {
                let got = state.get("state")?.get(i.parse::<i64>().unwrap())?.get(key.as_str())?.as_tensor()?.clone();
                close(&got.to_vec::<f64>()?, want, &format!("{name} {key} of parameter {i}"));
            }
        }
    }
    Ok(())
}

#[test]
fn options_are_checked() -> Result<()> {
    let params = || params().unwrap();
    assert!(Rprop::builder(params()).etas((1.5, 1.2)).build().is_err());
    assert!(Adafactor::builder(params()).d(0.5).build().is_err());
    assert!(Asgd::builder(params()).weight_decay(-1.0).build().is_err());
    let mut optimizer = Adafactor::builder(params()).eps((Some(1e-6), 1e-2)).build()?;
    optimizer.step()?;
    Ok(())
}
