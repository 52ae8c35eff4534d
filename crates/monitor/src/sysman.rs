//! Intel's Level Zero Sysman. It gives counters; utilisation and power are their differences between two samples.

use crate::{Gpu, GpuProcess, text};
use rushlight_core::{Error, Result};
use rushlight_gpu::library_api;
use rushlight_gpu::vendor::library::Search;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::OnceLock;

const SEARCH: Search = Search {
    variable: "RUSHLIGHT_MONITOR_PATH",
    toolkit_variables: &["LEVEL_ZERO_ROOT"],
    toolkits: &[],
    packages: "level_zero",
    companion: None,
};

type Handle = *mut c_void;

/// `zes_structure_type_t` of the structures below.
const DEVICE_PROPERTIES: u32 = 0x1;
const ENGINE_PROPERTIES: u32 = 0x5;
const FREQUENCY_PROPERTIES: u32 = 0x9;
const MEMORY_PROPERTIES: u32 = 0xb;
const TEMPERATURE_PROPERTIES: u32 = 0x14;
const PROCESS_STATE: u32 = 0x16;
const FREQUENCY_STATE: u32 = 0x1b;
const MEMORY_STATE: u32 = 0x1e;
const ZE_DEVICE_PROPERTIES: u32 = 0x3;

const MEMORY_OF_DEVICE: u32 = 1;
const ENGINES_ALL: u32 = 0;
const ENGINES_COMPUTE: u32 = 1;

macro_rules! structures {
    ($($(#[$doc:meta])* $Name:ident($kind:expr, $size:literal) { $($field:ident: $ty:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        struct $Name {
            kind: u32,
            next: *mut c_void,
            $($field: $ty,)*
        }

        // The sizes are those of the headers.
        const _: () = assert!(size_of::<$Name>() == $size);

        impl $Name {
            fn new() -> Self {
                // SAFETY: plain data, of which zero is a value.
                let zero: Self = unsafe { std::mem::zeroed() };
                Self { kind: $kind, ..zero }
            }
        }
    )*};
}

structures! {
    CoreProperties(ZE_DEVICE_PROPERTIES, 368) {
        numbers: [u32; 6], max_allocation: u64, more: [u32; 7], timer: u64, bits: [u32; 2], uuid: [u8; 16], name: [u8; 256],
    }
    DeviceProperties(DEVICE_PROPERTIES, 776) { core: CoreProperties, parts: u32, texts: [[u8; 64]; 6] }
    EngineProperties(ENGINE_PROPERTIES, 32) { group: u32, on_part: u8, part: u32 }
    FrequencyProperties(FREQUENCY_PROPERTIES, 48) { domain: u32, on_part: u8, part: u32, flags: [u8; 2], least: f64, most: f64 }
    FrequencyState(FREQUENCY_STATE, 64) { voltage: f64, request: f64, tdp: f64, efficient: f64, actual: f64, throttled: u32 }
    MemoryProperties(MEMORY_PROPERTIES, 48) { of: u32, on_part: u8, part: u32, location: u32, size: u64, width: i32, channels: i32 }
    MemoryState(MEMORY_STATE, 40) { health: u32, free: u64, size: u64 }
    TemperatureProperties(TEMPERATURE_PROPERTIES, 48) { sensor: u32, on_part: u8, part: u32, most: f64, flags: [u8; 3] }
    ProcessState(PROCESS_STATE, 48) { pid: u32, memory: u64, shared: u64, engines: u32 }
}

/// A counter and the time it was read, in microseconds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counter {
    value: u64,
    time: u64,
}

library_api! {
    /// Functions of Level Zero Sysman.
    Sysman(SEARCH, "Level Zero", if cfg!(windows) { &["ze_loader.dll"] } else { &["libze_loader.so.1", "libze_loader.so"] }, "It comes with Intel's GPU driver.") {
        fn init = "zesInit" (u32);
        fn drivers = "zesDriverGet" (*mut u32, *mut Handle);
        fn devices = "zesDeviceGet" (Handle, *mut u32, *mut Handle);
        fn properties = "zesDeviceGetProperties" (Handle, *mut DeviceProperties);
        fn memories = "zesDeviceEnumMemoryModules" (Handle, *mut u32, *mut Handle);
        fn memory_properties = "zesMemoryGetProperties" (Handle, *mut MemoryProperties);
        fn memory_state = "zesMemoryGetState" (Handle, *mut MemoryState);
        fn engines = "zesDeviceEnumEngineGroups" (Handle, *mut u32, *mut Handle);
        fn engine_properties = "zesEngineGetProperties" (Handle, *mut EngineProperties);
        fn activity = "zesEngineGetActivity" (Handle, *mut Counter);
        fn powers = "zesDeviceEnumPowerDomains" (Handle, *mut u32, *mut Handle);
        fn energy = "zesPowerGetEnergyCounter" (Handle, *mut Counter);
        fn sensors = "zesDeviceEnumTemperatureSensors" (Handle, *mut u32, *mut Handle);
        fn sensor_properties = "zesTemperatureGetProperties" (Handle, *mut TemperatureProperties);
        fn temperature = "zesTemperatureGetState" (Handle, *mut f64);
        fn frequencies = "zesDeviceEnumFrequencyDomains" (Handle, *mut u32, *mut Handle);
        fn frequency_properties = "zesFrequencyGetProperties" (Handle, *mut FrequencyProperties);
        fn frequency = "zesFrequencyGetState" (Handle, *mut FrequencyState);
        fn processes = "zesDeviceProcessesGetState" (Handle, *mut u32, *mut ProcessState);
        optional fn card_power = "zesDeviceGetCardPowerDomain" (Handle, *mut Handle);
    }
}

/// Counters of the sample before: by handle.
#[derive(Clone, Debug, Default)]
pub struct Counters(HashMap<usize, Counter>);

impl Counters {
    /// The increase of a counter per microsecond since the last call.
    fn rate(&mut self, handle: Handle, now: Counter) -> Option<f64> {
        let before = self.0.insert(handle as usize, now)?;
        let (value, time) = (now.value.checked_sub(before.value)?, now.time.checked_sub(before.time)?);
        (time > 0).then(|| value as f64 / time as f64)
    }
}

type List = unsafe extern "C" fn(Handle, *mut u32, *mut Handle) -> i32;

/// The handles of a device's components.
fn list(of: Handle, get: List) -> Vec<Handle> {
    let mut count = 0;
    // SAFETY: without a buffer the function only counts.
    if unsafe { get(of, &mut count, std::ptr::null_mut()) } != 0 || count == 0 {
        return Vec::new();
    }
    count = count.min(1024);
    let mut found = vec![std::ptr::null_mut(); count as usize];
    // SAFETY: the count is the buffer's length.
    if unsafe { get(of, &mut count, found.as_mut_ptr()) } != 0 {
        return Vec::new();
    }
    found.truncate(count as usize);
    found
}

/// A structure that a function fills; `None` if it fails.
fn fill<T>(mut value: T, get: impl FnOnce(*mut T) -> i32) -> Option<T> {
    (get(&mut value) == 0).then_some(value)
}

fn sysman() -> Result<&'static Sysman> {
    static INITIALISED: OnceLock<Result<()>> = OnceLock::new();
    let sysman = Sysman::get()?;
    INITIALISED
        .get_or_init(|| {
            // SAFETY: takes flags, of which 0 is none.
            match unsafe { (sysman.init)(0) } {
                0 => Ok(()),
                code => Err(Error::device(format!("Level Zero Sysman: zesInit failed with code {code:#x}"))),
            }
        })
        .clone()?;
    Ok(sysman)
}

/// All devices; `None` where the library is not installed, is too old, or finds no driver.
pub fn gpus(counters: &mut Counters) -> Result<Option<Vec<Gpu>>> {
    // Without a driver zesInit fails, on every machine that has the loader only.
    let Ok(sysman) = sysman() else { return Ok(None) };
    let mut count = 0;
    // SAFETY: without a buffer the function only counts.
    if unsafe { (sysman.drivers)(&mut count, std::ptr::null_mut()) } != 0 {
        return Ok(None);
    }
    count = count.min(64);
    let mut drivers = vec![std::ptr::null_mut(); count as usize];
    // SAFETY: the count is the buffer's length.
    let code = unsafe { (sysman.drivers)(&mut count, drivers.as_mut_ptr()) };
    if code != 0 {
        return Err(Error::device(format!("Level Zero Sysman: zesDriverGet failed with code {code:#x}")));
    }
    let devices = drivers.into_iter().take(count as usize).flat_map(|driver| list(driver, sysman.devices));
    let gpus: Vec<Gpu> = devices.enumerate().map(|(i, device)| read(sysman, device, i, counters)).collect();
    Ok(Some(gpus))
}

fn read(sysman: &Sysman, device: Handle, index: usize, counters: &mut Counters) -> Gpu {
    let mut gpu = Gpu { vendor: "intel".into(), index, ..Gpu::default() };
    // SAFETY: here and below, handles are the library's, and structures have their type in the first field.
    unsafe {
        let mut properties = DeviceProperties::new();
        properties.core = CoreProperties::new();
        if let Some(properties) = fill(properties, |to| (sysman.properties)(device, to)) {
            gpu.name = text(&properties.core.name);
            gpu.uuid = properties.core.uuid.iter().map(|b| format!("{b:02x}")).collect();
        }
        for memory in list(device, sysman.memories) {
            let known = fill(MemoryProperties::new(), |to| (sysman.memory_properties)(memory, to));
            if known.is_some_and(|known| known.location != MEMORY_OF_DEVICE) {
                continue;
            }
            if let Some(state) = fill(MemoryState::new(), |to| (sysman.memory_state)(memory, to)) {
                *gpu.memory_total.get_or_insert(0) += state.size;
                *gpu.memory_used.get_or_insert(0) += state.size.saturating_sub(state.free);
            }
        }
        gpu.utilisation = utilisation(sysman, device, counters);
        let domains = list(device, sysman.powers);
        let card = sysman.card_power.and_then(|get| fill(std::ptr::null_mut(), |to| get(device, to)));
        if let Some(domain) = card.filter(|card| !card.is_null()).or_else(|| domains.first().copied())
            && let Some(energy) = fill(Counter::default(), |to| (sysman.energy)(domain, to))
        {
            // Microjoules per microsecond are watts.
            gpu.power = counters.rate(domain, energy);
        }
        // Whichever part is hottest.
        for sensor in list(device, sysman.sensors) {
            let known = fill(TemperatureProperties::new(), |to| (sysman.sensor_properties)(sensor, to));
            // Global, GPU and memory; others are limits.
            if known.is_some_and(|known| known.sensor > 2) {
                continue;
            }
            if let Some(celsius) = fill(0.0f64, |to| (sysman.temperature)(sensor, to)).filter(|c| c.is_finite()) {
                gpu.temperature = Some(gpu.temperature.map_or(celsius, |most: f64| most.max(celsius)));
            }
        }
        for domain in list(device, sysman.frequencies) {
            let Some(known) = fill(FrequencyProperties::new(), |to| (sysman.frequency_properties)(domain, to)) else {
                continue;
            };
            let state = fill(FrequencyState::new(), |to| (sysman.frequency)(domain, to));
            let mhz = state.map(|state| state.actual).filter(|mhz| *mhz >= 0.0);
            match known.domain {
                0 => {
                    gpu.clock = gpu.clock.into_iter().chain(mhz).reduce(f64::max);
                    gpu.clock_limit = Some(known.most).filter(|mhz| *mhz > 0.0);
                }
                1 => gpu.memory_clock = gpu.memory_clock.into_iter().chain(mhz).reduce(f64::max),
                _ => {}
            }
        }
        gpu.processes = processes(sysman, device);
    }
    gpu
}

/// Per cent of the time in which any engine, else any compute engine, was active: the busiest part of the device.
fn utilisation(sysman: &Sysman, device: Handle, counters: &mut Counters) -> Option<f64> {
    let (mut all, mut compute) = (None, None);
    for engine in list(device, sysman.engines) {
        // SAFETY: as in `read`.
        let (known, activity) = unsafe {
            let known = fill(EngineProperties::new(), |to| (sysman.engine_properties)(engine, to));
            (known, fill(Counter::default(), |to| (sysman.activity)(engine, to)))
        };
        let (Some(known), Some(activity)) = (known, activity) else { continue };
        let best = match known.group {
            ENGINES_ALL => &mut all,
            ENGINES_COMPUTE => &mut compute,
            _ => continue,
        };
        if let Some(rate) = counters.rate(engine, activity) {
            *best = Some(best.map_or(rate, |most: f64| most.max(rate)));
        }
    }
    all.or(compute).map(|share| (share * 100.0).clamp(0.0, 100.0))
}

fn processes(sysman: &Sysman, device: Handle) -> Vec<GpuProcess> {
    let mut count = 0;
    // SAFETY: without a buffer the function only counts.
    if unsafe { (sysman.processes)(device, &mut count, std::ptr::null_mut()) } != 0 || count == 0 {
        return Vec::new();
    }
    count = count.min(4096);
    let mut found = vec![ProcessState::new(); count as usize];
    // SAFETY: the count is the buffer's length. Processes started meanwhile make the call fail; the next sample has
    // them.
    if unsafe { (sysman.processes)(device, &mut count, found.as_mut_ptr()) } != 0 {
        return Vec::new();
    }
    found.truncate(count as usize);
    found.iter().map(|p| GpuProcess { pid: p.pid, name: String::new(), memory: Some(p.memory) }).collect()
}
