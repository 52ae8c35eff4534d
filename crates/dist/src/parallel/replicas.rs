//! `DataParallel`: one process, several devices.

use rushlight_core::{Device, Error, Result};
use rushlight_nn::{Forward, Member, MemberMut, Module};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{HookHandle, no_grad};
use std::ops::Deref;

/// Replicates a module on several devices of one process: each device processes a part of every batch.
///
/// The first device's module is the one that is trained. Its values are copied to the others before each forward pass;
/// gradients of the others are added to its own as they arrive. Outputs are on the first device. Work of GPUs overlaps,
/// because launches are asynchronous. One process per device
/// ([`DistributedDataParallel`](super::DistributedDataParallel)) is faster and overlaps communication.
///
/// ```
/// # mod rushlight {
/// #     pub use rushlight_core::Device;
/// #     pub use rushlight_tensor::*;
/// #     pub use rushlight_nn as nn;
/// #     pub use rushlight_dist as dist;
/// # }
/// use rushlight::Device;
/// use rushlight::dist::DataParallel;
/// use rushlight::nn::{Forward, Linear, Module};
/// use rushlight::Tensor;
/// let model = DataParallel::new(&[Device::Cpu, Device::Cpu], |device| Linear::new(3, 1)?.to(device))?;
/// let y = model.forward(&Tensor::ones([5, 3])?)?;
/// y.sum(..)?.backward()?;
/// assert_eq!(y.shape(), [5, 1]);
/// assert_eq!(model.weight.grad().unwrap().to_vec::<f32>()?, [5.0; 3]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub struct DataParallel<M> {
    replicas: Vec<M>,
    devices: Vec<Device>,
    hooks: Vec<HookHandle>,
}

impl<M: Module> DataParallel<M> {
    /// Makes a module on each device. All get the values of the first.
    pub fn new(devices: &[Device], mut make: impl FnMut(Device) -> Result<M>) -> Result<Self> {
        if devices.is_empty() {
            return Err(Error::value("DataParallel: at least one device is needed"));
        }
        let replicas = devices.iter().map(|&device| make(device)).collect::<Result<Vec<_>>>()?;
        let kinds = |m: &M| -> Vec<(String, Vec<usize>)> {
            m.named_parameters().into_iter().map(|(name, p)| (name, p.shape().to_vec())).collect()
        };
        for (replica, device) in replicas.iter().zip(devices) {
            if kinds(replica) != kinds(&replicas[0]) {
                return Err(Error::value(format!("DataParallel: the module made for {device} has other parameters")));
            }
            if let Some((name, p)) = replica.named_parameters().iter().find(|(_, p)| p.device() != *device) {
                return Err(Error::device(format!(
                    "DataParallel: parameter {name} is on {}; make the module on {device}",
                    p.device()
                )));
            }
        }
        let mut hooks = Vec::new();
        for replica in &replicas[1..] {
            for (own, first) in replica.parameters().into_iter().zip(replicas[0].parameters()) {
                if own.requires_grad() {
                    let hook = move |own: &Tensor| no_grad(|| add_to(&first, own));
                    hooks.push(own.register_post_accumulate_grad_hook(hook)?);
                }
            }
        }
        Ok(Self { replicas, devices: devices.to_vec(), hooks })
    }

    /// The module that is trained, on the first device.
    pub fn module(&self) -> &M {
        &self.replicas[0]
    }

    /// The devices.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    fn replicate(&self) -> Result<()> {
        let state = |m: &M| -> Vec<Tensor> { m.parameters().into_iter().chain(m.buffers()).collect() };
        let first = state(&self.replicas[0]);
        no_grad(|| {
            for replica in &self.replicas[1..] {
                for (to, from) in state(replica).iter().zip(&first) {
                    to.detach().copy_(&from.detach())?;
                }
            }
            Ok(())
        })
    }

    /// A forward pass of any signature over parts of `input`, split along its first dimension.
    pub fn call(&self, input: &Tensor, forward: impl Fn(&M, &Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let rows = input.shape().first().copied().unwrap_or(0);
        let parts = self.devices.len().min(rows.max(1));
        if parts == 1 {
            return forward(&self.replicas[0], &input.to(self.devices[0])?);
        }
        self.replicate()?;
        let each = rows.div_ceil(parts);
        let mut outputs = Vec::with_capacity(parts);
        for (i, (replica, device)) in self.replicas.iter().zip(&self.devices).enumerate() {
            let start = (i * each).min(rows);
            let count = each.min(rows - start);
            if count > 0 {
                outputs.push(forward(replica, &input.narrow(0, start as isize, count)?.to(device)?)?);
            }
        }
        let home = self.devices[0];
        let outputs = outputs.iter().map(|y| y.to(home)).collect::<Result<Vec<_>>>()?;
        rushlight_tensor::cat(&outputs.iter().collect::<Vec<_>>(), 0)
    }
}

/// Adds a replica's gradient to the first module's, and clears it.
fn add_to(first: &Tensor, own: &Tensor) -> Result<()> {
    let Some(grad) = own.grad() else { return Ok(()) };
    let grad = grad.detach().to(first.device())?;
    match first.grad() {
        Some(sum) => drop(sum.detach().add_(&grad)?),
        None => first.set_grad(Some(if grad.shares_storage(&own.grad().unwrap_or_else(|| grad.clone())) {
            grad.copy()?
        } else {
            grad
        }))?,
    }
    own.zero_grad();
    Ok(())
}

/// State-dict keys begin with `module.`, as in PyTorch.
impl<M: Module> Module for DataParallel<M> {
    fn type_name(&self) -> &'static str {
        "DataParallel"
    }

    fn members<'a>(&'a self, visit: &mut dyn FnMut(&str, Member<'a>)) {
        visit("module", Member::Module(&self.replicas[0]));
    }

    fn members_mut<'a>(&'a mut self, visit: &mut dyn FnMut(&str, MemberMut<'a>)) {
        visit("module", MemberMut::Module(&mut self.replicas[0]));
    }
}

impl<M: Forward + Module> Forward for DataParallel<M> {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        self.call(input, |module, part| module.forward(part))
    }
}

impl<M> Deref for DataParallel<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.replicas[0]
    }
}

impl<M> Drop for DataParallel<M> {
    fn drop(&mut self) {
        self.hooks.drain(..).for_each(HookHandle::remove);
    }
}
