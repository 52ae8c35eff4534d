//! L-BFGS step by step.

use crate::support::{cases, close, flat, same, tensor, value};
use rushlight_core::{Error, Result};
use rushlight_optim::{Lbfgs, LineSearch, Optimizer};
use rushlight_tensor::{Tensor, cat};
use serde_json::Value as Json;

fn loss(problem: &str, maximize: bool, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let loss = match problem {
        "valley" => {
            let (near, steep) = (a.mul(-1.0)?.add(1.0)?, b.sub(&a.mul(a)?)?);
            near.mul(&near)?.add(&steep.mul(&steep)?.mul(100.0)?)?.sum(..)?
        }
        _ => {
            let residual = tensor("lbfgs/matrix").mv(&cat(&[a, b], 0)?)?.sub(&tensor("lbfgs/target"))?;
            residual.mul(&residual)?.sum(..)?
        }
    };
    loss.backward_of(maximize)
}

trait Sign {
    fn backward_of(self, maximize: bool) -> Result<Tensor>;
}

impl Sign for Tensor {
    /// The loss, negated to maximize, after its backward.
    fn backward_of(self, maximize: bool) -> Result<Tensor> {
        let loss = if maximize { self.neg()? } else { self };
        loss.backward()?;
        Ok(loss)
    }
}

fn build(options: &Json, params: [Tensor; 2]) -> Lbfgs {
    let mut builder = Lbfgs::builder(params);
    for (name, v) in options.as_object().unwrap() {
        builder = match name.as_str() {
            "lr" => builder.lr(v.as_f64().unwrap()),
            "max_iter" => builder.max_iter(v.as_u64().unwrap() as usize),
            "max_eval" => builder.max_eval(v.as_u64().map(|v| v as usize)),
            "history_size" => builder.history_size(v.as_u64().unwrap() as usize),
            "line_search_fn" => builder.line_search_fn(Some(LineSearch::StrongWolfe)),
            "maximize" => builder.maximize(v.as_bool().unwrap()),
            other => panic!("{other}"),
        };
    }
    builder.build().unwrap()
}

#[test]
fn steps_are_pytorchs() {
    for case in cases("lbfgs") {
        let (name, problem) = (case["name"].as_str().unwrap(), case["problem"].as_str().unwrap());
        let maximize = case["options"].get("maximize").is_some();
        let start = |valley: &[f64], squares: &[f64]| {
            let values = if problem == "valley" { valley } else { squares };
            Tensor::from_slice(values, [values.len()]).unwrap().requires_grad_(true).unwrap()
        };
        let (a, b) = (start(&[-1.2], &[0.5, -0.5]), start(&[1.0], &[1.0, 2.0]));
        let mut optimizer = build(&case["options"], [a.clone(), b.clone()]);
        for (step, row) in case["rows"].as_array().unwrap().iter().enumerate() {
            if step == 2 {
                // Another optimizer continues from the state of the first.
                let state = optimizer.state_dict().unwrap();
                optimizer = build(&case["options"], [a.clone(), b.clone()]);
                optimizer.load_state_dict(&state).unwrap();
            }
            let first = optimizer
                .step_closure(&mut || {
                    a.zero_grad();
                    b.zero_grad();
                    loss(problem, maximize, &a, &b)
                })
                .unwrap();
            let got: Vec<f64> = flat([&first, &a, &b]);
            let want: Vec<f64> = row.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
            close(&format!("{name} step {step}"), &got, &want, 1e-7);
        }
        let state = optimizer.state_dict().unwrap();
        let kept = state.get("state").unwrap().get(0).unwrap();
        assert_eq!(kept.get("func_evals").unwrap().as_int().unwrap(), case["func_evals"].as_i64().unwrap(), "{name}");
        assert_eq!(kept.get("n_iter").unwrap().as_int().unwrap(), case["n_iter"].as_i64().unwrap(), "{name}");
        for (key, _) in case["state"].as_object().unwrap().iter().filter(|(key, _)| *key != "al") {
            assert!(kept.get(key.as_str()).is_ok(), "{name}: {key}");
        }
        same(name, &state.get("param_groups").unwrap().as_list().unwrap()[0], &value(&case["group"]));
    }
}

#[test]
fn a_failing_closure_leaves_the_parameters_where_they_were() {
    let x = Tensor::new_with([3.0, 4.0], rushlight_core::DType::F64).unwrap().requires_grad_(true).unwrap();
    let mut optimizer = Lbfgs::builder([x.clone()]).line_search_fn(Some(LineSearch::StrongWolfe)).build().unwrap();
    let mut calls = 0;
    let failed = optimizer.step_closure(&mut || {
        calls += 1;
        if calls == 2 {
            return Err(Error::value("out of data"));
        }
        x.zero_grad();
        x.mul(&x)?.sum(..)?.backward_of(false)
    });
    assert_eq!(failed.err().unwrap().to_string(), "out of data");
    assert_eq!(flat([&x]), [3.0, 4.0]);
    assert!(optimizer.step().is_err());
}
