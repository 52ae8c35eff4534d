//! The host as an entry in the list of engines.

use crate::{backend, isa};
use rushlight_core::backend::{Engine, Properties};
use rushlight_core::{Backend, Device, Error, Result};

/// The host's engine.
pub struct CpuEngine;

/// The entry for the list of engines.
pub static ENGINE: CpuEngine = CpuEngine;

impl Engine for CpuEngine {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn device(&self, _index: usize) -> Device {
        Device::Cpu
    }

    fn count(&self) -> Result<usize> {
        Ok(1)
    }

    fn properties(&self, index: usize) -> Result<Properties> {
        only(index)?;
        let name = field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_string());
        let memory = field("/proc/meminfo", "MemTotal")
            .and_then(|text| text.trim_end_matches("kB").trim().parse::<usize>().ok())
            .map_or(0, |kib| kib * 1024);
        Ok(Properties {
            name,
            memory,
            multiprocessors: std::thread::available_parallelism().map_or(1, |n| n.get()),
            runtime: isa::level().name().to_string(),
            ..Properties::default()
        })
    }

    fn backend(&self, index: usize) -> Result<&'static dyn Backend> {
        only(index).map(|()| backend())
    }
}

fn only(index: usize) -> Result<()> {
    if index == 0 { Ok(()) } else { Err(Error::device(format!("cpu:{index}: there is one CPU device, 'cpu'"))) }
}

/// The first value of a `name : value` line.
fn field(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| line.split_once(':').filter(|(key, _)| key.trim() == name))?.1;
    Some(value.trim().to_string())
}
