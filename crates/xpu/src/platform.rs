//! The devices that are `xpu`: Intel GPUs, or the user's choice.
//!
//! Level Zero's variables have the same meaning as in SYCL programs: `ZE_FLAT_DEVICE_HIERARCHY` (`FLAT`, the default,
//! and `COMBINED`: each tile of a GPU is a device; `COMPOSITE`: each GPU is one) and `ZE_AFFINITY_MASK` (the visible
//! devices, by number; `0.1` is a tile of a GPU).

use crate::opencl::{self, Handle, Platform, info};
use rushlight_core::{Error, Result};
use std::sync::OnceLock;

/// Intel's vendor ID.
const INTEL: u64 = 0x8086;

/// The variable that makes devices of other platforms, including CPUs, `xpu`: a part of a platform's name or vendor
/// (`pocl`, `intel`), or `cpu`.
pub const PLATFORM: &str = "RUSHLIGHT_XPU_PLATFORM";

/// Whether loading OpenCL pays: a platform is requested, or the kernel reports an Intel GPU. OpenCL drivers include a
/// compiler, and loading it would dominate the start of every process of a job.
pub fn may_have_device() -> bool {
    use std::path::Path;
    if !cfg!(target_os = "linux") || std::env::var_os(PLATFORM).is_some() || Path::new("/dev/dxg").exists() {
        return true;
    }
    let Ok(devices) = std::fs::read_dir("/sys/bus/pci/devices") else { return true };
    devices.flatten().any(|entry| {
        let read = |file: &str| std::fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        read("vendor").trim() == "0x8086" && read("class").starts_with("0x03")
    })
}

/// A device that may be started.
#[derive(Clone, Copy)]
pub struct Found {
    pub platform: &'static Platform,
    pub device: Handle,
}

// SAFETY: a handle of OpenCL, safe to use from any thread.
unsafe impl Send for Found {}
// SAFETY: as above.
unsafe impl Sync for Found {}

impl Found {
    pub fn text(&self, what: u32) -> String {
        opencl::text(self.platform.api.get_device_info, self.device, what)
    }

    pub fn number(&self, what: u32) -> u64 {
        opencl::number(self.platform.api.get_device_info, self.device, what)
    }
}

/// The devices, in the order of their numbers. The error says why there are none.
pub fn devices() -> Result<&'static [Found]> {
    static DEVICES: OnceLock<Result<Vec<Found>>> = OnceLock::new();
    DEVICES.get_or_init(find).as_deref().map_err(Clone::clone)
}

fn find() -> Result<Vec<Found>> {
    let platforms = opencl::platforms()?;
    let wanted = std::env::var(PLATFORM).ok().filter(|w| !w.is_empty()).map(|w| w.to_lowercase());
    let mut roots = Vec::new();
    for platform in platforms {
        let all = opencl::listed(|n, ids, count| {
            // SAFETY: room for `n` handles.
            unsafe { (platform.api.get_device_ids)(platform.id, opencl::DEVICE_TYPE_ALL, n, ids, count) }
        });
        for device in all {
            let found = Found { platform, device };
            let kind = found.number(info::DEVICE_TYPE);
            let takes = match &wanted {
                Some(word) if word == "cpu" => kind & opencl::DEVICE_TYPE_CPU != 0,
                Some(word) => {
                    platform.name.to_lowercase().contains(word) || platform.vendor.to_lowercase().contains(word)
                }
                None => kind & opencl::DEVICE_TYPE_GPU != 0 && found.number(info::DEVICE_VENDOR_ID) == INTEL,
            };
            if takes && found.number(info::DEVICE_AVAILABLE) != 0 {
                roots.push(found);
            }
        }
    }
    if roots.is_empty() {
        let names: Vec<&str> = platforms.iter().map(|p| p.name.as_str()).collect();
        return Err(Error::device(match &wanted {
            Some(word) => format!(
                "{PLATFORM}={word}: no OpenCL platform with this in its name has a device (there are: {})",
                names.join(", ")
            ),
            None => format!(
                "no Intel GPU was found by OpenCL (platforms: {}). {PLATFORM}=cpu has OpenCL's CPU devices stand for xpu, to try things out",
                names.join(", ")
            ),
        }));
    }
    let hierarchy = std::env::var("ZE_FLAT_DEVICE_HIERARCHY").unwrap_or_default();
    let mask = std::env::var("ZE_AFFINITY_MASK").unwrap_or_default();
    let tiles: Vec<Vec<Found>> = roots.iter().map(tiles).collect();
    let counts: Vec<usize> = tiles.iter().map(Vec::len).collect();
    let chosen = select(&counts, is_composite(&hierarchy)?, &mask)?;
    let devices = chosen.into_iter().map(|(root, tile)| tile.map_or(roots[root], |tile| tiles[root][tile])).collect();
    Ok(devices)
}

/// The variable that makes each compute unit of a CPU a tile, for tests.
const TILES: &str = "RUSHLIGHT_XPU_TILES";

/// Whether a GPU with several tiles is one device.
fn is_composite(hierarchy: &str) -> Result<bool> {
    match hierarchy.to_ascii_uppercase().as_str() {
        "" | "FLAT" | "COMBINED" => Ok(false),
        "COMPOSITE" => Ok(true),
        _ => Err(Error::value(format!("ZE_FLAT_DEVICE_HIERARCHY={hierarchy}: it is FLAT, COMPOSITE or COMBINED"))),
    }
}

/// The tiles of a GPU as separate devices; none if it has only one.
fn tiles(root: &Found) -> Vec<Found> {
    /// CL_DEVICE_PARTITION_BY_AFFINITY_DOMAIN, next partitionable.
    const BY_DOMAIN: [isize; 3] = [0x1088, 1 << 5, 0];
    /// CL_DEVICE_PARTITION_EQUALLY, by one compute unit.
    const BY_UNIT: [isize; 3] = [0x1086, 1, 0];
    let is_gpu = root.number(info::DEVICE_TYPE) & opencl::DEVICE_TYPE_GPU != 0;
    let by_domain = is_gpu && root.number(info::DEVICE_PARTITION_AFFINITY_DOMAIN) & (1 << 5) != 0;
    let by_unit = !is_gpu && std::env::var(TILES).is_ok_and(|v| v == "1");
    if !(by_domain || by_unit) || root.number(info::DEVICE_PARTITION_MAX_SUB_DEVICES) < 2 {
        return Vec::new();
    }
    let how = if by_domain { BY_DOMAIN.as_ptr() } else { BY_UNIT.as_ptr() };
    let parts = opencl::listed(|n, ids, count| {
        // SAFETY: the list of properties ends with zero, and there is room for `n` handles.
        unsafe { (root.platform.api.create_sub_devices)(root.device, how, n, ids, count) }
    });
    if parts.len() < 2 { Vec::new() } else { parts.into_iter().map(|device| Found { device, ..*root }).collect() }
}

/// The GPUs, or tiles, that are devices: `tiles[i]` is the number of tiles of GPU `i`, 0 or 1 if it is not divided.
fn select(tiles: &[usize], composite: bool, mask: &str) -> Result<Vec<(usize, Option<usize>)>> {
    // The units that the mask counts: tiles if they are devices, else GPUs.
    let mut all: Vec<(usize, Option<usize>)> = Vec::new();
    for (gpu, &count) in tiles.iter().enumerate() {
        if composite || count < 2 {
            all.push((gpu, None));
        } else {
            all.extend((0..count).map(|tile| (gpu, Some(tile))));
        }
    }
    if mask.trim().is_empty() {
        return Ok(all);
    }
    let bad = |entry: &str| {
        Error::value(format!(
            "ZE_AFFINITY_MASK={mask}: '{entry}' is not a device number, such as 0, or a tile of a GPU, such as 0.1 (which needs \
             ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE)"
        ))
    };
    let mut chosen = Vec::new();
    for entry in mask.split(',').map(str::trim).filter(|e| !e.is_empty()) {
        let (gpu, tile) = match entry.split_once('.') {
            Some((gpu, tile)) => (gpu, Some(tile.parse::<usize>().map_err(|_| bad(entry))?)),
            None => (entry, None),
        };
        let gpu: usize = gpu.parse().map_err(|_| bad(entry))?;
        match tile {
            // As in Level Zero, numbers of missing devices are ignored.
            None => chosen.extend(all.get(gpu)),
            Some(_) if !composite => return Err(bad(entry)),
            Some(tile) if tiles.get(gpu).is_some_and(|&count| tile < count) => chosen.push((gpu, Some(tile))),
            Some(0) if gpu < tiles.len() => chosen.push((gpu, None)),
            Some(_) => {}
        }
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::{is_composite, select};

    #[test]
    fn hierarchies_are_level_zeros() {
        assert!(!is_composite("").unwrap() && !is_composite("Flat").unwrap() && !is_composite("COMBINED").unwrap());
        assert!(is_composite("composite").unwrap() && is_composite("TILES").is_err());
    }

    #[test]
    fn tiles_are_devices_unless_composite() {
        assert_eq!(select(&[2, 0], false, "").unwrap(), [(0, Some(0)), (0, Some(1)), (1, None)]);
        assert_eq!(select(&[2, 0], true, "").unwrap(), [(0, None), (1, None)]);
    }

    #[test]
    fn masks_choose() {
        assert_eq!(select(&[2, 2], false, "3,0").unwrap(), [(1, Some(1)), (0, Some(0))]);
        assert_eq!(select(&[2, 2], true, "1").unwrap(), [(1, None)]);
        assert_eq!(select(&[2, 2], true, "0.1,1.0").unwrap(), [(0, Some(1)), (1, Some(0))]);
        assert_eq!(select(&[2, 2], true, "7").unwrap(), []);
        assert!(select(&[2], false, "0.1").is_err());
        assert!(select(&[2], true, "x").is_err());
    }
}
