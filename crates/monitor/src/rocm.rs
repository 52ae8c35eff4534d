//! AMD's ROCm SMI; processes from the kernel's own list.

use crate::{Gpu, GpuProcess, text};
use rushlight_core::{Error, Result};
use rushlight_gpu::library_api;
use rushlight_gpu::vendor::library::Search;
use std::path::Path;
use std::sync::OnceLock;

const SEARCH: Search = Search {
    variable: "RUSHLIGHT_MONITOR_PATH",
    toolkit_variables: &["ROCM_PATH", "ROCM_HOME"],
    toolkits: &["/opt/rocm"],
    packages: "_rocm_sdk_core",
    companion: None,
};

const VRAM: u32 = 0;
const CLOCK_SYSTEM: u32 = 0;
const CLOCK_MEMORY: u32 = 4;
const TEMPERATURE_EDGE: u32 = 0;
const TEMPERATURE_JUNCTION: u32 = 1;

library_api! {
    /// Functions of ROCm SMI.
    Rocm(SEARCH, "ROCm SMI", &["librocm_smi64.so.7", "librocm_smi64.so.6", "librocm_smi64.so.5", "librocm_smi64.so.1", "librocm_smi64.so"], "It comes with ROCm.") {
        fn init = "rsmi_init" (u64);
        fn count = "rsmi_num_monitor_devices" (*mut u32);
        fn name = "rsmi_dev_name_get" (u32, *mut u8, usize);
        fn busy = "rsmi_dev_busy_percent_get" (u32, *mut u32);
        fn memory_total = "rsmi_dev_memory_total_get" (u32, u32, *mut u64);
        fn memory_used = "rsmi_dev_memory_usage_get" (u32, u32, *mut u64);
        fn temperature = "rsmi_dev_temp_metric_get" (u32, u32, u32, *mut i64);
        fn clock = "rsmi_dev_gpu_clk_freq_get" (u32, u32, *mut Frequencies);
        optional fn memory_busy = "rsmi_dev_memory_busy_percent_get" (u32, *mut u32);
        optional fn power = "rsmi_dev_power_ave_get" (u32, u32, *mut u64);
        optional fn socket_power = "rsmi_dev_current_socket_power_get" (u32, *mut u64);
        optional fn power_limit = "rsmi_dev_power_cap_get" (u32, u32, *mut u64);
        optional fn place = "rsmi_dev_pci_id_get" (u32, *mut u64);
        optional fn unique = "rsmi_dev_unique_id_get" (u32, *mut u64);
    }
}

/// `rsmi_frequencies_t`, whose layout depends on the version; larger than either.
#[repr(C, align(8))]
struct Frequencies([u8; 512]);

impl Frequencies {
    fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes(std::array::from_fn(|i| self.0[at + i]))
    }

    /// The current frequency in MHz. Versions from 6.0 on begin with a flag: 0 or 1, then a number of frequencies and
    /// an index below it. In older ones the number comes first, and the index; both readings make sense of no buffer.
    fn current(&self) -> Option<f64> {
        let (count, current, list) = match (self.word(0), self.word(4), self.word(8)) {
            (0 | 1, count, current) if (1..=33).contains(&count) && current < count => (count, current, 16),
            (count, current, _) => (count, current, 8),
        };
        if !(1..=33).contains(&count) || current >= count {
            return None;
        }
        let at = list + 8 * current as usize;
        let hertz = u64::from_ne_bytes(std::array::from_fn(|i| self.0[at + i]));
        Some(hertz as f64 / 1e6)
    }
}

fn rocm() -> Result<&'static Rocm> {
    static INITIALISED: OnceLock<Result<()>> = OnceLock::new();
    let rocm = Rocm::get()?;
    INITIALISED
        .get_or_init(|| {
            // SAFETY: takes flags, of which 0 is none.
            match unsafe { (rocm.init)(0) } {
                0 => Ok(()),
                code => Err(Error::device(format!(
                    "ROCm SMI: rsmi_init failed with code {code}: see `rocm-smi`, and whether this user is in the groups render and video"
                ))),
            }
        })
        .clone()?;
    Ok(rocm)
}

/// All devices; `None` where the library is not installed or the kernel has no AMD driver.
pub fn gpus() -> Result<Option<Vec<Gpu>>> {
    let Ok(library) = Rocm::get() else { return Ok(None) };
    // A library that the user names is always queried.
    let named = std::env::var_os(SEARCH.variable).unwrap_or_default();
    let is_named =
        std::env::split_paths(&named).any(|f| !f.as_os_str().is_empty() && Path::new(&library.path).starts_with(f));
    if !is_named && !Path::new("/sys/class/kfd").exists() {
        return Ok(None);
    }
    let rocm = rocm()?;
    let mut count = 0;
    // SAFETY: the pointer is to an integer of this frame.
    let code = unsafe { (rocm.count)(&mut count) };
    if code != 0 {
        return Err(Error::device(format!("ROCm SMI: rsmi_num_monitor_devices failed with code {code}")));
    }
    Ok(Some((0..count.min(1024)).map(|index| read(rocm, index)).collect()))
}

/// The device that HIP numbers so; `None` without the library or driver. The runtime's variable chooses devices, then
/// HIP's chooses among those.
pub fn gpu(ordinal: usize) -> Result<Option<Gpu>> {
    let Some(found) = gpus()? else { return Ok(None) };
    let variable = |name: &str| std::env::var(name).ok();
    let uuids: Vec<String> = found.iter().map(|gpu| format!("GPU-{}", gpu.uuid)).collect();
    let hip = variable("HIP_VISIBLE_DEVICES").or_else(|| variable("CUDA_VISIBLE_DEVICES"));
    let runtime = variable("ROCR_VISIBLE_DEVICES");
    let visible: Vec<usize> =
        (0..).map_while(|i| crate::visible_index(runtime.as_deref(), &uuids, i).ok()).take(uuids.len()).collect();
    let uuids: Vec<String> = visible.iter().map(|index| uuids[*index].clone()).collect();
    let index = visible[crate::visible_index(hip.as_deref(), &uuids, ordinal)?];
    Ok(found.into_iter().nth(index))
}

fn read(rocm: &Rocm, index: u32) -> Gpu {
    let word = |get: &dyn Fn(*mut u32) -> i32| {
        let mut value = 0u32;
        (get(&mut value) == 0).then_some(value)
    };
    let long = |get: &dyn Fn(*mut u64) -> i32| {
        let mut value = 0u64;
        (get(&mut value) == 0).then_some(value)
    };
    let clock = |kind: u32| {
        let mut frequencies = Frequencies([0; 512]);
        // SAFETY: the buffer is larger than the structure of any version.
        (unsafe { (rocm.clock)(index, kind, &mut frequencies) } == 0).then(|| frequencies.current())?
    };
    let celsius = |sensor: u32| {
        let mut value = 0i64;
        // SAFETY: the pointer is to an integer of this frame.
        (unsafe { (rocm.temperature)(index, sensor, 0, &mut value) } == 0).then_some(value as f64 / 1000.0)
    };
    let mut name = [0u8; 128];
    // SAFETY: the length is one less than the buffer's, so that the text has an end; each closure passes a pointer to a
    // value of the type that the function writes.
    unsafe {
        (rocm.name)(index, name.as_mut_ptr(), name.len() - 1);
        let micro = |watts: u64| watts as f64 / 1e6;
        let average = || rocm.power.and_then(|get| long(&|to| get(index, 0, to)));
        let power = rocm.socket_power.and_then(|get| long(&|to| get(index, to))).filter(|p| *p > 0).or_else(average);
        Gpu {
            vendor: "amd".into(),
            index: index as usize,
            name: text(&name),
            uuid: rocm
                .unique
                .and_then(|get| long(&|to| get(index, to)))
                .map_or_else(String::new, |id| format!("{id:016x}")),
            utilisation: word(&|to| (rocm.busy)(index, to)).map(f64::from),
            memory_utilisation: rocm.memory_busy.and_then(|get| word(&|to| get(index, to))).map(f64::from),
            memory_used: long(&|to| (rocm.memory_used)(index, VRAM, to)),
            memory_total: long(&|to| (rocm.memory_total)(index, VRAM, to)),
            power: power.map(micro),
            power_limit: rocm.power_limit.and_then(|get| long(&|to| get(index, 0, to))).map(micro),
            temperature: celsius(TEMPERATURE_EDGE).or_else(|| celsius(TEMPERATURE_JUNCTION)),
            clock: clock(CLOCK_SYSTEM),
            clock_limit: None,
            memory_clock: clock(CLOCK_MEMORY),
            processes: rocm
                .place
                .and_then(|get| long(&|to| get(index, to)))
                .map_or_else(Vec::new, |place| processes(Path::new("/sys/class/kfd/kfd"), place)),
        }
    }
}

/// Processes of the device at a place of the bus, by the kernel driver's files.
fn processes(kfd: &Path, place: u64) -> Vec<GpuProcess> {
    let number = |path: &Path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let nodes = std::fs::read_dir(kfd.join("topology/nodes")).into_iter().flatten().flatten();
    let id = nodes.map(|node| node.path()).find_map(|node| {
        let properties = std::fs::read_to_string(node.join("properties")).ok()?;
        let property = |name: &str| -> Option<u64> {
            let line = properties.lines().find(|line| line.split(' ').next() == Some(name))?;
            line.split(' ').nth(1)?.parse().ok()
        };
        let here = property("domain").unwrap_or(0) << 32 | property("location_id")? & 0xffff;
        let wanted = place & 0xffff_ffff_0000_ffff;
        (here == wanted).then(|| number(&node.join("gpu_id"))).flatten().filter(|id| *id != 0)
    });
    let Some(id) = id else { return Vec::new() };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(kfd.join("proc")).into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
        let memory = number(&entry.path().join(format!("vram_{id}")));
        if memory.is_some() {
            found.push(GpuProcess { pid, name: String::new(), memory });
        }
    }
    found.sort_by_key(|process| process.pid);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frequencies(words: &[u32], list: usize, hertz: &[u64]) -> Frequencies {
        let mut bytes = [0u8; 512];
        words.iter().enumerate().for_each(|(i, w)| bytes[4 * i..4 * i + 4].copy_from_slice(&w.to_ne_bytes()));
        let put = |(i, h): (usize, &u64)| bytes[list + 8 * i..list + 8 * i + 8].copy_from_slice(&h.to_ne_bytes());
        hertz.iter().enumerate().for_each(put);
        Frequencies(bytes)
    }

    #[test]
    fn both_layouts_of_frequencies() {
        let hertz = [500_000_000, 1_700_000_000, 2_100_000_000];
        assert_eq!(frequencies(&[3, 1], 8, &hertz).current(), Some(1700.0));
        assert_eq!(frequencies(&[1, 0], 8, &hertz[..1]).current(), Some(500.0));
        assert_eq!(frequencies(&[0, 3, 2], 16, &hertz).current(), Some(2100.0));
        assert_eq!(frequencies(&[1, 3, 0], 16, &hertz).current(), Some(500.0));
        assert_eq!(frequencies(&[0, 0], 8, &[]).current(), None);
        assert_eq!(frequencies(&[40, 39], 8, &hertz).current(), None);
    }

    #[test]
    fn processes_by_the_kernels_files() {
        let kfd = std::env::temp_dir().join(format!("rushlight-kfd-{}", std::process::id()));
        let write = |name: &str, text: &str| {
            let path = kfd.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("topology/nodes/0/gpu_id", "0\n");
        write("topology/nodes/0/properties", "cpu_cores_count 8\nlocation_id 0\ndomain 0\n");
        write("topology/nodes/1/gpu_id", "4711\n");
        write("topology/nodes/1/properties", "simd_count 4\nlocation_id 49408\ndomain 1\n");
        write("proc/123/vram_4711", "1048576\n");
        write("proc/124/vram_99", "5\n");
        let found = processes(&kfd, 1 << 32 | 49_408);
        assert_eq!(found, [GpuProcess { pid: 123, name: String::new(), memory: Some(1 << 20) }]);
        assert!(processes(&kfd, 7).is_empty());
        std::fs::remove_dir_all(kfd).unwrap();
    }
}
