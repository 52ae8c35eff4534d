//! The optimizers' rules, one op at a time.

use super::array::{Arg, Array};
use crate::backend::{Operand, ParamUpdate, UpdateRule, View};
use crate::{Error, Result};

/// A factor given as a number or as a tensor of one element, to broadcast against anything.
pub fn with_factor<T>(op: &str, factor: Operand, f: impl FnOnce(Arg) -> Result<T>) -> Result<T> {
    match factor {
        Operand::Scalar(number) => f(Arg::Number(number)),
        Operand::Tensor(view) if view.numel() == 1 => f(Arg::Array(&Array::of(view).reshape(&[])?)),
        Operand::Tensor(view) => {
            Err(Error::shape(format!("{op}: a factor must have one element, this one has shape {:?}", view.shape())))
        }
    }
}

/// Default body of [`Backend::update`](crate::Backend::update).
pub fn update(updates: &[ParamUpdate], grad_scale: Operand) -> Result<()> {
    with_factor("update", grad_scale, |scale| updates.iter().try_for_each(|update| step(update, scale)))
}

/// `share * old + gain * new`.
fn blend(share: f64, old: &Array, gain: f64, new: &Array) -> Result<Array<'static>> {
    old.mul(share)?.add(&new.mul(gain)?)
}

/// `average + gain * (x - average)`.
fn approach(average: &Array, gain: f64, x: &Array) -> Result<Array<'static>> {
    average.add(&x.sub(average)?.mul(gain)?)
}

/// In the type it is computed in.
fn array(view: View) -> Result<Array> {
    Array::of(view).wide()
}

fn step(update: &ParamUpdate, scale: Arg) -> Result<()> {
    let state = |i: usize| match update.state[i] {
        Some(view) => array(view),
        None => Err(Error::value(format!("update: {:?} needs state {i}", update.rule))),
    };
    let given = |i: usize| update.state[i].map(array).transpose();
    let keep = |i: usize, value: &Array| match update.state[i] {
        Some(view) => value.copy_to(&Array::of(view)),
        None => Ok(()),
    };
    let param = array(update.param)?.mul(update.shrink)?;
    let mut g = array(update.grad)?.mul(scale)?;
    if update.maximize {
        g = g.neg()?;
    }
    // Without weight decay the parameter stays out of the gradient, even where it is infinite.
    if update.weight_decay != 0.0 {
        g = g.add(&param.mul(update.weight_decay)?)?;
    }
    let change = match update.rule {
        UpdateRule::Sgd { decay, gain, step, grad_step } => match given(0)? {
            None => g.mul(grad_step)?,
            Some(buffer) => {
                let buffer = blend(decay, &buffer, gain, &g)?;
                keep(0, &buffer)?;
                blend(step, &buffer, grad_step, &g)?
            }
        },
        UpdateRule::Adam { beta1, beta2, eps, root, step, grad_step } => {
            let m = approach(&state(0)?, 1.0 - beta1, &g)?;
            let mut v = blend(beta2, &state(1)?, 1.0 - beta2, &g.square()?)?;
            keep(0, &m)?;
            keep(1, &v)?;
            if let Some(largest) = given(2)? {
                v = largest.maximum(&v)?;
                keep(2, &v)?;
            }
            blend(step, &m, grad_step, &g)?.div(&v.sqrt()?.mul(root)?.add(eps)?)?
        }
        UpdateRule::Adamax { beta1, beta2, eps, step } => {
            let m = approach(&state(0)?, 1.0 - beta1, &g)?;
            let u = state(1)?.mul(beta2)?.maximum(&g.abs()?.add(eps)?)?;
            keep(0, &m)?;
            keep(1, &u)?;
            m.mul(step)?.div(&u)?
        }
        UpdateRule::RmsProp { decay, gain, eps, momentum, step } => {
            let v = blend(decay, &state(0)?, gain, &g.square()?)?;
            keep(0, &v)?;
            let mut spread = v;
            if let Some(average) = given(1)? {
                let average = approach(&average, gain, &g)?;
                keep(1, &average)?;
                spread = spread.sub(&average.square()?)?;
            }
            let mut quotient = g.div(&spread.sqrt()?.add(eps)?)?;
            if let Some(buffer) = given(2)? {
                quotient = buffer.mul(momentum)?.add(&quotient)?;
                keep(2, &quotient)?;
            }
            quotient.mul(step)?
        }
        UpdateRule::Adadelta { rho, eps, step } => {
            let u = state(1)?;
            let v = blend(rho, &state(0)?, 1.0 - rho, &g.square()?)?;
            let d = u.add(eps)?.sqrt()?.div(&v.add(eps)?.sqrt()?)?.mul(&g)?;
            keep(0, &v)?;
            keep(1, &blend(rho, &u, 1.0 - rho, &d.square()?)?)?;
            d.mul(step)?
        }
    };
    param.sub(&change)?.copy_to(&Array::of(update.param))
}
