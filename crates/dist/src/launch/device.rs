//! The accelerator of a rank.

use super::{Environment, Launch};
use rushlight_core::{Device, Result};

/// The device of this rank among those that the process sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceChoice {
    /// Its index among the visible devices.
    pub index: usize,
    /// Why.
    pub reason: String,
}

/// Variables with which launchers restrict the devices of a process, with the separator between devices.
const VISIBLE: [&str; 4] = ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"];

/// Chooses a rank's device from its local rank and the devices that the launcher left visible.
///
/// `count` is the number of devices that the process sees. A launcher that binds devices leaves one visible to each
/// rank, whose index is then 0. If all ranks of the node see all devices, the local rank is the index; ranks beyond the
/// last device share.
///
/// ```
/// # mod rushlight { pub use rushlight_dist as dist; }
/// use rushlight::dist::launch::{Environment, choose_device, detect_from};
/// let env =
/// Environment::recorded("PMI_RANK=3\nPMI_SIZE=4\nMPI_LOCALRANKID=3\nMPI_LOCALNRANKS=4\nCUDA_VISIBLE_DEVICES=3");
/// assert_eq!(choose_device(&detect_from(&env)?, &env, 1).unwrap().index, 0);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn choose_device(launch: &Launch, env: &Environment, count: usize) -> Option<DeviceChoice> {
    let listed = VISIBLE.iter().find_map(|name| Some((*name, env.get(name)?)));
    let local = launch.local_rank.unwrap_or(launch.rank);
    let by = match listed {
        Some((name, value)) => format!("{name}={value}"),
        None => "no variable narrows the devices".into(),
    };
    match count {
        0 => None,
        1 => Some(DeviceChoice { index: 0, reason: format!("the one device visible ({by})") }),
        n if local < n => {
            Some(DeviceChoice { index: local, reason: format!("local rank {local} of {n} devices ({by})") })
        }
        n => Some(DeviceChoice {
            index: local % n,
            reason: format!("local rank {local} shares one of {n} devices ({by})"),
        }),
    }
}

/// This process's device, known before rendezvous: the accelerator selected by its local rank among the devices that
/// the launcher left visible, or the CPU without one. [`World::device`](crate::World::device) returns the same later.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_dist as dist; }
/// let device = rushlight::dist::launch::device()?;
/// let x = rushlight::Tensor::zeros_with([3], device)?;
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn device() -> Result<Device> {
    let Some(engine) = rushlight_engines::accelerator() else { return Ok(Device::Cpu) };
    let env = Environment::current();
    let launch = super::detect_from(&env)?;
    Ok(choose_device(&launch, &env, engine.count().unwrap_or(0))
        .map_or(Device::Cpu, |choice| engine.device(choice.index)))
}
