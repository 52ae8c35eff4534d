//! Every optimizer step by step, its state dict, and the rules of all optimizers.

use crate::support::{cases, close, dtype, flat, same, tensor, value};
use rushlight_core::{DType, Result};
use rushlight_optim::*;
use rushlight_tensor::Tensor;
use rushlight_tensor::state::Value;
use serde_json::Value as Json;

fn build(name: &str, groups: Vec<ParamGroup>) -> Result<Box<dyn Optimizer>> {
    macro_rules! by_name {
        ($($name:literal => $optimizer:ident),* $(,)?) => {
            match name {
                $($name => Box::new($optimizer::groups(groups).build()?),)*
                other => panic!("{other}"),
            }
        };
    }
    Ok(by_name! {
        "SGD" => Sgd, "Adam" => Adam, "AdamW" => AdamW, "NAdam" => NAdam, "RAdam" => RAdam, "Adamax" => Adamax,
        "Adagrad" => Adagrad, "Adadelta" => Adadelta, "RMSprop" => RmsProp, "Muon" => Muon,
    })
}

struct Case {
    json: &'static Json,
    kind: &'static str,
    params: Vec<Tensor>,
    grads: Vec<Tensor>,
}

impl Case {
    fn new(json: &'static Json) -> Self {
        let kind = json["kind"].as_str().unwrap();
        let dtype = dtype(json["dtype"].as_str().unwrap());
        let load = |what: &str, i: usize| tensor(&format!("{kind}/{what}/{i}")).to_dtype(dtype).unwrap();
        let params = (0..4).map(|i| load("param", i).requires_grad_(true).unwrap()).collect();
        Self { json, kind, params, grads: (0..4).map(|i| load("grad", i)).collect() }
    }

    fn optimizer(&self) -> Box<dyn Optimizer> {
        let with = |group: ParamGroup, options: &Json| {
            options
                .as_object()
                .unwrap()
                .iter()
                .filter(|(k, _)| *k != "params")
                .fold(group, |group, (k, v)| group.option(k, value(v)))
        };
        let groups = match self.json["groups"].as_array() {
            None => vec![with(ParamGroup::new(self.params.clone()), &self.json["options"])],
            Some(groups) => groups
                .iter()
                .map(|g| {
                    let ids = g["params"].as_array().unwrap().iter().map(|i| i.as_u64().unwrap() as usize);
                    let params: Vec<Tensor> = ids.map(|i| self.params[i].clone()).collect();
                    with(with(ParamGroup::new(params), &self.json["options"]), g)
                })
                .collect(),
        };
        build(self.json["optimizer"].as_str().unwrap(), groups).unwrap()
    }

    fn set_grads(&self, step: usize) {
        for (i, (p, g)) in self.params.iter().zip(&self.grads).enumerate() {
            let grad =
                if i == 2 && step.is_multiple_of(2) { None } else { Some(g.select(0, step as isize - 1).unwrap()) };
            p.set_grad(grad).unwrap();
        }
    }

    fn tolerance(&self) -> f64 {
        match (self.kind, self.params[0].dtype()) {
            // Orthogonalised in bf16.
            ("matrices", _) => 2e-3,
            (_, DType::F64) => 1e-12,
            (_, DType::F32) => 2e-6,
            (_, DType::F16) => 4e-3,
            _ => 3e-2,
        }
    }

    fn check_step(&self, step: usize) {
        let name = format!("optimizer/{}/step/{step}", self.json["name"].as_str().unwrap());
        close(&name, &flat(&self.params), &flat(&[tensor(&name)]), self.tolerance());
    }
}

const RECORDED: [usize; 4] = [1, 2, 6, 20];

fn run(json: &'static Json) {
    let case = Case::new(json);
    let mut optimizer = case.optimizer();
    let name = json["name"].as_str().unwrap();
    let mut halfway = None;
    for step in 1..=20 {
        case.set_grads(step);
        optimizer.step().unwrap();
        if RECORDED.contains(&step) {
            case.check_step(step);
        }
        if step == 6 {
            let params: Vec<Tensor> = case.params.iter().map(|p| p.detach().copy().unwrap()).collect();
            let mut saved = case.optimizer();
            saved.load_state_dict(&optimizer.state_dict().unwrap()).unwrap();
            halfway = Some((params, saved.state_dict().unwrap()));
        }
    }
    let state = optimizer.state_dict().unwrap();
    same(
        name,
        state.get("param_groups").unwrap(),
        &value(&Json::Array(json["param_groups"].as_array().unwrap().clone())),
    );
    let names: Vec<&str> = json["state"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
    for i in 0..4i64 {
        let kept: Vec<String> = match state.get("state").unwrap().get(i) {
            Ok(kept) => kept.as_dict().unwrap().keys().map(|k| k.to_string()).collect(),
            Err(_) => Vec::new(),
        };
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        assert_eq!(sorted(kept), sorted(names.iter().map(|n| n.to_string()).collect()), "{name}");
    }
    for key in names {
        let tensors: Vec<Tensor> = (0..4i64)
            .map(|i| state.get("state").unwrap().get(i).unwrap().get(key).unwrap().as_tensor().unwrap().clone())
            .collect();
        let golden = format!("optimizer/{name}/state/{key}");
        close(&golden, &flat(&tensors), &flat(&[tensor(&golden)]), case.tolerance());
    }
    // From the halfway state on, another optimizer continues the same, bit for bit.
    let last = flat(&case.params);
    let (params, saved) = halfway.unwrap();
    let again = Case { params: params.into_iter().map(|p| p.requires_grad_(true).unwrap()).collect(), ..case };
    let mut optimizer = again.optimizer();
    optimizer.load_state_dict(&saved).unwrap();
    for step in 7..=20 {
        again.set_grads(step);
        optimizer.step().unwrap();
    }
    assert_eq!(flat(&again.params), last, "{name}");
}

#[test]
fn steps_and_states_are_pytorchs() {
    for json in cases("optimizers") {
        run(json);
    }
}

fn ones(shape: &[usize]) -> Tensor {
    Tensor::ones(shape).unwrap().requires_grad_(true).unwrap()
}

fn message<T>(result: Result<T>) -> String {
    result.err().expect("an error").to_string()
}

#[test]
fn options_are_checked_with_pytorchs_words() {
    let p = || [ones(&[2])];
    assert_eq!(message(Sgd::new(p(), -1.0)), "Invalid learning rate: -1");
    assert_eq!(
        message(Sgd::builder(p()).nesterov(true).build()),
        "Nesterov momentum requires a momentum and zero dampening"
    );
    assert_eq!(message(Adam::builder(p()).betas((1.0, 0.9)).build()), "Invalid beta parameter at index 0: 1");
    assert_eq!(message(Adam::builder(p()).eps(f64::NAN).build()), "Invalid epsilon value: NaN");
    assert_eq!(message(Adam::builder([]).build()), "optimizer got an empty parameter list");
    assert_eq!(message(AdamW::groups([ParamGroup::new(p()).momentum(0.9)]).build()), "AdamW has no option 'momentum'");
    assert_eq!(message(Adam::builder([ones(&[2]).mul(2.0).unwrap()]).build()), "can't optimize a non-leaf Tensor");
    let twice = ones(&[2]);
    assert_eq!(
        message(Adam::builder([twice.clone(), twice.clone()]).build()),
        "a parameter group contains a parameter twice"
    );
    let groups = [ParamGroup::new([twice.clone()]), ParamGroup::new([twice])];
    assert_eq!(message(Adam::groups(groups).build()), "some parameters appear in more than one parameter group");
    let mut optimizer = Adam::builder(p()).build().unwrap();
    assert_eq!(message(optimizer.set_lr(-2.0)), "Invalid learning rate: -2");
    assert_eq!(optimizer.lr(), 1e-3);
}

#[test]
fn a_state_that_does_not_fit_changes_nothing() {
    let p = ones(&[2]);
    p.set_grad(Some(Tensor::ones([2]).unwrap())).unwrap();
    let mut adam = Adam::builder([p.clone()]).build().unwrap();
    adam.step().unwrap();
    let state = adam.state_dict().unwrap();
    let mut two = Adam::builder([ones(&[2]), ones(&[2])]).build().unwrap();
    assert!(message(two.load_state_dict(&state)).contains("doesn't match the size of optimizer's group"));
    let mut other = Adam::builder([ones(&[3])]).build().unwrap();
    assert!(
        message(other.load_state_dict(&state))
            .contains("'exp_avg' has shape [2], its parameter of shape [3] needs [3]")
    );
    assert!(other.state_dict().unwrap().get("state").unwrap().as_dict().unwrap().is_empty());
    let mut sgd = Sgd::builder([ones(&[2])]).build().unwrap();
    assert!(message(sgd.load_state_dict(&state)).contains("SGD keeps no 'step'"));
    for broken in [Value::None, Value::from(3), Value::Dict(Default::default())] {
        assert!(adam.load_state_dict(&broken).is_err());
    }
}

#[test]
fn layouts_do_not_matter() {
    let values: Vec<f32> = (0..12).map(|i| i as f32 * 0.1 - 0.5).collect();
    let step = |transposed: bool| {
        let base = Tensor::from_slice(&values, [3, 4]).unwrap();
        let param = if transposed { base.t().unwrap().contiguous().unwrap().t().unwrap().detach() } else { base };
        assert_eq!(param.is_contiguous(), !transposed);
        let param = param.requires_grad_(true).unwrap();
        param.set_grad(Some(Tensor::ones([1]).unwrap().expand([3, 4]).unwrap())).unwrap();
        let mut optimizer = AdamW::new([param.clone()], 0.1).unwrap();
        optimizer.step().unwrap();
        optimizer.step().unwrap();
        flat([&param])
    };
    assert_eq!(step(true), step(false));
}

#[test]
fn a_scaled_step_is_a_step_with_scaled_gradients() {
    let step = |scaled: bool| {
        let param = ones(&[5]);
        let grad = Tensor::new([1.0f32, -2.0, 3.0, 0.5, 0.25]).unwrap();
        let factor = Tensor::new(0.125f32).unwrap();
        let mut optimizer = Sgd::builder([param.clone()]).lr(0.5).momentum(0.9).build().unwrap();
        for _ in 0..3 {
            if scaled {
                param.set_grad(Some(grad.clone())).unwrap();
                optimizer.step_scaled(&factor).unwrap();
            } else {
                param.set_grad(Some(grad.mul(&factor).unwrap())).unwrap();
                optimizer.step().unwrap();
            }
        }
        flat([&param])
    };
    assert_eq!(step(true), step(false));
}

#[test]
fn a_changed_parameter_is_noticed_by_a_pending_backward() {
    let w = ones(&[2]);
    let loss = (&w * &w).eval().unwrap().sum(..).unwrap();
    w.set_grad(Some(Tensor::ones([2]).unwrap())).unwrap();
    Sgd::builder([w.clone()]).build().unwrap().step().unwrap();
    assert!(message(loss.backward()).contains("modified by an inplace operation"));
}

#[test]
fn groups_can_be_changed_and_added() {
    let (a, b) = (ones(&[1]), ones(&[1]));
    let mut optimizer = Sgd::new([a.clone()], 0.5).unwrap();
    optimizer.add_param_group(ParamGroup::new([b.clone()]).lr(0.25)).unwrap();
    optimizer.param_groups_mut()[0].set("momentum", 0.9.into()).unwrap();
    optimizer.param_groups_mut()[1].set("name", "bias".into()).unwrap();
    for p in optimizer.params() {
        p.set_grad(Some(Tensor::ones([1]).unwrap())).unwrap();
    }
    optimizer.step().unwrap();
    assert_eq!(flat([&a, &b]), [0.5, 0.75]);
    let state = optimizer.state_dict().unwrap();
    let groups = state.get("param_groups").unwrap().as_list().unwrap();
    assert_eq!(groups[0].get("momentum").unwrap().as_float().unwrap(), 0.9);
    assert_eq!(groups[1].get("name").unwrap().as_str().unwrap(), "bias");
    optimizer.zero_grad();
    assert!(a.grad().is_none() && b.grad().is_none());
    optimizer.step().unwrap();
    assert_eq!(flat([&a, &b]), [0.5, 0.75]);
}
