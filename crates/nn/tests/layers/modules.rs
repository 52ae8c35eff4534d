//! The `Module` derive, and rules of every module.

use rushlight_core::{DType, Result};
use rushlight_nn::{
    BatchNorm1d, Buffer, Conv2d, Dropout, Flatten, Forward, Hooked, LSTM, LayerNorm, Linear, Module, ModuleList,
    MultiheadAttention, Parameter, ReLU, Sequential, SpectralNormOptions, Training, init, spectral_norm, weight_norm,
};
use rushlight_tensor::Tensor;
use rushlight_tensor::state::StateDict;

fn names(module: &impl Module) -> Vec<String> {
    module.state_dict().into_keys().collect()
}

fn parameter(values: &[f32]) -> Parameter {
    Parameter::new(&Tensor::new(values).unwrap()).unwrap()
}

#[derive(Module)]
struct Kinds {
    weight: Parameter,
    table: Buffer,
    mask: Buffer,
    layer: Linear,
    maybe: Option<Linear>,
    nothing: Option<Parameter>,
    blocks: Vec<Linear>,
    pair: [Parameter; 2],
    nested: Vec<Vec<Linear>>,
    boxed: Box<dyn Forward>,
    #[module(rename = "gamma")]
    scale: Parameter,
    #[module(skip)]
    _function: fn() -> u32,
    _width: usize,
    _name: String,
    r#type: Parameter,
}

fn kinds() -> Result<Kinds> {
    let linear = || Linear::builder(2, 2).bias(false).build();
    Ok(Kinds {
        weight: parameter(&[1.0]),
        table: Buffer::new(Tensor::new([2.0f32])?),
        mask: Buffer::not_persistent(Tensor::new([3.0f32])?),
        layer: linear()?,
        maybe: Some(linear()?),
        nothing: None,
        blocks: vec![linear()?, linear()?],
        pair: [parameter(&[4.0]), parameter(&[5.0])],
        nested: vec![vec![linear()?], vec![linear()?, linear()?]],
        boxed: Box::new(linear()?),
        scale: parameter(&[6.0]),
        _function: || 1,
        _width: 3,
        _name: "kinds".to_owned(),
        r#type: parameter(&[7.0]),
    })
}

#[test]
fn every_kind_of_field_has_its_name() -> Result<()> {
    let kinds = kinds()?;
    let expected = [
        "weight",
        "table",
        "layer.weight",
        "maybe.weight",
        "blocks.0.weight",
        "blocks.1.weight",
        "pair.0",
        "pair.1",
        "nested.0.0.weight",
        "nested.1.0.weight",
        "nested.1.1.weight",
        "boxed.weight",
        "gamma",
        "type",
    ];
    assert_eq!(names(&kinds), expected);
    assert_eq!(kinds.named_buffers().into_iter().map(|(name, _)| name).collect::<Vec<_>>(), ["table", "mask"]);
    assert_eq!(kinds.num_parameters(), 4 * 8 + 5);
    Ok(())
}

#[derive(Module)]
struct Pair<A, B>(A, B)
where
    A: Send;

#[derive(Module)]
struct Residual<M> {
    inner: M,
}

impl<M: Forward> Forward for Residual<M> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        (self.inner.forward(x)? + x).eval()
    }
}

#[derive(Module)]
struct Fixed<const N: usize> {
    layers: [Linear; N],
}

#[derive(Module)]
struct Empty;

#[test]
fn generic_tuple_and_unit_structs_are_modules() -> Result<()> {
    let pair = Pair(Linear::new(1, 1)?, Residual { inner: LayerNorm::new(2)? });
    assert_eq!(names(&pair), ["0.weight", "0.bias", "1.inner.weight", "1.inner.bias"]);
    let fixed = Fixed { layers: [Linear::new(1, 1)?, Linear::new(1, 1)?] };
    assert_eq!(names(&fixed).len(), 4);
    assert!(names(&Empty).is_empty());
    assert_eq!(Empty.repr(), "Empty()");
    let net = Sequential::from((Residual { inner: ReLU }, Residual { inner: Linear::new(2, 2)? }));
    assert_eq!(net.forward(&Tensor::ones([1, 2])?)?.shape(), [1, 2]);
    Ok(())
}

/// Shares one weight between its ends.
#[derive(Module)]
struct Tied {
    embed: Linear,
    head: Linear,
}

fn tied() -> Result<Tied> {
    let embed = Linear::builder(3, 3).bias(false).build()?;
    let mut head = Linear::builder(3, 3).bias(false).build()?;
    head.weight = embed.weight.tie();
    Ok(Tied { head, embed })
}

#[test]
fn tied_weights_are_one_parameter_with_two_names() -> Result<()> {
    let net = tied()?;
    assert_eq!(net.parameters().len(), 1);
    assert_eq!(net.num_parameters(), 9);
    assert_eq!(names(&net), ["embed.weight", "head.weight"]);
    let net = net.to(DType::F64)?;
    assert_eq!(net.embed.weight.dtype(), DType::F64);
    assert!(net.embed.weight.is_same(&net.head.weight), "still tied after a conversion");
    assert_eq!(net.parameters().len(), 1);
    net.embed.weight.sum(..)?.backward()?;
    assert!(net.head.weight.grad().is_some());
    Ok(())
}

#[test]
fn conversions_leave_integers_and_frozen_parameters() -> Result<()> {
    let norm = BatchNorm1d::new(2)?;
    norm.bias.as_ref().unwrap().tensor().clone().requires_grad_(false)?;
    let norm = norm.to(DType::BF16)?;
    let state = norm.state_dict();
    assert_eq!(state["weight"].dtype(), DType::BF16);
    assert_eq!(state["num_batches_tracked"].dtype(), DType::I64);
    let frozen: Vec<bool> = norm.parameters().iter().map(|p| p.requires_grad()).collect();
    assert_eq!(frozen, [true, false]);
    // Gradients are converted too.
    let layer = Linear::builder(2, 1).bias(false).build()?;
    layer.forward(&Tensor::ones([1, 2])?)?.sum(..)?.backward()?;
    let grad = layer.to(DType::F64)?.weight.grad().unwrap();
    assert_eq!((grad.dtype(), grad.to_vec::<f64>()?), (DType::F64, vec![1.0; 2]));
    // Nothing to convert: the tensors stay the same.
    let before = norm.weight.as_ref().unwrap().tensor().clone();
    let norm = norm.to(DType::BF16)?;
    assert!(norm.weight.as_ref().unwrap().is_same(&before));
    Ok(())
}

#[test]
fn frozen_parameters_get_no_gradient() -> Result<()> {
    let net = Sequential::from((Linear::new(2, 2)?, Linear::new(2, 1)?));
    net.layer::<Linear>("0")?.requires_grad_(false)?;
    net.forward(&Tensor::ones([1, 2])?)?.sum(..)?.backward()?;
    let has: Vec<bool> = net.parameters().iter().map(|p| p.grad().is_some()).collect();
    assert_eq!(has, [false, false, true, true]);
    net.zero_grad();
    assert!(net.parameters().iter().all(|p| p.grad().is_none()));
    net.requires_grad_(true)?;
    assert!(net.parameters().iter().all(|p| p.requires_grad()));
    Ok(())
}

fn ones_like(state: &StateDict) -> Result<StateDict> {
    state.iter().map(|(name, t)| Ok((name.clone(), t.ones_like()?))).collect()
}

#[test]
fn loading_checks_everything_first_and_then_copies() -> Result<()> {
    let net = Sequential::from((Linear::new(2, 3)?, Linear::new(3, 1)?));
    let before: Vec<Vec<f32>> = net.parameters().iter().map(|p| p.to_vec().unwrap()).collect();
    let good = ones_like(&net.state_dict())?;

    let mut bad = good.clone();
    bad.shift_remove("0.bias");
    bad.insert("2.weight".to_owned(), Tensor::ones([1])?);
    bad.insert("1.weight".to_owned(), Tensor::ones([2, 3])?);
    let error = net.load_state_dict(&bad).unwrap_err().to_string();
    for part in [
        "load_state_dict for Sequential",
        "size mismatch for 1.weight: the state dict has shape [2, 3], the module [1, 3]",
        "unexpected keys: \"2.weight\"",
        "missing keys: \"0.bias\"",
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert!(net.load_state_dict_partial(&bad).unwrap_err().to_string().contains("size mismatch for 1.weight"));
    let after: Vec<Vec<f32>> = net.parameters().iter().map(|p| p.to_vec().unwrap()).collect();
    assert_eq!(before, after, "nothing changes when it does not fit");

    bad.insert("1.weight".to_owned(), Tensor::ones([1, 3])?);
    let report = net.load_state_dict_partial(&bad)?;
    assert_eq!((report.missing_keys, report.unexpected_keys), (vec!["0.bias".to_owned()], vec!["2.weight".to_owned()]));
    assert_eq!(net.layer::<Linear>("0")?.weight.sum(..)?.item::<f32>()?, 6.0);
    assert_eq!(net.layer::<Linear>("0")?.bias.as_ref().unwrap().to_vec::<f32>()?, before[1]);

    // Other dtypes are converted, and the parameters stay the same tensors.
    let weight = net.layer::<Linear>("0")?.weight.tensor().clone();
    let doubles = good.iter().map(|(name, t)| Ok((name.clone(), t.to_dtype(DType::F64)?))).collect::<Result<_>>()?;
    net.load_state_dict(&doubles)?;
    assert!(net.layer::<Linear>("0")?.weight.is_same(&weight) && weight.requires_grad() && weight.is_leaf());
    assert_eq!(weight.dtype(), DType::F32);
    Ok(())
}

#[test]
fn a_state_dict_shares_the_modules_values() -> Result<()> {
    let layer = Linear::new(2, 2)?;
    let state = layer.state_dict();
    init::ones_(&layer.weight)?;
    assert_eq!(state["weight"].to_vec::<f32>()?, [1.0; 4]);
    assert!(!state["weight"].requires_grad());
    Ok(())
}

#[derive(Module)]
struct Switch {
    training: Training,
    inside: Sequential,
}

#[test]
fn training_and_evaluation_reach_every_part() -> Result<()> {
    let dropout = Dropout::new(0.5)?;
    let net = Switch { training: Training::default(), inside: Sequential::from((Sequential::from((dropout,)),)) };
    let inner = |net: &Switch| net.inside.layer::<Sequential>("0").unwrap().layer::<Dropout>("0").unwrap().training();
    assert!(net.training.get() && inner(&net));
    net.eval();
    assert!(!net.training.get() && !inner(&net));
    let x = Tensor::ones([64])?;
    assert!(net.inside.forward(&x)?.equal(&x)?);
    net.train();
    assert!(net.training.get() && inner(&net));
    Ok(())
}

#[test]
fn apply_goes_from_the_leaves_up() -> Result<()> {
    let net = Sequential::from((Linear::new(2, 2)?, Sequential::from((ReLU, Linear::new(2, 1)?))));
    let mut seen = Vec::new();
    let module: &dyn Module = &net;
    module.apply(&mut |m| {
        seen.push(m.type_name());
        m.downcast_ref::<Linear>().map_or(Ok(()), |linear| init::constant_(&linear.weight, 0.5))
    })?;
    assert_eq!(seen, ["Linear", "ReLU", "Linear", "Sequential", "Sequential"]);
    assert_eq!(net.layer::<Linear>("0")?.weight.to_vec::<f32>()?, [0.5; 4]);
    let found: Vec<String> = module.named_modules().into_iter().map(|(name, _)| name).collect();
    assert_eq!(found, ["", "0", "1", "1.0", "1.1"]);
    Ok(())
}

#[test]
fn boxes_are_the_modules_they_hold() -> Result<()> {
    let boxed: Box<dyn Forward> = Box::new(Linear::new(2, 1)?);
    let net = Sequential::from(vec![boxed, Box::new(ReLU)]);
    assert!(net.layer::<Linear>("0").is_ok());
    let module: Box<dyn Module> = Box::new(Linear::new(2, 1)?);
    assert!((&module as &dyn Module).downcast_ref::<Linear>().is_some());
    assert!((&module as &dyn Module).downcast_ref::<ReLU>().is_none());
    assert_eq!(module.type_name(), "Linear");
    assert_eq!(net.to(DType::F64)?.parameters()[0].dtype(), DType::F64);
    Ok(())
}

#[derive(Module)]
struct Net {
    conv: Conv2d,
    layers: Vec<Linear>,
    head: Sequential,
}

#[test]
fn models_print_as_in_pytorch_and_have_a_table() -> Result<()> {
    let linear = |i, o| Linear::new(i, o);
    let net = Net {
        conv: Conv2d::new(1, 4, 3)?,
        layers: vec![linear(2, 2)?, linear(2, 2)?, linear(2, 3)?],
        head: Sequential::new().append(ReLU).add_module("out", linear(3, 1000)?)?,
    };
    let expected = "\
Net(
  (conv): Conv2d(1, 4, kernel_size=(3, 3), stride=(1, 1))
  (layers): ModuleList(
    (0-1): 2 x Linear(in_features=2, out_features=2, bias=True)
    (2): Linear(in_features=2, out_features=3, bias=True)
  )
  (head): Sequential(
    (0): ReLU()
    (out): Linear(in_features=3, out_features=1000, bias=True)
  )
)";
    assert_eq!(net.repr(), expected);
    net.conv.requires_grad_(false)?;
    let expected = "\
Module                   Parameters
-----------------------------------
Net                           4,061
  Conv2d (conv)                  40
  Linear (layers.0)               6
  Linear (layers.1)               6
  Linear (layers.2)               9
  Sequential (head)           4,000
    ReLU (0)                      -
    Linear (out)              4,000
-----------------------------------
Trainable parameters: 4,021 of 4,061
Size with buffers: 0.02 MiB";
    assert_eq!(net.summary().to_string(), expected);
    Ok(())
}

#[test]
fn parametrizations_come_off_and_change_dtype() -> Result<()> {
    let linear = Linear::new(3, 4)?;
    let (x, weight) = (Tensor::randn([2, 3])?, linear.weight.copy()?.detach());
    let expected = linear.forward(&x)?;
    let normed = weight_norm(linear.deepcopy()?, "weight", 0)?;
    assert!(normed.forward(&x)?.allclose(&expected, 1e-5, 1e-6)?);
    assert_eq!(normed.num_parameters(), 4 + 4 + 12);
    let wide = normed.deepcopy()?.to(DType::F64)?;
    assert_eq!(wide.forward(&x.to_dtype(DType::F64)?)?.dtype(), DType::F64);
    assert!(normed.remove()?.weight.allclose(&weight, 1e-5, 1e-6)?);

    let normed = spectral_norm(linear.deepcopy()?, "weight", SpectralNormOptions::default())?;
    for _ in 0..50 {
        normed.forward(&x)?;
    }
    let largest = normed.remove()?.weight.detach().svdvals()?.max(..)?.item::<f32>()?;
    assert!((largest - 1.0).abs() < 1e-4, "{largest}");

    assert!(weight_norm(linear.deepcopy()?, "wait", 0).is_err());
    assert!(weight_norm(linear.deepcopy()?, "weight", 2).is_err());
    assert!(spectral_norm(linear.deepcopy()?, "bias", SpectralNormOptions::default()).is_err());
    let none = SpectralNormOptions::default().n_power_iterations(0);
    assert!(spectral_norm(linear, "weight", none).is_err());
    Ok(())
}

#[derive(Module)]
struct Blocks {
    blocks: ModuleList<Residual<Linear>>,
    tail: Sequential,
}

fn blocks() -> Result<Blocks> {
    let block = |n: usize| Ok(Residual { inner: Linear::new(n, n)? });
    Ok(Blocks {
        blocks: [4, 4, 5].into_iter().map(block).collect::<Result<_>>()?,
        tail: Sequential::from((ReLU, Flatten::new().start_dim(3), Linear::new(7, 1)?)),
    })
}

impl Forward for Blocks {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for block in &self.blocks {
            x = block.forward(&x)?;
        }
        self.tail.forward(&x)
    }
}

#[test]
fn errors_say_in_which_module_they_happened() -> Result<()> {
    let net = blocks()?;
    assert_eq!(net.forward(&Tensor::ones([1, 4])?).unwrap_err().module(), None);
    net.blocks.parameters();
    net.eval();
    // The outer path wins, whichever was set last.
    net.blocks.parameters();
    let error = net.forward(&Tensor::ones([1, 4])?).unwrap_err();
    assert_eq!(error.module(), Some("blocks.2.inner"));
    assert!(error.to_string().ends_with("(in blocks.2.inner)"), "{error}");
    assert!(format!("{error:?}").contains("(in blocks.2.inner)"));
    assert_eq!(net.tail.forward(&Tensor::ones([1, 4])?).unwrap_err().module(), Some("tail.1"));
    let error = net.tail.layer::<Linear>("2")?.forward(&Tensor::ones([1, 4])?).unwrap_err();
    assert_eq!(error.module(), Some("tail.2"));
    assert_eq!(
        Linear::new(2, 2)?.to(DType::F32)?.forward(&Tensor::ones([1, 4])?).unwrap_err().module(),
        Some("Linear")
    );
    Ok(())
}

#[test]
fn deep_copies_have_tensors_of_their_own() -> Result<()> {
    let net = blocks()?;
    net.tail.eval();
    let copy = net.deepcopy()?;
    assert_eq!(copy.repr(), net.repr());
    for ((name, own), (_, other)) in net.named_parameters().iter().zip(copy.named_parameters()) {
        assert!(!own.shares_storage(&other) && other.requires_grad(), "{name}");
        assert_eq!(own.to_vec::<f32>()?, other.to_vec::<f32>()?, "{name}");
    }
    // Ties, buffers, switches, frozen parameters and boxed layers.
    let tied = tied()?.deepcopy()?;
    assert!(tied.head.weight.is_same(&tied.embed.weight));
    let norm = BatchNorm1d::new(3)?;
    norm.eval();
    norm.requires_grad_(false)?;
    let copy = norm.deepcopy()?;
    norm.train();
    norm.forward(&Tensor::randn([8, 3])?)?;
    assert_eq!(copy.running_mean.as_ref().unwrap().to_vec::<f32>()?, [0.0; 3]);
    assert!(!copy.weight.as_ref().unwrap().requires_grad());
    let boxed: Box<dyn Forward> = Box::new(Linear::new(2, 3)?);
    let copied = boxed.deepcopy()?;
    let weight = |layer: &dyn Forward| layer.parameters()[0].clone();
    assert!(!weight(&*copied).shares_storage(&weight(&*boxed)));
    let x = Tensor::randn([1, 2])?;
    assert_eq!(copied.forward(&x)?.to_vec::<f32>()?, boxed.forward(&x)?.to_vec::<f32>()?);
    let rnn = LSTM::builder(2, 3).num_layers(2).build()?;
    assert_eq!(names(&rnn.deepcopy()?), names(&rnn));
    let attention = MultiheadAttention::new(4, 2)?;
    assert_eq!(names(&attention.deepcopy()?), names(&attention));
    Ok(())
}

/// A setting that cannot be cloned.
struct Handle;

#[derive(Module)]
struct WithHandle {
    layer: Linear,
    #[module(skip)]
    handle: Handle,
}

#[test]
fn what_cannot_be_copied_is_named() -> Result<()> {
    let module = WithHandle { layer: Linear::new(1, 1)?, handle: Handle };
    let error = module.deepcopy().err().unwrap().to_string();
    assert!(error.contains("field handle of WithHandle"), "{error}");
    let _ = &module.handle;
    Ok(())
}

#[test]
fn hooks_see_and_change_forward_passes() -> Result<()> {
    let layer = Hooked::new(Linear::builder(2, 2).bias(false).build()?);
    init::ones_(&layer.weight)?;
    let x = Tensor::new([[1.0, 2.0]])?;
    let doubled = layer.register_forward_pre_hook(|_, input| (input * 2.0).eval().map(Some));
    let shifted = layer.register_forward_hook(|linear, input, output| {
        assert_eq!((linear.weight.shape(), input.to_vec::<f32>()?), (&[2, 2][..], vec![2.0, 4.0]));
        (output + 1).eval().map(Some)
    });
    assert_eq!(layer.forward(&x)?.to_vec::<f32>()?, [7.0, 7.0]);
    // A copy has the hooks, and removing one here leaves it there.
    let copy = layer.deepcopy()?;
    doubled.remove();
    shifted.remove();
    assert_eq!(layer.forward(&x)?.to_vec::<f32>()?, [3.0, 3.0]);
    assert_eq!(copy.forward(&x)?.to_vec::<f32>()?, [7.0, 7.0]);
    assert_eq!(layer.repr(), "Linear(in_features=2, out_features=2, bias=False)");
    assert_eq!(names(&layer), ["weight"]);
    let failing = layer.register_forward_hook(|_, _, _| Err(rushlight_core::Error::value("no")));
    assert!(layer.forward(&x).is_err());
    drop(failing);
    assert!(layer.forward(&x).is_err());
    Ok(())
}

#[test]
fn parameters_are_operands() -> Result<()> {
    let p = Parameter::new(&Tensor::new([1.0, 2.0])?)?;
    let x = Tensor::new([3.0, 4.0])?;
    let y = (&x * &p + &p * 2.0 - 1.0 / &p).eval()?;
    assert_eq!(y.to_vec::<f32>()?, [4.0, 11.5]);
    assert!(y.requires_grad());
    assert_eq!(x.mul(&p)?.to_vec::<f32>()?, [3.0, 8.0]);
    Ok(())
}
