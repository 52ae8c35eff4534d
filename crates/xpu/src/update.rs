//! Optimizer steps (`kernels/update.cl`): one launch, and one pass, for each parameter.

use crate::device::Xpu;
use crate::program::{At, Defines, Family, Key, Kind, run};
use crate::row_text::calls_renamed;
use crate::rows::{float, numbers};
use rushlight_core::backend::{ParamUpdate, UpdateRule, call};
use rushlight_core::{Error, Operand, Result, View};

const GROUP: usize = 256;

/// A rule's row as definitions for `update.cl`.
fn rule_defines(defines: Defines, rule: UpdateRule) -> Defines {
    let states = rule.states();
    let conditions = states.iter().enumerate().filter_map(|(i, s)| s.present.map(|name| (i, name)));
    let defines = conditions.fold(defines, |defines, (i, name)| defines.define(name, format!("HAS({i})")));
    let each = |line: fn(usize, &str) -> String| -> String {
        states.iter().enumerate().map(|(i, s)| line(i, s.name)).collect()
    };
    let factors = rule.factor_names().iter().enumerate().map(|(i, name)| format!("const R {name} = e->f[{i}]; "));
    defines
        .define("RULE_STATES", each(|i, name| format!("R {name} = *state{i}; ")))
        .define("RULE_FACTORS", factors.collect::<String>())
        .define("RULE", calls_renamed(rule.text()))
        .define("RULE_KEEP", each(|i, name| format!("*state{i} = {name}; ")))
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
        float("update", param.dtype())?;
        if !update.rule.fits(update.present()) {
            return Err(update.misfit());
        }
        let states = u16::from(update.present());
        let alike = |v: &View| v.dtype() == param.dtype() && v.numel() == param.numel() && v.layout().is_contiguous();
        if ![Some(param), Some(grad), update.state[0], update.state[1], update.state[2]].iter().flatten().all(alike) {
            let whole = call::Update { live: Vec::new(), updates: vec![*update], grad_scale, found_inf: None };
            // SAFETY: a part of the caller's call.
            return unsafe { rushlight_core::backend::composed::run(param.storage().backend(), &whole.into()) };
        }
        if param.numel() == 0 {
            return Ok(());
        }
        self.require(&[param.dtype()])?;
        let kind = Kind::of(param.dtype());
        let (factor, factor_type, number) = match grad_scale {
            Operand::Tensor(view) => (At(view.ptr() as u64), Some(view.dtype()), 1.0),
            Operand::Scalar(value) => (At(grad.ptr() as u64), None, value.to_f64()),
        };
        let tags =
            [update.rule.index(), states, param.dtype() as u16, factor_type.map_or(u16::MAX, |dtype| dtype as u16)];
        let kernel = self.kernel(Key::new(Family::Update, "update", tags), || {
            let defines = rule_defines(Defines::default().kind(kind).define("STATES", states), update.rule);
            let defines = defines.dtype("T", param.dtype()).define("SCALED", factor_type.is_some() as u8);
            defines.dtype("G", factor_type.unwrap_or(param.dtype()))
        })?;
        let state = |i: usize| At(update.state[i].unwrap_or(param).ptr() as u64);
        let count = param.numel();
        run!(self, kernel, [count.div_ceil(GROUP), 1, 1], [GROUP, 1, 1];
            At(param.ptr() as u64), At(grad.ptr() as u64), state(0), state(1), state(2), count, numbers(kind, &update.numbers()), factor,
            kind.number(number))
    }
}
