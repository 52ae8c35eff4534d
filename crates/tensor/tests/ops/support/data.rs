//! Reads the golden files.

use super::args::{Args, Item};
use rushlight_core::half::{bf16, f16};
use rushlight_core::{DType, Device, Element};
use rushlight_tensor::Tensor;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// One call that PyTorch made, and its result.
pub struct Case {
    pub op: String,
    pub id: String,
    pub args: Args,
    pub outputs: Vec<Tensor>,
    /// Gradients of the case: those of the outputs, and those expected for the inputs, in the order of
    /// [`Args::tensors`].
    pub grad: Option<(Vec<Option<Tensor>>, Vec<Option<Tensor>>)>,
    pub rtol: f64,
    pub atol: f64,
}

/// A golden file: in the source tree of the build, or under the current directory if it was copied.
pub fn path(file: &str) -> String {
    let built = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/goldens/data");
    let folder = if std::path::Path::new(built).exists() { built } else { "tests/goldens/data" };
    format!("{folder}/{file}")
}

/// The device to test on: `RUSHLIGHT_TEST_DEVICE`, else the CPU. Panics if the named device is missing.
pub fn device() -> Device {
    static DEVICE: std::sync::LazyLock<Device> = std::sync::LazyLock::new(|| {
        // The answers have full precision.
        rushlight_core::backend::set_allow_tf32_conv(false);
        let device = match std::env::var("RUSHLIGHT_TEST_DEVICE") {
            Ok(name) => name.parse().expect("RUSHLIGHT_TEST_DEVICE names a device"),
            Err(_) => Device::Cpu,
        };
        match Tensor::zeros_with([1], device) {
            Ok(_) => device,
            Err(e) => panic!("RUSHLIGHT_TEST_DEVICE={device}: {e}"),
        }
    });
    *DEVICE
}

/// Every case of a family.
pub fn load(family: &str) -> Vec<Case> {
    let bytes = std::fs::read(path(&format!("{family}.safetensors"))).expect("the golden file");
    let file = SafeTensors::deserialize(&bytes).expect("a safetensors file");
    let (_, header) = SafeTensors::read_metadata(&bytes).expect("its header");
    let cases = &header.metadata().as_ref().expect("metadata")["cases"];
    let cases: Vec<Value> = serde_json::from_str(cases).expect("JSON");
    cases.iter().map(|case| read_case(&file, case)).collect()
}

fn read_case(file: &SafeTensors, case: &Value) -> Case {
    let named = |v: &Value| v.as_str().map(|name| tensor(file, name));
    let list = |v: &Value| v.as_array().expect("a list").clone();
    let inputs: Vec<Item> = list(&case["inputs"]).iter().map(|v| item(file, v)).collect();
    let kwargs = case["kwargs"].as_object().expect("kwargs").iter();
    let kwargs =
        kwargs.map(|(k, v)| (k.clone(), if v.is_object() { item(file, v) } else { Item::Value(v.clone()) })).collect();
    let grad = (!case["grad"].is_null()).then(|| {
        let dy = list(&case["grad"]["dy"]).iter().map(named).collect();
        let mut dx = Vec::new();
        for (v, input) in list(&case["grad"]["dx"]).iter().zip(&inputs) {
            match input {
                Item::Tensor(_) => dx.push(named(v)),
                Item::List(parts) => {
                    let names = v.as_array().cloned().unwrap_or_else(|| vec![Value::Null; parts.len()]);
                    dx.extend(names.iter().zip(parts).filter(|(_, part)| part.is_some()).map(|(v, _)| named(v)));
                }
                Item::Value(_) | Item::Float(_) => {}
            }
        }
        (dy, dx)
    });
    Case {
        op: case["op"].as_str().expect("op").to_string(),
        id: case["id"].as_str().expect("id").to_string(),
        args: Args::new(inputs, kwargs),
        outputs: list(&case["outputs"]).iter().map(|v| named(v).expect("an output")).collect(),
        grad,
        rtol: case["rtol"].as_f64().expect("rtol"),
        atol: case["atol"].as_f64().expect("atol"),
    }
}

fn item(file: &SafeTensors, v: &Value) -> Item {
    if let Some(name) = v["tensor"].as_str() {
        return Item::Tensor(view(file, name, v));
    }
    if let Some(parts) = v["tensors"].as_array() {
        return Item::List(parts.iter().map(|p| p["tensor"].as_str().map(|name| view(file, name, p))).collect());
    }
    match v["float"].as_str() {
        Some(text) => Item::Float(text.parse().expect("inf, -inf or nan")),
        None => Item::Value(v["value"].clone()),
    }
}

/// A tensor with PyTorch's strides.
fn view(file: &SafeTensors, name: &str, item: &Value) -> Tensor {
    let sizes = |v: &Value| -> Vec<usize> {
        v.as_array().expect("sizes").iter().map(|d| d.as_u64().expect("a size") as usize).collect()
    };
    let layout = &item["layout"];
    let offset = layout["offset"].as_u64().expect("an offset") as usize;
    let strided = tensor(file, name)
        .as_strided(&sizes(&layout["size"]), &sizes(&layout["stride"]), offset)
        .expect("a layout that fits");
    let wants = item["requires_grad"].as_bool().expect("requires_grad");
    // Detached: a separate leaf, not a view of its storage's tensor.
    strided.detach().requires_grad_(wants).expect("a leaf")
}

fn tensor(file: &SafeTensors, name: &str) -> Tensor {
    let stored = file.tensor(name).expect("a stored tensor");
    fn build<T: Element, const N: usize>(bytes: &[u8], shape: &[usize], read: impl Fn([u8; N]) -> T) -> Tensor {
        let elements: Vec<T> = bytes.chunks_exact(N).map(|c| read(c.try_into().expect("whole elements"))).collect();
        Tensor::from_slice(&elements, shape).and_then(|t| t.to(device())).expect("a tensor")
    }
    let (bytes, shape) = (stored.data(), stored.shape());
    match stored.dtype() {
        Dtype::F32 => build(bytes, shape, f32::from_le_bytes),
        Dtype::F64 => build(bytes, shape, f64::from_le_bytes),
        Dtype::F16 => build(bytes, shape, f16::from_le_bytes),
        Dtype::BF16 => build(bytes, shape, bf16::from_le_bytes),
        Dtype::I64 => build(bytes, shape, i64::from_le_bytes),
        Dtype::I32 => build(bytes, shape, i32::from_le_bytes),
        Dtype::I16 => build(bytes, shape, i16::from_le_bytes),
        Dtype::I8 => build(bytes, shape, i8::from_le_bytes),
        Dtype::U8 => build(bytes, shape, u8::from_le_bytes),
        Dtype::BOOL => build(bytes, shape, |[b]: [u8; 1]| b != 0),
        other => panic!("{name} is {other:?}"),
    }
}

/// A dtype by PyTorch's name.
pub fn dtype(name: &str) -> Option<DType> {
    DType::ALL.into_iter().find(|d| d.name() == name)
}
