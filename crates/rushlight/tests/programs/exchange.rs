//! Exchange of models and optimizers by files: state that PyTorch saved continues here as it did there, and state saved
//! here continues after loading.
//!
//! `tests/fixtures/exchange.py` wrote the files; with `--check` it reads those that these tests write to the directory
//! RUSHLIGHT_EXCHANGE, if set.

use rushlight::io;
use rushlight::nn::models::{Gpt, ResNet};
use rushlight::prelude::*;
use rushlight::state::{Dict, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const STEPS: usize = 3;

/// A model and its call.
struct Model {
    module: Arc<dyn Module>,
    forward: Box<dyn Fn(&[Tensor]) -> Result<Tensor>>,
}

impl Model {
    fn new<M: Module>(module: M, forward: impl Fn(&M, &[Tensor]) -> Result<Tensor> + 'static) -> Self {
        let module = Arc::new(module);
        let called = module.clone();
        Self { module, forward: Box::new(move |inputs| forward(&called, inputs)) }
    }

    /// The output in evaluation.
    fn evaluate(&self, inputs: &[Tensor]) -> Result<Tensor> {
        self.module.eval();
        let output = no_grad(|| (self.forward)(inputs));
        self.module.train();
        output
    }
}

/// The models and optimizers of `MODELS` in the script, and inputs for them.
fn build(name: &str) -> Result<(Model, Box<dyn Optimizer>, Vec<Tensor>)> {
    let random = |shape: &[usize]| Tensor::randn(shape);
    let (model, inputs) = match name {
        "transformer" => {
            let builder = Transformer::builder().d_model(16).nhead(2).num_encoder_layers(2).num_decoder_layers(2);
            let model = builder.dim_feedforward(24).dropout(0.0).batch_first(true).build()?;
            (Model::new(model, |m, x| m.forward(&x[0], &x[1])), vec![random(&[2, 3, 16])?, random(&[2, 4, 16])?])
        }
        "lstm" => {
            let model = LSTM::builder(5, 6).num_layers(2).bidirectional(true).build()?;
            (Model::new(model, |m, x| Ok(m.forward(&x[0], None)?.0)), vec![random(&[7, 2, 5])?])
        }
        "resnet18" => {
            let model = ResNet::builder([2; 4]).num_classes(10).width(2).large_images(false).build()?;
            (Model::new(model, |m, x| m.forward(&x[0])), vec![random(&[4, 3, 16, 16])?])
        }
        "gpt" => {
            let model = Gpt::builder(19).n_layer(2).n_head(2).n_embd(16).block_size(8).build()?;
            (Model::new(model, |m, x| m.forward(&x[0])), vec![Tensor::randint(0, 19, [2, 8])?])
        }
        _ => return Err(Error::value(format!("no model '{name}'"))),
    };
    let (matrices, vectors) = model.module.parameters().into_iter().partition::<Vec<_>, _>(|p| p.rank() >= 2);
    let groups = [ParamGroup::new(matrices).weight_decay(0.1), ParamGroup::new(vectors).weight_decay(0.0)];
    let optimizer: Box<dyn Optimizer> = match name {
        "transformer" => Box::new(AdamW::groups(groups).lr(1e-2).eps(1e-4).build()?),
        "lstm" => Box::new(RmsProp::groups(groups).lr(1e-2).momentum(0.9).centered(true).eps(1e-3).build()?),
        "resnet18" => Box::new(Sgd::groups(groups).lr(1e-2).momentum(0.9).nesterov(true).build()?),
        _ => Box::new(Adam::groups(groups).lr(1e-2).betas((0.9, 0.95)).eps(1e-4).amsgrad(true).build()?),
    };
    Ok((model, optimizer, inputs))
}

/// The optimizers of `OPTIMIZERS` in the script.
fn optimizer(name: &str, params: &[Tensor]) -> Result<Box<dyn Optimizer>> {
    let groups = [ParamGroup::new([params[0].clone()]), ParamGroup::new([params[1].clone()]).lr(0.01)];
    Ok(match name {
        "SGD" => Box::new(Sgd::groups(groups).lr(0.1).momentum(0.9).dampening(0.2).build()?),
        "Adam" => Box::new(Adam::groups(groups).lr(0.02).build()?),
        "AdamW" => Box::new(AdamW::groups(groups).lr(0.02).amsgrad(true).build()?),
        "NAdam" => Box::new(NAdam::groups(groups).lr(0.02).build()?),
        "RAdam" => Box::new(RAdam::groups(groups).lr(0.02).build()?),
        "Adamax" => Box::new(Adamax::groups(groups).lr(0.02).build()?),
        "Adagrad" => Box::new(Adagrad::groups(groups).lr(0.05).initial_accumulator_value(0.1).build()?),
        "Adadelta" => Box::new(Adadelta::groups(groups).lr(0.5).build()?),
        "RMSprop" => Box::new(RmsProp::groups(groups).lr(0.02).centered(true).build()?),
        "Muon" => Box::new(Muon::groups(groups).lr(0.02).build()?),
        "LBFGS" => Box::new(Lbfgs::builder(params.to_vec()).lr(0.5).max_iter(3).history_size(4).build()?),
        _ => return Err(Error::value(format!("no optimizer '{name}'"))),
    })
}

const OPTIMIZERS: [&str; 11] =
    ["SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Muon", "LBFGS"];

fn step(optimizer: &mut dyn Optimizer, output: &dyn Fn() -> Result<Tensor>, target: &Tensor) -> Result<()> {
    let params = optimizer.params();
    let mut closure = || {
        params.iter().for_each(Tensor::zero_grad);
        let loss = output()?.mse_loss(target, Reduction::Mean)?;
        loss.backward()?;
        Ok(loss)
    };
    optimizer.step_closure(&mut closure).map(drop)
}

/// The optimizers' small network.
fn network(params: &[Tensor], x: &Tensor) -> Result<Tensor> {
    x.matmul(&params[0].t()?)?.tanh()?.matmul(&params[1].t()?)
}

fn close(what: &str, got: &Tensor, expected: &Tensor) -> Result<()> {
    assert_eq!((got.shape(), got.dtype()), (expected.shape(), expected.dtype()), "{what}");
    let (got, expected) = (got.to_dtype(DType::F64)?, expected.to_dtype(DType::F64)?);
    let off = got.sub(&expected)?.abs()?.max(..)?.item::<f64>()?;
    assert!(got.allclose(&expected, 1e-4, 1e-5)?, "{what}: off by {off}");
    Ok(())
}

fn tensors(value: &Value) -> Result<Vec<Tensor>> {
    value.as_list()?.iter().map(|t| t.as_tensor().cloned()).collect()
}

/// Loads a model and its optimizer; output and next step must equal those in the file.
fn model_goes_on(path: &Path, name: &str) -> Result<()> {
    let file = io::load(path.join(format!("{name}.pt")))?;
    let (model, mut optimizer, _) = build(name)?;
    model.module.load_state_dict(&file.get("model")?.to_state_dict()?)?;
    optimizer.load_state_dict(file.get("optimizer")?)?;
    let (inputs, target) = (tensors(file.get("inputs")?)?, file.get("target")?.as_tensor()?);
    close(&format!("{name}: output"), &model.evaluate(&inputs)?, file.get("output")?.as_tensor()?)?;
    step(optimizer.as_mut(), &|| (model.forward)(&inputs), target)?;
    let (state, after) = (model.module.state_dict(), file.get("after")?.to_state_dict()?);
    assert!(state.keys().eq(after.keys()), "{name}: {:?} and {:?}", state.keys(), after.keys());
    state.iter().try_for_each(|(key, t)| close(&format!("{name}: {key} after a step"), t, &after[key]))
}

/// The same for every optimizer by itself.
fn optimizers_go_on(path: &Path) -> Result<()> {
    let file = io::load(path.join("optimizers.pt"))?;
    let (inputs, target) = (tensors(file.get("inputs")?)?, file.get("target")?.as_tensor()?);
    for name in OPTIMIZERS {
        let case = file.get("cases")?.get(name)?;
        let params = tensors(case.get("params")?)?;
        let params = params.iter().map(|p| p.copy()?.requires_grad_(true)).collect::<Result<Vec<_>>>()?;
        let mut optimizer = optimizer(name, &params)?;
        optimizer.load_state_dict(case.get("optimizer")?)?;
        step(optimizer.as_mut(), &|| network(&params, &inputs[0]), target)?;
        for (i, (p, expected)) in params.iter().zip(tensors(case.get("after")?)?).enumerate() {
            close(&format!("{name}: parameter {i} after a step"), &p.detach(), &expected)?;
        }
    }
    Ok(())
}

/// A snapshot of a value: state dicts share the tensors they were made from.
fn copied(value: &Value) -> Result<Value> {
    Ok(match value {
        Value::Tensor(t) => no_grad(|| t.detach().copy())?.into(),
        Value::List(items) => Value::List(items.iter().map(copied).collect::<Result<_>>()?),
        Value::Tuple(items) => Value::Tuple(items.iter().map(copied).collect::<Result<_>>()?),
        Value::Dict(dict) => dict.iter().map(|(k, v)| Ok((k.clone(), copied(v)?))).collect::<Result<Dict>>()?.into(),
        other => other.clone(),
    })
}

fn dict<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Dict::from_iter(entries.map(|(key, value)| (key.into(), value))).into()
}

fn save_model(folder: &Path, name: &str) -> Result<()> {
    let (model, mut optimizer, inputs) = build(name)?;
    let target = model.evaluate(&inputs)?.randn_like()?;
    let forward = || (model.forward)(&inputs);
    for _ in 0..STEPS {
        step(optimizer.as_mut(), &forward, &target)?;
    }
    let before = copied(&dict([("model", model.module.state_dict().into()), ("optimizer", optimizer.state_dict()?)]))?;
    let output = model.evaluate(&inputs)?;
    step(optimizer.as_mut(), &forward, &target)?;
    let file = dict([
        ("model", before.get("model")?.clone()),
        ("optimizer", before.get("optimizer")?.clone()),
        ("inputs", Value::List(inputs.iter().map(Value::from).collect())),
        ("target", target.into()),
        ("output", output.into()),
        ("after", model.module.state_dict().into()),
    ]);
    io::save(&file, folder.join(format!("{name}.pt")))
}

fn save_optimizers(folder: &Path) -> Result<()> {
    let (x, y) = (Tensor::randn([8, 4])?, Tensor::randn([8, 3])?);
    let mut cases = Dict::new();
    for name in OPTIMIZERS {
        let leaf = |shape: [usize; 2]| Tensor::randn(shape)?.requires_grad_(true);
        let params = [leaf([5, 4])?, leaf([3, 5])?];
        let values = || Value::List(params.iter().map(|p| p.detach().into()).collect());
        let mut optimizer = optimizer(name, &params)?;
        for _ in 0..STEPS {
            step(optimizer.as_mut(), &|| network(&params, &x), &y)?;
        }
        let (before, state) = (copied(&values())?, copied(&optimizer.state_dict()?)?);
        step(optimizer.as_mut(), &|| network(&params, &x), &y)?;
        cases.insert(name.into(), dict([("params", before), ("optimizer", state), ("after", values())]));
    }
    let file = dict([("inputs", Value::List(vec![x.into()])), ("target", y.into()), ("cases", cases.into())]);
    io::save(&file, folder.join("optimizers.pt"))
}

const MODELS: [&str; 4] = ["transformer", "lstm", "resnet18", "gpt"];

#[test]
fn what_torch_saved_goes_on_here() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/exchange");
    MODELS.iter().try_for_each(|name| model_goes_on(&folder, name))?;
    optimizers_go_on(&folder)
}

#[test]
fn what_is_saved_here_goes_on_after_loading() -> Result<()> {
    let asked = std::env::var_os("RUSHLIGHT_EXCHANGE").map(PathBuf::from);
    let folder = asked
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join(format!("rushlight-exchange-{}", std::process::id())));
    std::fs::create_dir_all(&folder)?;
    MODELS.iter().try_for_each(|name| save_model(&folder, name))?;
    save_optimizers(&folder)?;
    MODELS.iter().try_for_each(|name| model_goes_on(&folder, name))?;
    optimizers_go_on(&folder)?;
    if asked.is_none() {
        std::fs::remove_dir_all(folder)?;
    }
    Ok(())
}
