//! Every schedule's rates, step by step, its state dict, and continuing from one.

use crate::support::{cases, near, same, value};
use rushlight_optim::lr_scheduler::*;
use rushlight_optim::{Adam, Optimizer, ParamGroup, Sgd};
use rushlight_tensor::Tensor;
use rushlight_tensor::state::{Stateful, Value};
use serde_json::Value as Json;

fn optimizer(base: &str) -> Box<dyn Optimizer> {
    let param = || [Tensor::zeros([1]).unwrap().requires_grad_(true).unwrap()];
    let groups = [ParamGroup::new(param()), ParamGroup::new(param()).lr(0.02)];
    match base {
        "SGD" => Box::new(Sgd::groups(groups).lr(0.5).momentum(0.9).build().unwrap()),
        _ => Box::new(Adam::groups(groups).lr(0.5).build().unwrap()),
    }
}

/// A schedule, or the one that takes a measure.
enum Any {
    Plain(Box<dyn LrScheduler>),
    Plateau(ReduceLROnPlateau),
}

impl Any {
    fn step(&mut self, metric: f64, optimizer: &mut dyn Optimizer) {
        match self {
            Any::Plain(s) => s.step(optimizer).unwrap(),
            Any::Plateau(s) => s.step(metric, optimizer).unwrap(),
        }
    }

    fn state(&mut self) -> &mut dyn Stateful {
        match self {
            Any::Plain(s) => &mut **s,
            Any::Plateau(s) => s,
        }
    }

    fn last_lr(&self) -> &[f64] {
        match self {
            Any::Plain(s) => s.get_last_lr(),
            Any::Plateau(s) => s.get_last_lr(),
        }
    }
}

fn per_group(json: &Json) -> PerGroup {
    match json.as_array() {
        Some(each) => each.iter().map(|x| x.as_f64().unwrap()).collect::<Vec<_>>().into(),
        None => json.as_f64().unwrap().into(),
    }
}

/// Applies a setter for each option the case names.
macro_rules! with {
    ($plan:expr, $spec:expr, $($name:ident: |$json:ident| $value:expr),* $(,)?) => {{
        let mut plan = $plan;
        $(if let Some($json) = $spec.get(stringify!($name)) {
            plan = plan.$name($value);
        })*
        plan
    }};
}

fn build(spec: &Json, opt: &mut dyn Optimizer) -> Any {
    let float = |j: &Json| j.as_f64().unwrap();
    let count = |j: &Json| j.as_u64().unwrap() as usize;
    let yes = |j: &Json| j.as_bool().unwrap();
    let boxed: Box<dyn LrScheduler> = match spec["scheduler"].as_str().unwrap() {
        "StepLR" => {
            Box::new(with!(StepLR::builder(count(&spec["step_size"])), spec, gamma: |j| float(j)).build(opt).unwrap())
        }
        "MultiStepLR" => {
            let milestones = spec["milestones"].as_array().unwrap().iter().map(count);
            Box::new(with!(MultiStepLR::builder(milestones), spec, gamma: |j| float(j)).build(opt).unwrap())
        }
        "ConstantLR" => Box::new(
            with!(ConstantLR::builder(), spec, factor: |j| float(j), total_iters: |j| count(j)).build(opt).unwrap(),
        ),
        "LinearLR" => {
            let plan = with!(
                LinearLR::builder(), spec,
                start_factor: |j| float(j), end_factor: |j| float(j), total_iters: |j| count(j)
            );
            Box::new(plan.build(opt).unwrap())
        }
        "ExponentialLR" => Box::new(ExponentialLR::new(opt, float(&spec["gamma"])).unwrap()),
        "PolynomialLR" => Box::new(
            with!(PolynomialLR::builder(), spec, total_iters: |j| count(j), power: |j| float(j)).build(opt).unwrap(),
        ),
        "CosineAnnealingLR" => {
            let plan = with!(CosineAnnealingLR::builder(count(&spec["T_max"])), spec, eta_min: |j| float(j));
            Box::new(plan.build(opt).unwrap())
        }
        "CosineAnnealingWarmRestarts" => {
            let mut plan =
                with!(CosineAnnealingWarmRestarts::builder(count(&spec["T_0"])), spec, eta_min: |j| float(j));
            if let Some(t_mult) = spec.get("T_mult") {
                plan = plan.t_mult(count(t_mult));
            }
            Box::new(plan.build(opt).unwrap())
        }
        "OneCycleLR" => {
            let steps = match spec.get("total_steps") {
                Some(steps) => count(steps),
                None => count(&spec["epochs"]) * count(&spec["steps_per_epoch"]),
            };
            let linear = |j: &Json| if j.as_str().unwrap() == "linear" { Anneal::Linear } else { Anneal::Cos };
            let plan = with!(
                OneCycleLR::builder(per_group(&spec["max_lr"]), steps), spec,
                pct_start: |j| float(j), anneal_strategy: |j| linear(j), cycle_momentum: |j| yes(j),
                base_momentum: |j| per_group(j), max_momentum: |j| per_group(j), div_factor: |j| float(j),
                final_div_factor: |j| float(j), three_phase: |j| yes(j),
            );
            Box::new(plan.build(opt).unwrap())
        }
        "SWALR" => {
            let plan = with!(
                SWALR::builder(per_group(&spec["swa_lr"])), spec,
                anneal_epochs: |j| count(j), anneal_strategy: |j| Anneal::named(j.as_str().unwrap()).unwrap(),
            );
            Box::new(plan.build(opt).unwrap())
        }
        "CyclicLR" => {
            let mode = |j: &Json| match j.as_str().unwrap() {
                "triangular2" => CyclicMode::Triangular2,
                "exp_range" => CyclicMode::ExpRange,
                _ => CyclicMode::Triangular,
            };
            let plan = with!(
                CyclicLR::builder(per_group(&spec["base_lr"]), per_group(&spec["max_lr"])), spec,
                step_size_up: |j| count(j), step_size_down: |j| count(j), mode: |j| mode(j), gamma: |j| float(j),
                cycle_momentum: |j| yes(j),
            );
            Box::new(plan.build(opt).unwrap())
        }
        "LambdaLR" => Box::new(LambdaLR::new(opt, |e| 0.95f64.powf(e as f64)).unwrap()),
        "MultiplicativeLR" => {
            let halve: fn(usize) -> f64 = |e| 1.0 / (1.0 + 0.1 * e as f64);
            Box::new(MultiplicativeLR::each([Box::new(halve) as _, Box::new(halve) as _]).build(opt).unwrap())
        }
        "SequentialLR" => {
            let rise = LinearLR::builder().start_factor(0.1).total_iters(5).build(opt).unwrap();
            let fall = CosineAnnealingLR::new(opt, 20).unwrap();
            let last = ExponentialLR::new(opt, 0.9).unwrap();
            let all: Vec<Box<dyn LrScheduler>> = vec![Box::new(rise), Box::new(fall), Box::new(last)];
            Box::new(SequentialLR::new(opt, all, vec![5, 30]).unwrap())
        }
        "ChainedScheduler" => {
            let low = ConstantLR::builder().factor(0.1).total_iters(8).build(opt).unwrap();
            let fall = ExponentialLR::new(opt, 0.95).unwrap();
            Box::new(ChainedScheduler::new(opt, vec![Box::new(low), Box::new(fall)]).unwrap())
        }
        "ReduceLROnPlateau" => {
            let mode = |j: &Json| if j.as_str().unwrap() == "max" { PlateauMode::Max } else { PlateauMode::Min };
            let threshold =
                |j: &Json| if j.as_str().unwrap() == "abs" { ThresholdMode::Abs } else { ThresholdMode::Rel };
            let plan = with!(
                ReduceLROnPlateau::builder(), spec,
                mode: |j| mode(j), factor: |j| float(j), patience: |j| count(j), threshold: |j| float(j),
                threshold_mode: |j| threshold(j), cooldown: |j| count(j), min_lr: |j| per_group(j),
            );
            return Any::Plateau(plan.build(opt).unwrap());
        }
        other => panic!("{other}"),
    };
    Any::Plain(boxed)
}

fn check_row(name: &str, step: usize, optimizer: &dyn Optimizer, row: &Json) {
    let groups = optimizer.param_groups();
    let momentum = |i: usize| match groups[i].get("betas") {
        Some(betas) => betas.as_list().unwrap()[0].as_float().unwrap(),
        None => groups[i].get("momentum").unwrap().as_float().unwrap(),
    };
    let got = [groups[0].lr(), groups[1].lr(), momentum(0), momentum(1)];
    for (got, want) in got.iter().zip(row.as_array().unwrap()) {
        let want = want.as_f64().unwrap();
        assert!((got - want).abs() <= 1e-12 * want.abs() + 1e-18, "{name} at step {step}: {got}, not {want}");
    }
}

#[test]
fn rates_and_states_are_pytorchs() {
    for case in cases("schedulers") {
        let name = case["name"].as_str().unwrap();
        let (spec, base, rows) = (&case["spec"], case["base"].as_str().unwrap(), case["rows"].as_array().unwrap());
        let metric = |step: usize| case["metrics"].as_array().map_or(0.0, |m| m[step].as_f64().unwrap());
        let mut opt = optimizer(base);
        let mut scheduler = build(spec, &mut *opt);
        check_row(name, 0, &*opt, &rows[0]);
        let mut halfway: Option<(Value, Value)> = None;
        for step in 1..rows.len() {
            scheduler.step(metric(step - 1), &mut *opt);
            check_row(name, step, &*opt, &rows[step]);
            let lrs: Vec<f64> = opt.param_groups().iter().map(|g| g.lr()).collect();
            assert_eq!(scheduler.last_lr(), lrs);
            if step == 17 {
                halfway = Some((opt.state_dict().unwrap(), scheduler.state().state().unwrap()));
            }
        }
        same(name, &scheduler.state().state().unwrap(), &value(&case["state"]));
        // Others of the same kind continue from halfway, and from PyTorch's own last state.
        let (opt_state, state) = halfway.unwrap();
        let mut opt = optimizer(base);
        let mut scheduler = build(spec, &mut *opt);
        opt.load_state_dict(&opt_state).unwrap();
        scheduler.state().load_state(&state).unwrap();
        for step in 18..rows.len() {
            scheduler.step(metric(step - 1), &mut *opt);
            check_row(name, step, &*opt, &rows[step]);
        }
        scheduler.state().load_state(&value(&case["state"])).unwrap();
        same(name, &scheduler.state().state().unwrap(), &value(&case["state"]));
        assert!(scheduler.state().load_state(&Value::Dict(Default::default())).is_err(), "{name}");
        same(name, &scheduler.state().state().unwrap(), &value(&case["state"]));
    }
}

#[test]
fn a_warm_up_rises_in_even_steps() {
    let mut opt = optimizer("SGD");
    let then = ExponentialLR::new(&mut *opt, 0.5).unwrap();
    let mut scheduler = SequentialLR::warmup(&mut *opt, 4, Box::new(then)).unwrap();
    for want in [0.125, 0.25, 0.375, 0.5, 0.5, 0.25] {
        near("warm-up", opt.lr(), want, 1e-12);
        scheduler.step(&mut *opt).unwrap();
    }
    let then = ExponentialLR::new(&mut *opt, 0.5).unwrap();
    let mut scheduler = SequentialLR::warmup(&mut *opt, 1, Box::new(then)).unwrap();
    near("no warm-up", opt.lr(), 0.5, 1e-12);
    scheduler.step(&mut *opt).unwrap();
    near("no warm-up", opt.lr(), 0.5, 1e-12);
}

#[test]
fn nonsense_is_an_error() {
    let opt = &mut *optimizer("SGD");
    let message = |e: rushlight_core::Error| e.to_string();
    assert!(StepLR::new(opt, 0).is_err());
    assert!(CosineAnnealingLR::new(opt, 0).is_err());
    assert_eq!(
        LinearLR::builder().start_factor(0.0).build(opt).err().map(message).unwrap(),
        "Starting multiplicative factor expected to be greater than 0 and less or equal to 1."
    );
    assert_eq!(
        ConstantLR::builder().factor(1.5).build(opt).err().map(message).unwrap(),
        "Constant multiplicative factor expected to be between 0 and 1."
    );
    assert!(CosineAnnealingWarmRestarts::new(opt, 0).is_err());
    assert!(OneCycleLR::new(opt, 0.1, 0).is_err());
    assert!(OneCycleLR::new(opt, vec![0.1], 10).is_err());
    assert_eq!(
        ReduceLROnPlateau::builder().factor(1.0).build(opt).err().map(message).unwrap(),
        "Factor should be < 1.0."
    );
    assert!(SequentialLR::new(opt, vec![], vec![]).is_err());
    assert!(ChainedScheduler::new(opt, vec![]).is_err());
    assert!(LambdaLR::each([]).build(opt).is_err());
    let mut cycle = OneCycleLR::new(opt, 0.1, 2).unwrap();
    cycle.step(opt).unwrap();
    cycle.step(opt).unwrap();
    let last = cycle.state_dict().unwrap();
    assert!(cycle.step(opt).err().map(message).unwrap().contains("Tried to step 3 times"));
    same("after a failed step", &cycle.state_dict().unwrap(), &last);
    // A schedule for other groups.
    let one = &mut Sgd::builder([Tensor::zeros([1]).unwrap()]).build().unwrap();
    let mut scheduler = StepLR::new(opt, 1).unwrap();
    scheduler.step(one).unwrap();
    let mut scheduler = LambdaLR::new(opt, |_| 1.0).unwrap();
    assert!(scheduler.step(one).is_err());
}
