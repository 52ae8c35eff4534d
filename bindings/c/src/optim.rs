//! Optimizers by name, with PyTorch's options and state dicts.

use crate::handle::{all, give, put, rl_tensor, slice};
use crate::object::{plain, rl_object};
use crate::status::{self, rl_status, text};
use crate::values::rl_value;
use rushlight_core::{Error, Result};
use rushlight_optim::rule::{Algorithm, Options};
use rushlight_optim::*;
use rushlight_tensor::Tensor;
use rushlight_tensor::state::Value;
use std::ffi::{c_char, c_void};
use std::sync::Mutex;

/// An optimizer.
pub struct rl_optimizer(Mutex<Box<dyn Optimizer>>);

/// An option of a group: PyTorch's name and a value.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct rl_option {
    pub name: *const c_char,
    pub value: rl_value,
}

/// Computes the loss: clears gradients, runs backward, and returns a reference to the loss.
pub type rl_closure = Option<unsafe extern "C" fn(context: *mut c_void, loss: *mut *mut rl_tensor) -> rl_status>;

type Named = Vec<(String, Value)>;

unsafe fn options(options: *const rl_option, count: usize) -> Result<Named> {
    // SAFETY: an array of options, by the header.
    unsafe {
        slice(options, count)
            .iter()
            .map(|o| Ok((text(o.name, "an option's name")?.to_string(), plain(&o.value)?)))
            .collect()
    }
}

fn grouped<A: Algorithm>(params: Vec<Tensor>, options: Named) -> Result<Box<dyn Optimizer>>
where
    GroupOptimizer<A>: Optimizer + 'static,
{
    Ok(Box::new(GroupOptimizer::<A>::groups([group(params, options)]).build()?))
}

fn group(params: Vec<Tensor>, options: Named) -> ParamGroup {
    options.into_iter().fold(ParamGroup::new(params), |group, (name, value)| group.option(name, value))
}

fn lbfgs(params: Vec<Tensor>, named: Named) -> Result<Box<dyn Optimizer>> {
    let mut options = LbfgsOptions::default();
    for (name, value) in named {
        if !options.set(&name, &value)? {
            return Err(Error::value(format!("LBFGS has no option '{name}'")));
        }
    }
    Ok(Box::new(Lbfgs::resume(params, options, &Value::Dict(Default::default()))?))
}

fn make(name: &str, params: Vec<Tensor>, options: Named) -> Result<Box<dyn Optimizer>> {
    match name {
        "SGD" => grouped::<SgdOptions>(params, options),
        "Adam" => grouped::<AdamOptions>(params, options),
        "AdamW" => grouped::<AdamWOptions>(params, options),
        "Adamax" => grouped::<AdamaxOptions>(params, options),
        "NAdam" => grouped::<NAdamOptions>(params, options),
        "RAdam" => grouped::<RAdamOptions>(params, options),
        "RMSprop" => grouped::<RmsPropOptions>(params, options),
        "Adagrad" => grouped::<AdagradOptions>(params, options),
        "Adadelta" => grouped::<AdadeltaOptions>(params, options),
        "Rprop" => grouped::<RpropOptions>(params, options),
        "ASGD" => grouped::<AsgdOptions>(params, options),
        "Adafactor" => grouped::<AdafactorOptions>(params, options),
        "Muon" => grouped::<MuonOptions>(params, options),
        "LBFGS" => lbfgs(params, options),
        _ => Err(Error::value(format!("there is no optimizer '{name}'"))),
    }
}

/// Runs a body with an optimizer, which its calls lock.
unsafe fn with<T>(optimizer: *mut rl_optimizer, body: impl FnOnce(&mut dyn Optimizer) -> Result<T>) -> Result<T> {
    // SAFETY: null or alive, by the header.
    let optimizer = unsafe { optimizer.as_ref() }.ok_or_else(|| Error::value("the optimizer is null"))?;
    match optimizer.0.try_lock() {
        Ok(mut held) => body(&mut **held),
        Err(std::sync::TryLockError::Poisoned(held)) => body(&mut **held.into_inner()),
        Err(std::sync::TryLockError::WouldBlock) => {
            Err(Error::value("the optimizer is in use: by another thread, or by the step whose closure calls it"))
        }
    }
}

fn no_group(at: usize) -> Error {
    Error::value(format!("the optimizer has no group {at}"))
}

api! {
    /// An optimizer ("SGD", "AdamW", "LBFGS", …) with one group of parameters.
    fn rl_optimizer_new(
        name: *const c_char, params: *const *mut rl_tensor, count: usize, options: *const rl_option,
        options_count: usize, out: *mut *mut rl_optimizer,
    ) -> rl_status, try {
        // SAFETY: strings, handles and options, as the header says.
        unsafe {
            let made = make(text(name, "the optimizer's name")?, all(params, count)?, self::options(options, options_count)?)?;
            put(out, Box::into_raw(Box::new(rl_optimizer(Mutex::new(made)))))
        }
    }
    /// Frees an optimizer; null is allowed.
    fn rl_optimizer_free(optimizer: *mut rl_optimizer) -> (), (()) {
        if !optimizer.is_null() {
            // SAFETY: made above, and not used again.
            drop(unsafe { Box::from_raw(optimizer) });
        }
    }
    /// Adds a group of parameters.
    fn rl_optimizer_add_group(
        optimizer: *mut rl_optimizer, params: *const *mut rl_tensor, count: usize, options: *const rl_option,
        options_count: usize,
    ) -> rl_status, try {
        // SAFETY: as above.
        unsafe {
            let group = group(all(params, count)?, self::options(options, options_count)?);
            with(optimizer, |o| o.add_param_group(group))
        }
    }
    /// Changes an option of a group.
    fn rl_optimizer_set(
        optimizer: *mut rl_optimizer, group: usize, name: *const c_char, value: *const rl_value,
    ) -> rl_status, try {
        // SAFETY: as above.
        unsafe {
            let name = text(name, "the option's name")?;
            let value = plain(value.as_ref().ok_or_else(|| Error::value("the value is null"))?)?;
            with(optimizer, |o| {
                let mut groups = o.param_groups_mut();
                groups.get_mut(group).ok_or_else(|| no_group(group))?.set(name, value)
            })
        }
    }
    /// An option of a group as an object; null if the group has none of that name.
    fn rl_optimizer_get(
        optimizer: *mut rl_optimizer, group: usize, name: *const c_char, out: *mut *mut rl_object,
    ) -> rl_status, try {
        // SAFETY: as above.
        unsafe {
            let name = text(name, "the option's name")?;
            let found = with(optimizer, |o| Ok(o.param_groups().get(group).ok_or_else(|| no_group(group))?.get(name)))?;
            put(out, found.map_or(std::ptr::null_mut(), |value| Box::into_raw(Box::new(rl_object(value)))))
        }
    }
    /// Changes the parameters by their gradients.
    fn rl_optimizer_step(optimizer: *mut rl_optimizer) -> rl_status, try {
        // SAFETY: as above.
        unsafe { with(optimizer, |o| o.step()) }
    }
    /// Computes the loss by `closure` as often as the optimizer needs it, and changes the parameters. The closure must
    /// not call the optimizer; rl_zero_grad clears gradients. `loss`, unless null, receives the first loss.
    fn rl_optimizer_step_closure(
        optimizer: *mut rl_optimizer, closure: rl_closure, context: *mut c_void, loss: *mut *mut rl_tensor,
    ) -> rl_status, try {
        let closure = closure.ok_or_else(|| Error::value("the closure is null"))?;
        let mut call = || -> Result<Tensor> {
            let mut found = std::ptr::null_mut();
            // SAFETY: the callback with its context; it returns a reference of its own.
            match unsafe { closure(context, &mut found) } {
                0 if found.is_null() => Err(Error::value("the closure returned no loss")),
                // SAFETY: as above.
                0 => Ok(unsafe { crate::handle::take(found) }),
                code => Err(status::reported(code)),
            }
        };
        // SAFETY: as above.
        let first = unsafe { with(optimizer, |o| o.step_closure(&mut call))? };
        if !loss.is_null() {
            // SAFETY: a place for the result.
            unsafe { put(loss, give(first))? };
        }
        Ok(())
    }
    /// State and options, with PyTorch's keys.
    fn rl_optimizer_state(optimizer: *mut rl_optimizer, out: *mut *mut rl_object) -> rl_status, try {
        // SAFETY: as above.
        unsafe { put(out, Box::into_raw(Box::new(rl_object(with(optimizer, |o| o.state_dict())?)))) }
    }
    /// Goes back to a state, this library's or PyTorch's. Nothing changes if it does not fit.
    fn rl_optimizer_load_state(optimizer: *mut rl_optimizer, state: *const rl_object) -> rl_status, try {
        // SAFETY: as above.
        unsafe {
            let state = state.as_ref().ok_or_else(|| Error::value("the state is null"))?;
            with(optimizer, |o| o.load_state_dict(&state.0))
        }
    }
    /// Scales gradients so that their norm is at most `max_norm`; returns the norm.
    fn rl_clip_grad_norm(
        params: *const *mut rl_tensor, count: usize, max_norm: f64, norm_type: f64, out: *mut f64,
    ) -> rl_status, try {
        // SAFETY: as above.
        let params = unsafe { all(params, count)? };
        let options = rushlight_tensor::NormOptions::default().norm_type(norm_type);
        let norm = rushlight_tensor::clip_grad_norm_with(params.iter(), max_norm, options)?;
        // SAFETY: a place for the result.
        unsafe { put(out, norm.item::<f64>()?) }
    }
}
