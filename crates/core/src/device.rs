//! Devices.

use crate::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// A device: the CPU, or one of a kind of accelerator.
///
/// ```
/// # mod rushlight { pub use rushlight_core::Device; }
/// use rushlight::Device;
/// assert_eq!("cuda:1".parse::<Device>().unwrap(), Device::Cuda(1));
/// assert_eq!("xpu".parse::<Device>().unwrap(), Device::Xpu(0));
/// assert_eq!(Device::Cpu.to_string(), "cpu");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Device {
    /// The host.
    #[default]
    Cpu,
    /// An NVIDIA GPU by index.
    Cuda(usize),
    /// An Intel GPU by index.
    Xpu(usize),
    /// The meta device: tensors with shape, dtype and strides, but no elements.
    Meta,
}

impl Device {
    /// Whether this is the host.
    pub fn is_cpu(self) -> bool {
        self == Device::Cpu
    }

    /// Index among the devices of its kind.
    pub fn index(self) -> usize {
        match self {
            Device::Cpu | Device::Meta => 0,
            Device::Cuda(index) | Device::Xpu(index) => index,
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(i) => write!(f, "cuda:{i}"),
            Device::Xpu(i) => write!(f, "xpu:{i}"),
            Device::Meta => f.write_str("meta"),
        }
    }
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (kind, index) = match text.split_once(':') {
            Some((kind, index)) => {
                let index = index.parse().map_err(|_| {
                    Error::device(format!(
                        "device '{text}': '{index}' is not a device index; write for example 'cuda:0'"
                    ))
                })?;
                (kind, index)
            }
            None => (text, 0),
        };
        match kind {
            "cpu" => Ok(Device::Cpu),
            "cuda" => Ok(Device::Cuda(index)),
            "xpu" => Ok(Device::Xpu(index)),
            "meta" => Ok(Device::Meta),
            _ => Err(Error::device(format!(
                "unknown device '{text}': expected 'cpu', 'cuda', 'cuda:N', 'xpu', 'xpu:N' or 'meta'"
            ))),
        }
    }
}
