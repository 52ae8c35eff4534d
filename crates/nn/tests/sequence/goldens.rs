//! Reads `tests/goldens/data/nn/sequence` and compares modules with it; `tests/goldens/nn_sequence.py` says what is in
//! there.

use rushlight_core::{DType, Device};
use rushlight_nn::Module;
use rushlight_tensor::Tensor;
use rushlight_tensor::state::StateDict;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::collections::HashMap;

/// The device to test on: `RUSHLIGHT_TEST_DEVICE`, else the CPU. A device that is named must be there.
pub fn device() -> Device {
    // The answers are of full precision.
    rushlight_core::backend::set_allow_tf32_conv(false);
    match std::env::var("RUSHLIGHT_TEST_DEVICE") {
        Ok(name) => name.parse().expect("RUSHLIGHT_TEST_DEVICE names a device"),
        Err(_) => Device::Cpu,
    }
}

pub struct Goldens {
    tensors: HashMap<String, Tensor>,
    pub cases: Vec<Value>,
}

impl Goldens {
    pub fn read(family: &str) -> Self {
        let path = format!("{}/../../tests/goldens/data/nn/sequence/{family}.safetensors", env!("CARGO_MANIFEST_DIR"));
        let bytes = std::fs::read(path).expect("the golden file");
        let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
        let (_, header) = SafeTensors::read_metadata(&bytes).expect("its header");
        let cases = serde_json::from_str(&header.metadata().as_ref().expect("metadata")["cases"]).expect("JSON");
        let tensors = file.tensors().into_iter().map(|(name, view)| {
            let (data, shape) = (view.data(), view.shape());
            macro_rules! read {
                ($t:ty) => {{
                    let numbers = data.chunks_exact(size_of::<$t>());
                    let numbers: Vec<$t> = numbers.map(|b| <$t>::from_le_bytes(b.try_into().unwrap())).collect();
                    Tensor::from_slice(&numbers, shape).unwrap()
                }};
            }
            let tensor = match view.dtype() {
                Dtype::F32 => read!(f32),
                Dtype::F64 => read!(f64),
                Dtype::I64 => read!(i64),
                Dtype::BOOL => Tensor::from_slice(&data.iter().map(|&b| b != 0).collect::<Vec<_>>(), shape).unwrap(),
                other => panic!("{name}: {other:?}"),
            };
            (name, tensor.to(device()).unwrap())
        });
        Self { tensors: tensors.collect(), cases }
    }

    /// The tensor a JSON string names; `None` for null.
    pub fn get(&self, name: &Value) -> Option<&Tensor> {
        name.as_str().map(|name| &self.tensors[name])
    }

    pub fn tensor(&self, name: &Value) -> &Tensor {
        self.get(name).expect("a tensor")
    }

    /// A tensor among a case's keywords.
    pub fn keyword(&self, case: &Value, name: &str) -> Option<&Tensor> {
        self.get(&case["kwargs"][name]["tensor"])
    }
}

/// A case's constructor arguments.
pub struct Config<'a>(&'a Value);

impl<'a> Config<'a> {
    pub fn of(case: &'a Value) -> Self {
        Self(&case["config"])
    }

    pub fn size(&self, name: &str) -> Option<usize> {
        self.0[name].as_u64().map(|n| n as usize)
    }

    pub fn required(&self, name: &str) -> usize {
        self.size(name).unwrap_or_else(|| panic!("{name} in {}", self.0))
    }

    pub fn flag(&self, name: &str, default: bool) -> bool {
        self.0[name].as_bool().unwrap_or(default)
    }

    pub fn number(&self, name: &str, default: f64) -> f64 {
        self.0[name].as_f64().unwrap_or(default)
    }

    pub fn text(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or("")
    }

    pub fn dtype(&self) -> DType {
        if self.text("dtype") == "float32" { DType::F32 } else { DType::F64 }
    }
}

/// Loads a case's values into the module, strictly, and compares outputs and all gradients.
pub fn check<M: Module>(goldens: &Goldens, case: &Value, module: &M, run: impl Fn(&[Tensor]) -> Vec<Option<Tensor>>) {
    let id = case["id"].as_str().unwrap();
    let names: Vec<&str> = list(&case["parameters"]).iter().map(|v| v.as_str().unwrap()).collect();
    let parameters = module.named_parameters();
    assert_eq!(parameters.iter().map(|(name, _)| name).collect::<Vec<_>>(), names, "{id}");

    let (values, mut state, mut start) = (goldens.tensor(&case["state"]), StateDict::new(), 0);
    for (name, p) in &parameters {
        state.insert(name.clone(), values.narrow(0, start, p.numel()).unwrap().reshape(p.shape()).unwrap());
        start += p.numel() as isize;
    }
    assert_eq!(start as usize, values.numel(), "{id}");
    module.load_state_dict(&state).unwrap();

    let mut leaves: HashMap<&str, Tensor> = HashMap::new();
    let inputs: Vec<Tensor> = list(&case["args"])
        .iter()
        .map(|v| {
            let leaf = || goldens.tensor(v).detach().requires_grad_(true).unwrap();
            leaves.entry(v.as_str().unwrap()).or_insert_with(leaf).clone()
        })
        .collect();
    let outputs = run(&inputs);
    let wanted = list(&case["outputs"]);
    assert_eq!(outputs.len(), wanted.len(), "{id}");
    let mut total = Tensor::zeros_with([], values.dtype()).unwrap().to(device()).unwrap();
    for (i, (out, want)) in outputs.iter().zip(wanted).enumerate() {
        match (out, goldens.get(want)) {
            (Some(out), Some(want)) => close(out, want, &format!("{id} output {i}")),
            (out, want) => assert_eq!(out.is_some(), want.is_some(), "{id} output {i}"),
        }
        if let Some(dy) = goldens.get(&case["grad"]["dy"][i]) {
            total = total.add(&out.as_ref().unwrap().mul(dy).unwrap().sum(..).unwrap()).unwrap();
        }
    }
    total.backward().unwrap();
    for (i, input) in inputs.iter().enumerate() {
        close(&gradient(input), goldens.tensor(&case["grad"]["args"][i]), &format!("{id} gradient of input {i}"));
    }
    let (wanted, mut start) = (goldens.tensor(&case["grad"]["state"]), 0);
    for (name, p) in &parameters {
        let want = wanted.narrow(0, start, p.numel()).unwrap().reshape(p.shape()).unwrap();
        close(&gradient(p), &want, &format!("{id} gradient of {name}"));
        start += p.numel() as isize;
    }
}

fn gradient(leaf: &Tensor) -> Tensor {
    leaf.grad().unwrap_or_else(|| leaf.detach().zeros_like().unwrap())
}

pub fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

pub fn close(got: &Tensor, want: &Tensor, what: &str) {
    assert_eq!((got.shape(), got.dtype()), (want.shape(), want.dtype()), "{what}");
    let (rtol, atol) = if got.dtype() == DType::F64 { (1e-9, 1e-11) } else { (1e-4, 1e-5) };
    let (got, want) = (got.to_vec::<f64>().unwrap(), want.to_vec::<f64>().unwrap());
    for (i, (a, b)) in got.iter().zip(&want).enumerate() {
        assert!(a == b || (a - b).abs() <= atol + rtol * b.abs(), "{what}, element {i}: {a} and not {b}");
    }
}
