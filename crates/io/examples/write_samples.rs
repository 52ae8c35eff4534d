//! Writes one file of each kind into a folder, for `tests/fixtures/check_io.py` to read with PyTorch, safetensors and
//! NumPy.
//!
//! `cargo run -p rushlight-io --example write_samples -- FOLDER`

use rushlight_core::{DType, Error, Result};
use rushlight_io::{npy, npz, pt, safetensors};
use rushlight_tensor::Tensor;
use rushlight_tensor::state::{Dict, Key, StateDict, Value};
use std::path::PathBuf;

fn ramp(shape: [usize; 2], dtype: DType) -> Result<Tensor> {
    let n = (shape[0] * shape[1]) as i64;
    Tensor::arange(0, n, 1)?.reshape(shape)?.to_dtype(dtype)
}

fn state() -> Result<StateDict> {
    let mut state = StateDict::new();
    // Those that all formats have.
    for dtype in DType::ALL.into_iter().filter(|d| !matches!(d, DType::C32 | DType::C128)) {
        state.insert(dtype.name().into(), ramp([3, 5], dtype)?);
    }
    let base = ramp([4, 6], DType::F32)?;
    state.insert("transposed".into(), base.t()?);
    state.insert("columns".into(), base.narrow(1, 2, 3)?);
    state.insert("expanded".into(), ramp([1, 3], DType::F32)?.expand([2, 3])?);
    state.insert("scalar".into(), Tensor::scalar(2.5)?);
    state.insert("empty".into(), Tensor::zeros([0, 3])?);
    state.insert("base".into(), base);
    Ok(state)
}

fn nested(state: &StateDict) -> Result<Value> {
    let mut dict = Dict::new();
    dict.insert("state".into(), state.into());
    dict.insert("none".into(), Value::None);
    dict.insert("flags".into(), Value::Tuple(vec![true.into(), false.into()]));
    let numbers = [0, 1, -1, 255, 256, 65_535, 65_536, -40_000, 1 << 31, i64::MAX, i64::MIN];
    dict.insert("integers".into(), Value::List(numbers.map(Value::Int).into()));
    dict.insert("floats".into(), Value::List(vec![0.1.into(), f64::INFINITY.into(), (-0.0).into()]));
    dict.insert("text".into(), "käse 🦀".into());
    dict.insert("bytes".into(), Value::Bytes((0..=255).collect()));
    dict.insert("no_bytes".into(), Value::Bytes(Vec::new()));
    dict.insert("nothing".into(), Value::List(vec![Value::List(vec![]), Value::Tuple(vec![]), Dict::new().into()]));
    dict.insert(Key::Int(7), "integer key".into());
    dict.insert("many".into(), Value::List((0..1000).map(|i| format!("string {i}").into()).collect()));
    dict.insert("parameter".into(), Tensor::new([1.5f32, 2.5])?.requires_grad_(true)?.into());
    Ok(dict.into())
}

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).map(PathBuf::from).ok_or_else(|| Error::value("which folder?"))?;
    std::fs::create_dir_all(&folder)?;
    let mut state = state()?;
    pt::save(&nested(&state)?, folder.join("nested.pt"))?;
    let metadata = safetensors::Metadata::from_iter([("note".to_string(), "käse \"quoted\"".to_string())]);
    safetensors::save_with_metadata(&state, &metadata, folder.join("state.safetensors"))?;
    safetensors::save_sharded(&state, folder.join("sharded"), 200)?;
    state.retain(|_, t| t.dtype() != DType::BF16 && !t.dtype().is_float8());
    npz::save(&state, folder.join("state.npz"))?;
    for (name, tensor) in &state {
        npy::save(tensor, folder.join(format!("{name}.npy")))?;
    }
    Ok(())
}
