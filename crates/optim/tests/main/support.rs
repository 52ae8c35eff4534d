//! PyTorch's answers, loaded once.

use rushlight_core::DType;
use rushlight_tensor::Tensor;
use rushlight_tensor::state::{Dict, Value};
use safetensors::SafeTensors;
use serde_json::Value as Json;
use std::sync::LazyLock;

static REPORT: LazyLock<Json> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../../../tests/goldens/data/optim/report.json")).unwrap());
static TENSORS: LazyLock<SafeTensors<'static>> = LazyLock::new(|| {
    SafeTensors::deserialize(include_bytes!("../../../../tests/goldens/data/optim/tensors.safetensors")).unwrap()
});

/// A part of the report.
pub fn report(name: &str) -> &'static Json {
    &REPORT[name]
}

/// The cases of a part.
pub fn cases(name: &str) -> &'static [Json] {
    REPORT[name].as_array().unwrap()
}

/// A stored tensor; all are `f64`.
pub fn tensor(name: &str) -> Tensor {
    let view = TENSORS.tensor(name).unwrap();
    let data: Vec<f64> = view.data().chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect();
    Tensor::from_slice(&data, view.shape()).unwrap()
}

pub fn dtype(name: &str) -> DType {
    match name {
        "f32" => DType::F32,
        "f64" => DType::F64,
        "bf16" => DType::BF16,
        "f16" => DType::F16,
        other => panic!("{other}"),
    }
}

/// JSON as state; lists become tuples.
pub fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::None,
        Json::Bool(b) => (*b).into(),
        Json::Number(n) => n.as_i64().map_or_else(|| n.as_f64().unwrap().into(), Value::from),
        Json::String(s) => match s.as_str() {
            "inf" => f64::INFINITY.into(),
            "-inf" => f64::NEG_INFINITY.into(),
            s => s.into(),
        },
        Json::Array(items) => Value::Tuple(items.iter().map(value).collect()),
        Json::Object(map) => Value::Dict(map.iter().map(|(k, v)| (k.as_str().into(), value(v))).collect::<Dict>()),
    }
}

/// Whether two states have the same keys and, up to rounding, the same values.
#[track_caller]
pub fn same(what: &str, got: &Value, want: &Value) {
    match (got, want) {
        (Value::Dict(got), Value::Dict(want)) => {
            let keys = |d: &Dict| {
                let mut keys: Vec<String> = d.keys().map(|k| k.to_string()).collect();
                keys.sort();
                keys
            };
            assert_eq!(keys(got), keys(want), "{what}");
            for (key, want) in want {
                let (_, got) = got.iter().find(|(k, _)| k.to_string() == key.to_string()).unwrap();
                same(&format!("{what}.{key}"), got, want);
            }
        }
        (Value::Tuple(got) | Value::List(got), Value::Tuple(want) | Value::List(want)) => {
            assert_eq!(got.len(), want.len(), "{what}");
            for (i, (got, want)) in got.iter().zip(want).enumerate() {
                same(&format!("{what}[{i}]"), got, want);
            }
        }
        (Value::Bool(got), Value::Bool(want)) => assert_eq!(got, want, "{what}"),
        (Value::Str(got), Value::Str(want)) => assert_eq!(got, want, "{what}"),
        (Value::None, Value::None) => {}
        (Value::Float(_) | Value::Int(_), Value::Float(_) | Value::Int(_)) => {
            near(what, got.as_float().unwrap(), want.as_float().unwrap(), 1e-12);
        }
        _ => panic!("{what}: {got:?}, not {want:?}"),
    }
}

#[track_caller]
pub fn near(what: &str, got: f64, want: f64, tolerance: f64) {
    assert!(got == want || (got - want).abs() <= tolerance * (want.abs() + 1e-3), "{what}: {got}, not {want}");
}

/// Compares numbers, with a tolerance relative to each, or to one if it is smaller.
#[track_caller]
pub fn close(what: &str, got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!(
            got == want || (got - want).abs() <= tolerance * (1.0 + want.abs()),
            "{what}: element {i} is {got}, not {want}"
        );
    }
}

/// All elements of all tensors.
pub fn flat<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Vec<f64> {
    tensors.into_iter().flat_map(|t| t.to_vec::<f64>().unwrap()).collect()
}
