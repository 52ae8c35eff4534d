use crate::torchscript::difference;
use rushlight_core::Result;
use rushlight_graph::{IValue, Model};
use rushlight_tensor::Tensor;
use std::path::PathBuf;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/onnx").join(name)
}

fn tensors(value: &IValue) -> Vec<Tensor> {
    let mut out = Vec::new();
    value.tensors(&mut out);
    out
}

#[test]
fn models_agree_with_onnxruntime() {
    for (name, outputs) in [("convolutional", 1), ("recurrent", 3)] {
        let model = Model::load(fixture(&format!("{name}.onnx"))).unwrap_or_else(|e| panic!("{name}: {e}"));
        let answers = rushlight_io::npz::load(fixture(&format!("{name}.npz"))).unwrap();
        let run = |model: &Model| -> Result<Vec<Tensor>> { Ok(tensors(&model.forward(&[(&answers["in0"]).into()])?)) };
        let path = std::env::temp_dir().join(format!("rushlight-onnx-{}-{name}.rlm", std::process::id()));
        model.save(&path).unwrap();
        let back = Model::load(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for model in [&model, &back] {
            let found = run(model).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(found.len(), outputs);
            for (at, found) in found.iter().enumerate() {
                let worst = difference(&found.detach(), &answers[&format!("out{at}")]);
                assert!(worst < 1e-5, "{name} output {at}: {worst}");
            }
        }
    }
}

#[test]
fn an_imported_model_trains_and_checks_its_inputs() {
    let model = Model::load(fixture("convolutional.onnx")).unwrap();
    assert!(model.text().unwrap().contains("def forward(x: float32[batch, 3, height, width]):"));
    let y = model.forward(&[Tensor::randn([3, 3, 8, 8]).unwrap().into()]).unwrap().to_tensor().unwrap();
    assert_eq!(y.shape(), [3, 5]);
    y.square().unwrap().sum(..).unwrap().backward().unwrap();
    let state = model.state_dict();
    assert!(state["w"].grad().is_some() && state["s"].requires_grad());
    // Running mean and variance.
    assert!(!state["m"].requires_grad() && !state["v"].requires_grad());
    let error = model.forward(&[Tensor::randn([3, 4, 8, 8]).unwrap().into()]).err().unwrap().to_string();
    assert!(error.contains("must be 3, got 4"), "{error}");
}

#[test]
fn damaged_files_give_errors() {
    let bytes = std::fs::read(fixture("convolutional.onnx")).unwrap();
    for at in 0..bytes.len() {
        let mut copy = bytes.clone();
        copy[at] ^= 0x2a;
        let _ = Model::from_bytes(&copy);
        let _ = Model::from_bytes(&bytes[..at]);
    }
    for text in ["", "not a model", "\u{a}\u{5}"] {
        assert!(Model::from_bytes(text.as_bytes()).is_err());
    }
}
