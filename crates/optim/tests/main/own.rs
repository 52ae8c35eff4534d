//! Optimizers of users: state dicts, groups, mistakes.

use rushlight_core::{Error, Result};
use rushlight_optim::{Optimizer, ParamGroup, Rule, State, optimizer_options};
use rushlight_tensor::Tensor;

optimizer_options! {
    struct Heavy { lr: f64 = 0.1, momentum: f64 = 0.9 }
}

impl Rule for Heavy {
    const KEPT: &'static [&'static str] = &["velocity"];

    fn check(&self) -> Result<()> {
        if self.momentum < 1.0 { Ok(()) } else { Err(Error::value("Heavy: momentum must be below 1")) }
    }

    fn step_one(&self, param: &Tensor, grad: &Tensor, state: &State) -> Result<()> {
        let velocity = state.tensor("velocity")?;
        velocity.mul_(self.momentum)?.add_(grad)?;
        param.add_scaled_(velocity, -self.lr)?;
        assert!(state.step() > 0 && state.tensor("speed").is_err());
        Ok(())
    }
}

fn step(w: &Tensor, optimizer: &mut dyn Optimizer) -> Result<f32> {
    optimizer.zero_grad();
    (w * w).sum(..)?.backward()?;
    optimizer.step()?;
    w.item()
}

#[test]
fn a_rule_continues_from_its_state() -> Result<()> {
    let w = Tensor::new([1.0f32])?.requires_grad_(true)?;
    let mut optimizer = Heavy::default().optimizer([w.clone()])?;
    assert!((step(&w, &mut optimizer)? - 0.8).abs() < 1e-6);
    let state = optimizer.state_dict()?;
    assert_eq!(state.get("param_groups")?.as_list()?[0].get("momentum")?.as_float()?, 0.9);
    let copy = Tensor::new([0.8f32])?.requires_grad_(true)?;
    let mut other = Heavy { momentum: 0.5, ..Heavy::default() }.optimizer([copy.clone()])?;
    other.load_state_dict(&state)?;
    for _ in 0..3 {
        assert_eq!(step(&w, &mut optimizer)?, step(&copy, &mut other)?);
    }
    other.set_lr(0.0)?;
    let before = copy.item::<f32>()?;
    assert_eq!(step(&copy, &mut other)?, before);
    Ok(())
}

#[test]
fn options_of_a_rule_are_checked() -> Result<()> {
    let w = || Tensor::new([1.0f32]).and_then(|w| w.requires_grad_(true));
    let message = |result: Result<_>| result.map(drop).unwrap_err().to_string();
    assert_eq!(
        message(Heavy { momentum: 1.0, ..Heavy::default() }.optimizer([w()?])),
        "Heavy: momentum must be below 1"
    );
    let group = ParamGroup::new([w()?]).weight_decay(0.1);
    assert_eq!(message(Heavy::default().optimizer_of_groups([group])), "Heavy has no option 'weight_decay'");
    Ok(())
}
