//! `torch.Generator`, and the state of the default one.

use crate::convert::int;
use crate::device::PyDevice;
use crate::error::{IntoPyResult, runtime_error};
use crate::tensor::{PyTensor, wrap};
use pyo3::prelude::*;
use rushlight_core::{Device, Generator, Philox};
use rushlight_tensor::Tensor;
use std::sync::Arc;

/// A source of random numbers with its own state.
#[pyclass(name = "Generator", module = "rushlight", frozen, weakref)]
pub struct PyGenerator(pub Arc<Generator>, Device);

/// A seed in PyTorch's convention: negative ones wrap to 64 bits.
pub fn seed(object: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Ok(seed) = object.extract::<u64>() {
        return Ok(seed);
    }
    match int(object) {
        Ok(Some(seed)) => Ok(seed as u64),
        Ok(None) => Err(runtime_error(format!("manual_seed expected a long, but got {}", object.get_type().name()?))),
        Err(_) => Err(pyo3::exceptions::PyValueError::new_err("Overflow when unpacking long long")),
    }
}

/// A generator's state as a tensor of bytes.
pub fn state(generator: &Generator) -> rushlight_core::Result<Tensor> {
    let Philox { seed, offset } = generator.state();
    Tensor::from_iter(seed.to_le_bytes().into_iter().chain(offset.to_le_bytes()))
}

pub fn set_state(generator: &Generator, state: &Tensor) -> PyResult<()> {
    let bytes = state.to_vec::<u8>().py()?;
    let (Some(seed), Some(offset), 16) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>(), bytes.len()) else {
        return Err(runtime_error(format!("RNG state is wrong size: {} bytes, expected 16", bytes.len())));
    };
    generator.set_state(Philox { seed: u64::from_le_bytes(*seed), offset: u64::from_le_bytes(*offset) });
    Ok(())
}

/// An unpredictable seed.
pub fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u128(std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_nanos()));
    hasher.finish()
}

#[pymethods]
impl PyGenerator {
    #[new]
    #[pyo3(signature = (device=None))]
    fn new(device: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let device = device.map_or(Ok(Device::Cpu), |d| PyDevice::from_object(d)?.resolve(d.py()))?;
        Ok(Self(Arc::new(Generator::new(67_280_421_310_721)), device))
    }

    fn manual_seed<'py>(slf: &Bound<'py, Self>, seed: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        slf.get().0.manual_seed(self::seed(seed)?);
        Ok(slf.clone())
    }

    fn seed(&self) -> u64 {
        let seed = fresh_seed();
        self.0.manual_seed(seed);
        seed
    }

    fn initial_seed(&self) -> u64 {
        self.0.initial_seed()
    }

    fn get_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTensor>> {
        wrap(py, state(&self.0).py()?)
    }

    fn set_state<'py>(slf: &Bound<'py, Self>, new_state: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, Self>> {
        set_state(&slf.get().0, &new_state.get().tensor())?;
        Ok(slf.clone())
    }

    #[getter]
    fn device(&self) -> PyDevice {
        self.1.into()
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (), Bound<'py, PyTensor>)> {
        Ok((slf.get_type().into_any(), (), slf.get().get_state(slf.py())?))
    }

    fn __setstate__(slf: &Bound<'_, Self>, state: &Bound<'_, PyTensor>) -> PyResult<()> {
        set_state(&slf.get().0, &state.get().tensor())
    }
}
