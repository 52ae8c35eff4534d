//! Errors of meta tensors, which have no elements.

use rushlight_core::{Device, Error, Result};

/// Refuses calls that need a meta tensor's values, before memory for them is allocated.
pub(crate) fn refuse(what: &str, device: Device) -> Result<()> {
    if device != Device::Meta {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "{what} of a meta tensor; no data! Build it on a device, or use to_empty() for a module's parameters"
    )))
}
