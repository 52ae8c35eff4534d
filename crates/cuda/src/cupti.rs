//! CUPTI: NVIDIA's records of kernels, copies and driver calls, for the profiler.
//!
//! Where the library is missing, or another profiler holds it, the engine times its launches by events instead
//! (`rushlight_gpu::device::timing`).

use crate::api;
use rushlight_core::sync::lock;
use rushlight_gpu::device::timing::EVENTS;
use rushlight_profile::{Category, Details, Event, Place, Source, clock};
use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

type Request = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Complete = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

api! {
    /// The library of activity records.
    Cupti(
        "CUPTI, CUDA's profiling interface (libcupti)",
        &[
            "libcupti.so.13",
            "libcupti.so.12",
            "libcupti.so",
            "../extras/CUPTI/lib64/libcupti.so",
            "../../extras/CUPTI/lib64/libcupti.so",
        ],
        "Install the CUDA toolkit or the Python package nvidia-cuda-cupti and name its directory in RUSHLIGHT_CUDA_PATH."
    ) {
        fn timestamp = "cuptiGetTimestamp" (*mut u64);
        fn register = "cuptiActivityRegisterCallbacks" (Request, Complete);
        fn enable = "cuptiActivityEnable" (u32);
        fn disable = "cuptiActivityDisable" (u32);
        fn flush = "cuptiActivityFlushAll" (u32);
        fn next_record = "cuptiActivityGetNextRecord" (*mut u8, usize, *mut *mut u8);
        fn callback_name = "cuptiGetCallbackName" (u32, u32, *mut *const c_char);
        optional fn thread_id_type = "cuptiSetThreadIdType" (u32);
    }
}

/// Kinds of records (`CUpti_ActivityKind`).
mod kind {
    pub const COPY: u32 = 1;
    pub const FILL: u32 = 2;
    pub const DRIVER: u32 = 4;
    pub const KERNEL: u32 = 10;
    pub const ALL: [u32; 4] = [COPY, FILL, DRIVER, KERNEL];
}

/// `CUPTI_CB_DOMAIN_DRIVER_API`.
const DRIVER_DOMAIN: u32 = 1;
/// `CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM`: the numbers that the system gives threads.
const SYSTEM_THREADS: u32 = 1;
/// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`: also buffers that are not full.
const FORCED: u32 = 1;
const BUFFER_BYTES: usize = 1 << 20;
/// Records are aligned to 8 bytes.
const BUFFER: Layout = match Layout::from_size_align(BUFFER_BYTES, 8) {
    Ok(layout) => layout,
    Err(_) => panic!("a valid layout"),
};

static RECORDS: Mutex<Vec<Event>> = Mutex::new(Vec::new());
/// Nanoseconds from CUPTI's clock to the profiler's.
static OFFSET: AtomicI64 = AtomicI64::new(0);

fn records() -> MutexGuard<'static, Vec<Event>> {
    lock(&RECORDS)
}

/// Gives CUPTI memory to write to.
unsafe extern "C" fn requested(buffer: *mut *mut u8, bytes: *mut usize, most: *mut usize) {
    // SAFETY: CUPTI passes three places to write to. A null buffer makes it drop records.
    unsafe {
        *buffer = alloc(BUFFER);
        *bytes = if (*buffer).is_null() { 0 } else { BUFFER_BYTES };
        *most = 0;
    }
}

/// Takes back memory with records.
unsafe extern "C" fn completed(_: *mut c_void, _: u32, buffer: *mut u8, _: usize, valid: usize) {
    if buffer.is_null() {
        return;
    }
    if let Ok(cupti) = Cupti::get() {
        let mut record: *mut u8 = std::ptr::null_mut();
        let mut found = Vec::new();
        // SAFETY: a buffer of ours with `valid` bytes of records; CUPTI iterates over them and reports when there are
        // no more.
        unsafe {
            while (cupti.next_record)(buffer, valid, &mut record) == 0 && !record.is_null() {
                found.extend(event(cupti, record));
            }
        }
        records().extend(found);
    }
    // SAFETY: from `requested`, of this layout.
    unsafe { dealloc(buffer, BUFFER) };
}

/// # Safety
/// A record of CUPTI's.
unsafe fn event(cupti: &Cupti, record: *const u8) -> Option<Event> {
    // SAFETY, for all fields: the beginnings of records have kept these places since CUDA 11 (`CUpti_ActivityKernel4`
    // to `11`, `CUpti_ActivityMemcpy4` to `6`, `CUpti_ActivityMemset3` and `4`, `CUpti_ActivityAPI`).
    let u8_at = |at: usize| unsafe { record.add(at).read_unaligned() };
    let u16_at = |at: usize| unsafe { record.add(at).cast::<u16>().read_unaligned() };
    let u32_at = |at: usize| unsafe { record.add(at).cast::<u32>().read_unaligned() };
    let u64_at = |at: usize| unsafe { record.add(at).cast::<u64>().read_unaligned() };
    let time = |at: usize| u64_at(at).saturating_add_signed(OFFSET.load(Relaxed));
    let stream =
        |device: usize, stream: usize| Place::Device("cuda", u32_at(device) as usize, u64::from(u32_at(stream)));
    let three = |at: usize| [u32_at(at), u32_at(at + 4), u32_at(at + 8)];
    let (name, category, start, end, place, details) = match u32_at(0) {
        kind::KERNEL => {
            let name = unsafe { record.add(104).cast::<*const c_char>().read_unaligned() };
            let details = Details {
                grid: three(52),
                block: three(64),
                registers: u32::from(u16_at(6)),
                shared: u32_at(76).wrapping_add(u32_at(80)),
                correlation: u64::from(u32_at(92)),
                ..Details::default()
            };
            (demangled(unsafe { text(name) }), Category::Kernel, time(16), time(24), stream(40, 48), details)
        }
        kind::COPY => {
            let memory = |kind: u8| match kind {
                1 => "Pageable",
                2 => "Pinned",
                3 => "Device",
                4 => "Array",
                5 => "Managed",
                _ => "Unknown",
            };
            let direction = match u8_at(4) {
                1 => "HtoD",
                2 => "DtoH",
                8 => "DtoD",
                10 => "PtoP",
                _ => "copy",
            };
            let name = format!("Memcpy {direction} ({} -> {})", memory(u8_at(5)), memory(u8_at(6)));
            let details = Details { bytes: u64_at(8), correlation: u64::from(u32_at(44)), ..Details::default() };
            (name, Category::Copy, time(16), time(24), stream(32, 40), details)
        }
        kind::FILL => {
            let details = Details { bytes: u64_at(8), correlation: u64::from(u32_at(44)), ..Details::default() };
            ("Memset (Device)".to_string(), Category::Fill, time(16), time(24), stream(32, 40), details)
        }
        kind::DRIVER => {
            let mut name = std::ptr::null();
            let known = unsafe { (cupti.callback_name)(DRIVER_DOMAIN, u32_at(4), &mut name) } == 0;
            let name = if known { unsafe { text(name) } } else { String::new() };
            // Of several hundred functions, those that start work, wait for it, or take memory.
            if !["Launch", "Memcpy", "Memset", "Synchronize", "MemAlloc", "MemFree"]
                .iter()
                .any(|part| name.contains(part))
            {
                return None;
            }
            let details = Details { correlation: u64::from(u32_at(32)), ..Details::default() };
            (name, Category::Runtime, time(8), time(16), Place::Thread(u64::from(u32_at(28))), details)
        }
        _ => return None,
    };
    Some(Event { name: name.into(), category, start, end: end.max(start), place, details: Some(Box::new(details)) })
}

/// # Safety
/// Null, or a text that ends in zero.
unsafe fn text(name: *const c_char) -> String {
    if name.is_null() {
        return String::new();
    }
    // SAFETY: the caller's.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// A kernel's plain name. Ours are C functions; of others' mangled names the nested parts are shown, without their
/// arguments.
fn demangled(name: String) -> String {
    let Some(mut rest) = name.strip_prefix("_Z") else { return name };
    rest = rest.strip_prefix('N').unwrap_or(rest);
    rest = rest.trim_start_matches(['K', 'V']);
    let mut parts = Vec::new();
    while let Some(digits) = rest.find(|c: char| !c.is_ascii_digit()).filter(|&d| d > 0) {
        let Some(length) = rest[..digits].parse::<usize>().ok() else { break };
        let Some(part) = rest.get(digits..digits.saturating_add(length)) else { break };
        parts.push(part);
        rest = &rest[digits + length..];
    }
    if parts.is_empty() { name } else { parts.join("::") }
}

/// The profiler's source for NVIDIA's GPUs.
pub static ACTIVITY: Activity = Activity { running: AtomicBool::new(false) };

/// Records by CUPTI, or else by events.
pub struct Activity {
    running: AtomicBool,
}

impl Activity {
    fn try_start(&self) -> Option<()> {
        let cupti = Cupti::get().ok()?;
        let mut now = 0;
        // SAFETY: the callbacks live as long as the process; a number to write to.
        unsafe {
            if let Some(thread_id_type) = cupti.thread_id_type {
                thread_id_type(SYSTEM_THREADS);
            }
            if (cupti.register)(requested, completed) != 0 || (cupti.timestamp)(&mut now) != 0 {
                return None;
            }
        }
        OFFSET.store(clock() as i64 - now as i64, Relaxed);
        records().clear();
        for (i, kind) in kind::ALL.iter().enumerate() {
            // SAFETY: a kind of record.
            if unsafe { (cupti.enable)(*kind) } != 0 {
                for kind in &kind::ALL[..i] {
                    // SAFETY: as above.
                    unsafe { (cupti.disable)(*kind) };
                }
                return None;
            }
        }
        Some(())
    }
}

impl Source for Activity {
    fn start(&self) -> bool {
        let started = self.try_start().is_some();
        self.running.store(started, Relaxed);
        started
    }

    fn stop(&self) -> Vec<Event> {
        if !self.running.swap(false, Relaxed) {
            return EVENTS.stop();
        }
        let Ok(cupti) = Cupti::get() else { return Vec::new() };
        rushlight_gpu::device::timing::synchronize_all();
        // SAFETY: kinds of records that were enabled.
        unsafe {
            (cupti.flush)(FORCED);
            for kind in kind::ALL {
                (cupti.disable)(kind);
            }
        }
        std::mem::take(&mut *records())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_names_are_readable() {
        assert_eq!(demangled("pointwise".into()), "pointwise");
        assert_eq!(demangled("_ZN7cutlass6KernelI5ShapeEEvNT_6ParamsE".into()), "cutlass::Kernel");
        assert_eq!(demangled("_Z99short".into()), "_Z99short");
    }

    /// Records as CUPTI writes them, read field by field.
    #[test]
    fn records_are_read() {
        let Ok(cupti) = Cupti::get() else { return println!("skipped: no CUPTI") };
        let mut record = [0u64; 32];
        let bytes = record.as_mut_ptr().cast::<u8>();
        // SAFETY: within the array.
        unsafe {
            bytes.cast::<u32>().write(kind::COPY);
            bytes.add(4).write(1);
            bytes.add(5).write(1);
            bytes.add(6).write(3);
            bytes.add(8).cast::<u64>().write(4096);
            bytes.add(16).cast::<u64>().write(10);
            bytes.add(24).cast::<u64>().write(30);
            let event = event(cupti, bytes).expect("a copy");
            assert_eq!(event.name, "Memcpy HtoD (Pageable -> Device)");
            assert_eq!((event.duration(), event.details.expect("details").bytes), (20, 4096));
        }
    }
}
