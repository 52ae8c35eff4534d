//! Learning-rate schedules and weight averages: the formulas of `rushlight-optim` over values owned by Python.

use crate::error::{IntoPyResult, value_error};
use crate::tensor::PyTensor;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rushlight_optim::lr_scheduler::CyclicMode;
use rushlight_optim::lr_scheduler::formula::{self, Anneal, Formula, Patience};
use rushlight_optim::rule::Averaging;

/// A schedule's formula by PyTorch's name; its options are attributes of the schedule.
fn formula_of(name: &str, options: &Bound<'_, PyDict>, epoch: f64) -> PyResult<Formula> {
    let get = |key: &str| -> PyResult<f64> {
        options.get_item(key)?.ok_or_else(|| value_error(format!("{name} has no attribute '{key}'")))?.extract()
    };
    Ok(match name {
        "StepLR" => Formula::Step { step_size: get("step_size")?, gamma: get("gamma")? },
        "MultiStepLR" => {
            let (mut hits, mut passed) = (0.0, 0.0);
            if let Some(milestones) = options.get_item("milestones")? {
                for (step, count) in milestones.cast::<PyDict>()?.iter() {
                    let (step, count): (f64, f64) = (step.extract()?, count.extract()?);
                    hits += if step == epoch { count } else { 0.0 };
                    passed += if step <= epoch { count } else { 0.0 };
                }
            }
            Formula::MultiStep { gamma: get("gamma")?, hits, passed }
        }
        "ConstantLR" => Formula::Constant { factor: get("factor")?, total_iters: get("total_iters")? },
        "LinearLR" => Formula::Linear {
            start_factor: get("start_factor")?,
            end_factor: get("end_factor")?,
            total_iters: get("total_iters")?,
        },
        "ExponentialLR" => Formula::Exponential { gamma: get("gamma")? },
        "PolynomialLR" => Formula::Polynomial { total_iters: get("total_iters")?, power: get("power")? },
        "CosineAnnealingLR" => Formula::CosineAnnealing { t_max: get("T_max")?, eta_min: get("eta_min")? },
        _ => return Err(value_error(format!("'{name}' is not a schedule with a formula"))),
    })
}

/// The rates of the next step from this step's.
#[pyfunction]
fn _lr_chained(
    name: &str,
    options: &Bound<'_, PyDict>,
    epoch: f64,
    initial: bool,
    base_lrs: Vec<f64>,
    lrs: Vec<f64>,
) -> PyResult<Vec<f64>> {
    let formula = formula_of(name, options, epoch)?;
    Ok(base_lrs.iter().zip(lrs).map(|(&base, lr)| formula.chained(epoch, initial, base, lr)).collect())
}

/// The rates at a step from those at the beginning.
#[pyfunction]
fn _lr_closed_form(name: &str, options: &Bound<'_, PyDict>, epoch: f64, base_lrs: Vec<f64>) -> PyResult<Vec<f64>> {
    let formula = formula_of(name, options, epoch)?;
    Ok(base_lrs.iter().map(|&base| formula.closed_form(epoch, base)).collect())
}

/// Cosine annealing of one rate.
#[pyfunction]
fn _lr_cosine(base_lr: f64, eta_min: f64, t: f64, period: f64) -> f64 {
    formula::cosine(base_lr, eta_min, t, period)
}

/// Position and length of a period of warm restarts: one step later, or at `epoch`.
#[pyfunction]
fn _lr_restarts(t_cur: f64, t_i: f64, t_0: f64, t_mult: f64, epoch: Option<f64>) -> (f64, f64) {
    match epoch {
        Some(epoch) => formula::restarts_at(epoch, t_0, t_mult),
        None => formula::restarts_next(t_cur, t_i, t_mult),
    }
}

/// The index of a cycle and the amplitude in it.
#[pyfunction]
fn _lr_cycle(epoch: f64, total_size: f64, step_ratio: f64) -> (i64, f64) {
    let (number, height) = formula::cycle(epoch, total_size, step_ratio);
    (number as i64, height)
}

/// The amplitude of a cycle, or of a step.
#[pyfunction]
fn _lr_cycle_scale(mode: &str, x: f64, gamma: f64) -> PyResult<f64> {
    let mode = CyclicMode::named(mode).ok_or_else(|| value_error(format!("mode '{mode}' is unknown")))?;
    Ok(mode.scale(x, gamma))
}

fn anneal(strategy: &str) -> PyResult<Anneal> {
    Anneal::named(strategy)
        .ok_or_else(|| value_error(format!("anneal_strategy must be one of 'cos' or 'linear', instead got {strategy}")))
}

/// Interpolation between two values.
#[pyfunction]
fn _lr_anneal(strategy: &str, start: f64, end: f64, part: f64) -> PyResult<f64> {
    Ok(anneal(strategy)?.between(start, end, part))
}

/// The phase of a cycle that a step belongs to, and the completed fraction of it.
#[pyfunction]
fn _lr_phase(epoch: f64, ends: Vec<f64>) -> PyResult<(usize, f64)> {
    formula::phase(epoch, &ends).ok_or_else(|| value_error("the schedule has no phases"))
}

/// The rate while annealing to the one for averaging.
#[pyfunction]
fn _lr_swa(step: f64, anneal_epochs: f64, strategy: &str, swa_lr: f64, lr: f64) -> PyResult<f64> {
    Ok(formula::swa(step, anneal_epochs, anneal(strategy)?, swa_lr, lr))
}

/// Whether a metric improves on the best so far.
#[pyfunction]
fn _lr_is_better(mode: &str, threshold_mode: &str, threshold: f64, a: f64, best: f64) -> bool {
    formula::is_better(mode == "min", threshold_mode == "rel", threshold, a, best)
}

/// Counts a step: bad steps, steps of cooldown, and whether to reduce the rates.
#[pyfunction]
fn _lr_patience(
    better: bool,
    patience: usize,
    cooldown: usize,
    num_bad_epochs: usize,
    cooldown_counter: usize,
) -> (usize, usize, bool) {
    let mut counts = Patience { num_bad_epochs, cooldown_counter };
    let reduce = counts.count(better, patience, cooldown);
    (counts.num_bad_epochs, counts.cooldown_counter, reduce)
}

/// A reduced rate.
#[pyfunction]
fn _lr_reduced(lr: f64, factor: f64, min_lr: f64, eps: f64) -> f64 {
    formula::reduced(lr, factor, min_lr, eps)
}

/// Moves averages towards tensors: with a `decay`, or with equal weights after `count` others.
#[pyfunction]
#[pyo3(signature = (averages, currents, decay=None, count=0.0))]
fn _average_(
    averages: Vec<Bound<'_, PyTensor>>,
    currents: Vec<Bound<'_, PyTensor>>,
    decay: Option<f64>,
    count: f64,
) -> PyResult<()> {
    let averaging = match decay {
        Some(decay) => Averaging::Exponential { decay },
        None => Averaging::Equal { count },
    };
    for (average, current) in averages.iter().zip(&currents) {
        averaging.update_(&average.get().tensor(), &current.get().tensor()).py()?;
    }
    Ok(())
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! functions {
        ($($name:ident),* $(,)?) => { $(module.add_function(wrap_pyfunction!($name, module)?)?;)* };
    }
    functions!(
        _lr_chained,
        _lr_closed_form,
        _lr_cosine,
        _lr_restarts,
        _lr_cycle,
        _lr_cycle_scale,
        _lr_anneal,
        _lr_phase,
        _lr_swa,
        _lr_is_better,
        _lr_patience,
        _lr_reduced,
        _average_,
    );
    Ok(())
}
