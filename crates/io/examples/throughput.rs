//! How fast half a gigabyte is saved and loaded: `cargo run -p rushlight-io --example throughput -- FOLDER`. The same for PyTorch and safetensors:
//! `tests/fixtures/check_io.py --time FOLDER`.

use rushlight_core::{Error, Result};
use rushlight_io::{pt, safetensors};
use rushlight_tensor::Tensor;
use rushlight_tensor::state::{StateDict, Value};
use std::path::{Path, PathBuf};
use std::time::Instant;

const ROUNDS: usize = 5;

/// The best of some rounds, in GB/s.
fn rate(name: &str, bytes: usize, work: impl FnMut() -> Result<()>) -> Result<()> {
    rate_after(|| (), name, bytes, work)
}

/// The best of some rounds, each after something that is not measured.
fn rate_after(before: impl Fn(), name: &str, bytes: usize, mut work: impl FnMut() -> Result<()>) -> Result<()> {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        before();
        let start = Instant::now();
        work()?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("{name:32} {:8.2} GB/s", bytes as f64 / best / 1e9);
    Ok(())
}

/// Reads every element.
fn sum(state: &StateDict) -> Result<()> {
    state.values().try_for_each(|t| t.sum().map(drop))
}

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).map(PathBuf::from).ok_or_else(|| Error::value("which folder?"))?;
    std::fs::create_dir_all(&folder)?;
    let shape = [1 << 10, 4 << 10];
    let state: StateDict =
        (0..32).map(|i| Ok((format!("layer{i}"), Tensor::full(shape, f64::from(i))?))).collect::<Result<_>>()?;
    let bytes = 32 * 4 * shape[0] * shape[1];
    let value = Value::from(&state);
    let (pt_path, st_path) = (folder.join("ours.pt"), folder.join("ours.safetensors"));
    let remove = |path: &Path| drop(std::fs::remove_file(path));
    rate_after(|| remove(&pt_path), "pt save", bytes, || pt::save(&value, &pt_path))?;
    rate("pt save over", bytes, || pt::save(&value, &pt_path))?;
    rate_after(|| remove(&st_path), "safetensors save", bytes, || safetensors::save(&state, &st_path))?;
    rate("safetensors save over", bytes, || safetensors::save(&state, &st_path))?;
    rate("pt load", bytes, || pt::load(&pt_path).map(drop))?;
    rate("pt load and sum", bytes, || sum(&pt::load(&pt_path)?.to_state_dict()?))?;
    rate("safetensors load", bytes, || safetensors::load(&st_path).map(drop))?;
    rate("safetensors load and sum", bytes, || sum(&safetensors::load(&st_path)?))?;
    std::fs::remove_file(pt_path)?;
    Ok(std::fs::remove_file(st_path)?)
}
