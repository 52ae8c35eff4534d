//! Optimizer steps (`kernels/update.cl`): a launch for each parameter, which is one pass over it.

use crate::device::Xpu;
use crate::program::{At, Defines, Family, Key, Kind, run};
use crate::rows::{float, numbers};
use rushlight_core::backend::{ParamUpdate, UpdateRule};
use rushlight_core::{Error, Operand, Result, View};

const GROUP: usize = 256;

/// A rule's number, the same as `RULE` in `update.cl`, and whether it can do with these states, a bit each.
fn rule(rule: UpdateRule, states: u16) -> (u16, bool) {
    match rule {
        UpdateRule::Sgd { .. } => (0, states & !1 == 0),
        UpdateRule::Adam { .. } => (1, states & 3 == 3),
        UpdateRule::Adamax { .. } => (2, states == 3),
        UpdateRule::RmsProp { .. } => (3, states & 1 == 1),
        UpdateRule::Adadelta { .. } => (4, states == 3),
    }
}

impl Xpu {
    pub fn update(&self, updates: &[ParamUpdate], grad_scale: Operand) -> Result<()> {
        if let Operand::Tensor(view) = grad_scale
            && view.numel() != 1
        {
            return Err(Error::shape(format!(
                "update: a factor must have one element, this one has shape {:?}",
                view.shape()
            )));
        }
        updates.iter().try_for_each(|update| self.step(update, grad_scale))
    }

    fn step(&self, update: &ParamUpdate, grad_scale: Operand) -> Result<()> {
        let (param, grad) = (update.param, update.grad);
        float("update", param.dtype)?;
        let states = (0..3).fold(0, |bits, i| bits | (update.state[i].is_some() as u16) << i);
        let (rule, fits) = rule(update.rule, states);
        if !fits {
            return Err(Error::value(format!("update: {:?} lacks a state, or has one too many", update.rule)));
        }
        let alike = |v: &View| v.dtype == param.dtype && v.numel() == param.numel() && v.layout.is_contiguous();
        if ![Some(param), Some(grad), update.state[0], update.state[1], update.state[2]].iter().flatten().all(alike) {
            return rushlight_core::backend::composed::update(&[*update], grad_scale);
        }
        if param.numel() == 0 {
            return Ok(());
        }
        self.require(&[param.dtype])?;
        let kind = Kind::of(param.dtype);
        let (factor, factor_type, number) = match grad_scale {
            Operand::Tensor(view) => (At(view.ptr() as u64), Some(view.dtype), 1.0),
            Operand::Scalar(value) => (At(grad.ptr() as u64), None, value.to_f64()),
        };
        let tags = [rule, states, param.dtype as u16, factor_type.map_or(u16::MAX, |dtype| dtype as u16)];
        let kernel = self.kernel(Key::new(Family::Update, "update", tags), || {
            let defines = Defines::default().kind(kind).define("RULE", rule).define("STATES", states);
            let defines = defines.dtype("T", param.dtype).define("SCALED", factor_type.is_some() as u8);
            defines.dtype("G", factor_type.unwrap_or(param.dtype))
        })?;
        let mut factors = update.numbers().to_vec();
        factors.extend([1.0 - factors[3], 1.0 - factors[4]]);
        let state = |i: usize| At(update.state[i].unwrap_or(param).ptr() as u64);
        let count = param.numel();
        run!(self, kernel, [count.div_ceil(GROUP), 1, 1], [GROUP, 1, 1];
            At(param.ptr() as u64), At(grad.ptr() as u64), state(0), state(1), state(2), count, numbers(kind, &factors), factor,
            kind.number(number))
    }
}
