//! Every layer and loss against PyTorch's answers: keys and shapes of the state dict, print, outputs, gradients,
//! buffers. `RUSHLIGHT_TEST_DEVICE` runs them on another device than the CPU.

use crate::build::build;
use crate::options::Options;
use rushlight_core::{DType, Device, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::Backward;
use rushlight_tensor::state::StateDict;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::collections::BTreeMap;

const GOLDENS: &[u8] = include_bytes!("../../../../tests/goldens/data/nn/layers.safetensors");

/// The device to test on: `RUSHLIGHT_TEST_DEVICE`, else the CPU. A device that is named must be there.
fn device() -> Device {
    // The answers are of full precision.
    rushlight_core::backend::set_allow_tf32_conv(false);
    match std::env::var("RUSHLIGHT_TEST_DEVICE") {
        Ok(name) => name.parse().expect("RUSHLIGHT_TEST_DEVICE names a device"),
        Err(_) => Device::Cpu,
    }
}

struct Goldens(BTreeMap<String, Tensor>);

impl Goldens {
    fn read() -> (Self, Vec<Value>) {
        let file = SafeTensors::deserialize(GOLDENS).unwrap();
        let (_, metadata) = SafeTensors::read_metadata(GOLDENS).unwrap();
        let cases = &metadata.metadata().as_ref().unwrap()["cases"];
        let tensors = file.tensors().into_iter().map(|(name, view)| {
            let bytes = view.data();
            let tensor = match view.dtype() {
                Dtype::F32 => {
                    let values: Vec<f32> =
                        bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
                    Tensor::from_slice(&values, view.shape())
                }
                Dtype::I64 => {
                    let values: Vec<i64> =
                        bytes.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap())).collect();
                    Tensor::from_slice(&values, view.shape())
                }
                other => panic!("{name} is {other:?}"),
            };
            (name, tensor.unwrap())
        });
        (Self(tensors.collect()), serde_json::from_str(cases).unwrap())
    }

    /// The tensor that a field of a case names.
    fn get(&self, name: &Value) -> Option<Tensor> {
        name.as_str().map(|name| self.0[name].copy().unwrap().to(device()).unwrap())
    }

    fn list(&self, names: &Value) -> Vec<Option<Tensor>> {
        names.as_array().unwrap().iter().map(|name| self.get(name)).collect()
    }

    fn dict(&self, names: &Value) -> Vec<(String, Tensor)> {
        names.as_object().unwrap().iter().map(|(key, name)| (key.clone(), self.get(name).unwrap())).collect()
    }
}

fn compare(what: &str, ours: &Tensor, theirs: &Tensor) {
    assert_eq!(ours.shape(), theirs.shape(), "{what}: shape");
    assert_eq!(ours.dtype(), theirs.dtype(), "{what}: dtype");
    if ours.dtype() == DType::I64 {
        assert_eq!(ours.to_vec::<i64>().unwrap(), theirs.to_vec::<i64>().unwrap(), "{what}");
        return;
    }
    let (ours, theirs) = (ours.to_vec::<f32>().unwrap(), theirs.to_vec::<f32>().unwrap());
    for (i, (a, b)) in ours.iter().zip(&theirs).enumerate() {
        let close = a == b || (a - b).abs() <= 1e-5 + 5e-5 * b.abs() || (a.is_nan() && b.is_nan());
        assert!(close, "{what}: element {i} is {a}, PyTorch has {b}");
    }
}

fn check(case: &Value, goldens: &Goldens) -> Result<()> {
    let layer = case["layer"].as_str().unwrap();
    let tensors = goldens.dict(&case["tensor_options"]).into_iter().collect();
    let options = Options::new(&case["options"], tensors);
    let output_size = case["forward"]["output_size"].as_array();
    let output_size = output_size.map(|sizes| sizes.iter().map(|s| s.as_u64().unwrap() as usize).collect());
    let name = format!("{layer} {} {}", case["options"], case["train"]);
    let mut built = build(layer, &options, output_size)?;
    built.module.to_(device().into())?;
    options.all_asked(&name);

    // Parametrized modules print in their own way.
    if let Some(repr) = case["repr"].as_str() {
        assert_eq!(built.module.repr(), repr, "{name}");
    }
    let fresh = built.module.state_dict();
    let keys: Vec<&str> = case["keys"].as_array().unwrap().iter().map(|key| key.as_str().unwrap()).collect();
    assert_eq!(fresh.keys().collect::<Vec<_>>(), keys, "{name}: keys of the state dict");
    let state: StateDict = goldens.dict(&case["state"]).into_iter().collect();
    for (key, tensor) in &state {
        let own = &fresh[key];
        assert_eq!((own.shape(), own.dtype()), (tensor.shape(), tensor.dtype()), "{name}: {key}");
    }
    built.module.load_state_dict(&state)?;
    built.module.set_training(case["train"].as_bool().unwrap());

    let dx = case.get("dx").map(|dx| goldens.list(dx)).unwrap_or_default();
    let mut inputs = Vec::new();
    for (i, input) in goldens.list(&case["inputs"]).into_iter().flatten().enumerate() {
        let wanted = matches!(dx.get(i), Some(Some(_)));
        inputs.push(if wanted { input.requires_grad_(true)? } else { input });
    }
    let mut outputs = Vec::new();
    for _ in 0..case["repeat"].as_u64().unwrap() {
        outputs = built.run(&inputs)?;
    }
    let expected = goldens.list(&case["outputs"]);
    assert_eq!(outputs.len(), expected.len(), "{name}: outputs");
    for (i, (ours, theirs)) in outputs.iter().zip(expected.iter().flatten()).enumerate() {
        compare(&format!("{name}: output {i}"), ours, theirs);
    }
    if let Some(dy) = case.get("dy").and_then(|dy| goldens.get(dy)) {
        outputs[0].backward_with(Backward::default().gradient(&dy))?;
        for (i, (input, dx)) in inputs.iter().zip(&dx).enumerate() {
            if let Some(dx) = dx {
                compare(&format!("{name}: gradient of input {i}"), &input.grad().unwrap(), dx);
            }
        }
        let grads: BTreeMap<String, Tensor> = goldens.dict(&case["grads"]).into_iter().collect();
        for (key, parameter) in built.module.named_parameters() {
            compare(&format!("{name}: gradient of {key}"), &parameter.grad().unwrap(), &grads[&key]);
        }
    }
    let after: BTreeMap<String, Tensor> = goldens.dict(&case["after"]).into_iter().collect();
    for (key, now) in built.module.state_dict() {
        compare(&format!("{name}: {key} after"), &now, after.get(&key).unwrap_or(&state[&key]));
    }
    Ok(())
}

#[test]
fn every_layer_and_loss_agrees_with_pytorch() {
    let (goldens, cases) = Goldens::read();
    assert!(cases.len() > 250);
    let mut failures = Vec::new();
    for case in &cases {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(case, &goldens)));
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(e)) => failures.push(format!("{} {}: {e}", case["layer"], case["options"])),
            Err(panic) => failures.push(match panic.downcast::<String>() {
                Ok(text) => *text,
                Err(_) => format!("{} {} panicked", case["layer"], case["options"]),
            }),
        }
    }
    assert!(failures.is_empty(), "{} of {} cases differ:\n{}", failures.len(), cases.len(), failures.join("\n"));
}
