//! Files written by PyTorch, safetensors and NumPy (`tests/fixtures/make_io.py`), and files of our own.

mod atomic;
mod dcp;
mod numpy;
mod pt;
mod safetensors;
mod shortened;

use rushlight_core::DType;
use rushlight_tensor::Tensor;
use std::path::PathBuf;

pub fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/io").join(name)
}

/// A folder of its own for a test, removed at the end.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rushlight-io-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            std::fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The values of the fixtures' `ramp`.
pub fn ramp(shape: &[usize], dtype: DType) -> Vec<f64> {
    let n: usize = shape.iter().product();
    (0..n).map(|i| (i % 7) as f64).map(|x| if dtype == DType::Bool { x % 2.0 } else { x }).collect()
}

#[track_caller]
pub fn assert_ramp(tensor: &Tensor, shape: &[usize], dtype: DType) {
    assert_eq!((tensor.shape(), tensor.dtype()), (shape, dtype));
    assert_eq!(tensor.to_vec::<f64>().unwrap(), ramp(shape, dtype));
}
