//! What meta tensors, which have no elements, refuse.

use rushlight_core::{Device, Error, Result};

/// An error for what needs the values of a meta tensor; called before memory for them is allocated.
pub(crate) fn refuse(what: &str, device: Device) -> Result<()> {
    if device != Device::Meta {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "{what} of a meta tensor; no data! Build it on a device, or use to_empty() for a module's parameters"
    )))
}

#[cfg(test)]
mod tests {
    use crate::Tensor;
    use rushlight_core::Device;
    use rushlight_core::{DType, ErrorKind};

    #[test]
    fn shapes_without_elements() -> rushlight_core::Result<()> {
        // More elements than any machine has memory for.
        let x = Tensor::zeros_with([1 << 20, 1 << 20], (DType::F32, Device::Meta))?.requires_grad_(true)?;
        let y = x.matmul(&x.transpose(0, 1)?)?.relu()?.sum()?;
        assert_eq!((y.device(), y.rank()), (Device::Meta, 0));
        y.backward()?;
        assert_eq!(x.grad().map(|g| g.shape().to_vec()), Some(vec![1 << 20, 1 << 20]));
        Ok(())
    }

    #[test]
    fn values_are_errors() -> rushlight_core::Result<()> {
        let x = Tensor::ones_with([2], Device::Meta)?;
        let cpu = Tensor::ones_with([2], DType::F32)?;
        assert_eq!(x.to(&rushlight_core::Device::Cpu).map(drop).unwrap_err().kind(), ErrorKind::Unsupported);
        assert!(x.to_vec::<f32>().is_err() && x.nonzero().is_err() && x.sum()?.to_scalar().is_err());
        assert!(cpu.add(&x).is_err() && x.add(&cpu).is_err());
        assert_eq!(cpu.to(&Device::Meta)?.shape(), [2]);
        Ok(())
    }
}
