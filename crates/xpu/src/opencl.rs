//! OpenCL's functions, opened at run time: through the system's loader `libOpenCL.so.1`, or directly from a vendor's
//! driver.

use libloading::Library;
use rushlight_core::{Error, Result};
use std::ffi::{CStr, c_char, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A platform, device, context, queue, program, kernel or event.
pub type Handle = *mut c_void;

pub const SUCCESS: i32 = 0;

pub const DEVICE_TYPE_CPU: u64 = 1 << 1;
pub const DEVICE_TYPE_GPU: u64 = 1 << 2;
pub const DEVICE_TYPE_ALL: u64 = 0xFFFF_FFFF;

/// Constants of the queried parameters.
pub mod info {
    pub const PLATFORM_NAME: u32 = 0x0902;
    pub const PLATFORM_VENDOR: u32 = 0x0903;
    pub const PLATFORM_VERSION: u32 = 0x0901;
    pub const DEVICE_TYPE: u32 = 0x1000;
    pub const DEVICE_VENDOR_ID: u32 = 0x1001;
    pub const DEVICE_MAX_COMPUTE_UNITS: u32 = 0x1002;
    pub const DEVICE_MAX_MEM_ALLOC_SIZE: u32 = 0x1010;
    pub const DEVICE_SINGLE_FP_CONFIG: u32 = 0x101B;
    pub const DEVICE_GLOBAL_MEM_SIZE: u32 = 0x101F;
    pub const DEVICE_AVAILABLE: u32 = 0x1027;
    pub const DEVICE_NAME: u32 = 0x102B;
    pub const DRIVER_VERSION: u32 = 0x102D;
    pub const DEVICE_VERSION: u32 = 0x102F;
    pub const DEVICE_EXTENSIONS: u32 = 0x1030;
    pub const DEVICE_DOUBLE_FP_CONFIG: u32 = 0x1032;
    pub const DEVICE_PARTITION_MAX_SUB_DEVICES: u32 = 0x1043;
    pub const DEVICE_PARTITION_AFFINITY_DOMAIN: u32 = 0x1045;
    pub const DEVICE_SVM_CAPABILITIES: u32 = 0x1053;
    pub const DEVICE_SUB_GROUP_SIZES_INTEL: u32 = 0x4108;
    pub const PROGRAM_BINARY_SIZES: u32 = 0x1165;
    pub const PROGRAM_BINARIES: u32 = 0x1166;
    pub const PROGRAM_BUILD_LOG: u32 = 0x1183;
    pub const EVENT_COMMAND_EXECUTION_STATUS: u32 = 0x11D3;
    pub const PROFILING_COMMAND_END: u32 = 0x1283;
}

type Info = unsafe extern "C" fn(Handle, u32, usize, *mut c_void, *mut usize) -> i32;

/// Declares the table of functions: each with its index in the dispatch table at the start of a driver's objects.
macro_rules! functions {
    ($($name:ident = $symbol:literal at $place:literal: fn($($arg:ty),* $(,)?) -> $ret:ty;)*) => {
        /// OpenCL's functions of one platform.
        pub struct Api {
            $(pub $name: unsafe extern "C" fn($($arg),*) -> $ret,)*
        }

        impl Api {
            /// By name, from the system's loader.
            fn by_name(library: &Library) -> std::result::Result<Self, libloading::Error> {
                // SAFETY: the signatures are those of the OpenCL specification.
                unsafe {
                    Ok(Self { $($name: *library.get::<unsafe extern "C" fn($($arg),*) -> $ret>($symbol.as_bytes())?,)* })
                }
            }

            /// From the dispatch table of a driver's platform.
            ///
            /// # Safety
            /// `platform` came from the driver's `clIcdGetPlatformIDsKHR`, and the driver is of OpenCL 2.0 or later.
            unsafe fn by_place(platform: Handle) -> Option<Self> {
                // SAFETY: cl_khr_icd: an object begins with the address of the table.
                unsafe {
                    let table = *platform.cast::<*const *const c_void>();
                    $(if (*table.add($place)).is_null() { return None; })*
                    Some(Self {
                        $($name: std::mem::transmute::<*const c_void, unsafe extern "C" fn($($arg),*) -> $ret>(*table.add($place)),)*
                    })
                }
            }
        }
    };
}

functions! {
    get_platform_ids = "clGetPlatformIDs" at 0: fn(u32, *mut Handle, *mut u32) -> i32;
    get_platform_info = "clGetPlatformInfo" at 1: fn(Handle, u32, usize, *mut c_void, *mut usize) -> i32;
    get_device_ids = "clGetDeviceIDs" at 2: fn(Handle, u64, u32, *mut Handle, *mut u32) -> i32;
    get_device_info = "clGetDeviceInfo" at 3: fn(Handle, u32, usize, *mut c_void, *mut usize) -> i32;
    create_context = "clCreateContext" at 4: fn(*const isize, u32, *const Handle, *const c_void, *mut c_void, *mut i32) -> Handle;
    release_queue = "clReleaseCommandQueue" at 11: fn(Handle) -> i32;
    create_program_with_source = "clCreateProgramWithSource" at 26: fn(Handle, u32, *const *const c_char, *const usize, *mut i32) -> Handle;
    create_program_with_binary = "clCreateProgramWithBinary" at 27: fn(Handle, u32, *const Handle, *const usize, *const *const u8, *mut i32, *mut i32) -> Handle;
    release_program = "clReleaseProgram" at 29: fn(Handle) -> i32;
    build_program = "clBuildProgram" at 30: fn(Handle, u32, *const Handle, *const c_char, *const c_void, *mut c_void) -> i32;
    get_program_info = "clGetProgramInfo" at 32: fn(Handle, u32, usize, *mut c_void, *mut usize) -> i32;
    get_program_build_info = "clGetProgramBuildInfo" at 33: fn(Handle, Handle, u32, usize, *mut c_void, *mut usize) -> i32;
    create_kernel = "clCreateKernel" at 34: fn(Handle, *const c_char, *mut i32) -> Handle;
    set_kernel_arg = "clSetKernelArg" at 38: fn(Handle, u32, usize, *const c_void) -> i32;
    wait_for_events = "clWaitForEvents" at 41: fn(u32, *const Handle) -> i32;
    get_event_info = "clGetEventInfo" at 42: fn(Handle, u32, usize, *mut c_void, *mut usize) -> i32;
    release_event = "clReleaseEvent" at 44: fn(Handle) -> i32;
    get_event_profiling_info = "clGetEventProfilingInfo" at 45: fn(Handle, u32, usize, *mut c_void, *mut usize) -> i32;
    flush = "clFlush" at 46: fn(Handle) -> i32;
    finish = "clFinish" at 47: fn(Handle) -> i32;
    enqueue_kernel = "clEnqueueNDRangeKernel" at 59: fn(Handle, Handle, u32, *const usize, *const usize, *const usize, u32, *const Handle, *mut Handle) -> i32;
    create_sub_devices = "clCreateSubDevices" at 93: fn(Handle, *const isize, u32, *mut Handle, *mut u32) -> i32;
    enqueue_marker = "clEnqueueMarkerWithWaitList" at 105: fn(Handle, u32, *const Handle, *mut Handle) -> i32;
    enqueue_barrier = "clEnqueueBarrierWithWaitList" at 106: fn(Handle, u32, *const Handle, *mut Handle) -> i32;
    extension = "clGetExtensionFunctionAddressForPlatform" at 107: fn(Handle, *const c_char) -> *const c_void;
    create_queue = "clCreateCommandQueueWithProperties" at 123: fn(Handle, Handle, *const u64, *mut i32) -> Handle;
    svm_alloc = "clSVMAlloc" at 126: fn(Handle, u64, usize, u32) -> *mut c_void;
    svm_free = "clSVMFree" at 127: fn(Handle, *mut c_void) -> ();
    svm_copy = "clEnqueueSVMMemcpy" at 129: fn(Handle, u32, *mut c_void, *const c_void, usize, u32, *const Handle, *mut Handle) -> i32;
    set_kernel_arg_svm = "clSetKernelArgSVMPointer" at 134: fn(Handle, u32, *const c_void) -> i32;
}

/// A platform of this machine: a driver's entry.
pub struct Platform {
    pub api: &'static Api,
    pub id: Handle,
    /// The library it came from.
    pub path: String,
    pub name: String,
    pub vendor: String,
    pub version: String,
}

// SAFETY: a handle of OpenCL, whose calls are safe from any thread (but `clSetKernelArg` on one kernel, see `driver`).
unsafe impl Send for Platform {}
// SAFETY: as above.
unsafe impl Sync for Platform {}

/// The variable that names drivers, or directories of them, to open in addition to those of the system's loader.
pub const PATH: &str = "RUSHLIGHT_OPENCL_PATH";

/// Names of drivers in a directory of [`PATH`].
const DRIVERS: [&str; 4] = ["libigdrcl.so", "libintelocl.so", "libpocl.so.2", "libpocl.so"];

/// The platforms of this machine. The error says what to do.
pub fn platforms() -> Result<&'static [Platform]> {
    static FOUND: OnceLock<Result<Vec<Platform>>> = OnceLock::new();
    FOUND.get_or_init(find).as_deref().map_err(Clone::clone)
}

fn find() -> Result<Vec<Platform>> {
    let mut found = Vec::new();
    let mut tried = Vec::new();
    for path in named_drivers() {
        match open_driver(&path) {
            Ok(platforms) => found.extend(platforms),
            Err(why) => tried.push(format!("{}: {why}", path.display())),
        }
    }
    match open_loader() {
        Ok(platforms) => found.extend(platforms),
        Err(why) => {
            tried.push(format!("libOpenCL.so.1: {why}"));
            // Without a loader, reads the files that it would have read.
            for path in registered_drivers(Path::new("/etc/OpenCL/vendors")) {
                match open_driver(&path) {
                    Ok(platforms) => found.extend(platforms),
                    Err(why) => tried.push(format!("{}: {why}", path.display())),
                }
            }
        }
    }
    // A driver may be both named and registered.
    let mut seen = std::collections::HashSet::new();
    found.retain(|p| seen.insert((p.name.clone(), p.version.clone())));
    if found.is_empty() {
        if tried.is_empty() {
            tried.push("libOpenCL.so.1, which knows no driver".into());
        }
        let remedy = format!(
            "Install the one for Intel GPUs (Debian: intel-opencl-icd; it brings libOpenCL.so.1), or name its directory in {PATH}."
        );
        return Err(rushlight_gpu::vendor::library::not_found("An OpenCL driver", "", &remedy, tried));
    }
    Ok(found)
}

/// The libraries that [`PATH`] names: files, or the known drivers in directories.
fn named_drivers() -> Vec<PathBuf> {
    let Some(paths) = std::env::var_os(PATH) else { return Vec::new() };
    let mut found = Vec::new();
    for path in std::env::split_paths(&paths).filter(|p| !p.as_os_str().is_empty()) {
        if path.is_dir() {
            found.extend(DRIVERS.iter().map(|name| path.join(name)).filter(|p| p.exists()));
        } else {
            found.push(path);
        }
    }
    found
}

/// The libraries that files `*.icd` of a directory name.
fn registered_drivers(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    files
        .iter()
        .filter(|file| file.extension().is_some_and(|e| e == "icd"))
        .filter_map(|file| std::fs::read_to_string(file).ok())
        .filter_map(|text| text.lines().next().map(|line| PathBuf::from(line.trim())))
        .filter(|path| !path.as_os_str().is_empty())
        .collect()
}

fn open_loader() -> std::result::Result<Vec<Platform>, String> {
    // SAFETY: the system's OpenCL loader, whose initialisers ask nothing of us.
    let library = unsafe { Library::new("libOpenCL.so.1") }.map_err(|e| e.to_string())?;
    let api = Api::by_name(&library).map_err(|e| e.to_string())?;
    // Drivers start threads that outlive any handle: neither loader nor drivers are ever closed.
    std::mem::forget(library);
    let api: &'static Api = Box::leak(Box::new(api));
    let ids = listed(|n, ids, count| {
        // SAFETY: room for `n` handles.
        unsafe { (api.get_platform_ids)(n, ids, count) }
    });
    Ok(ids.into_iter().map(|id| Platform::new(api, id, "libOpenCL.so.1".to_string())).collect())
}

fn open_driver(path: &Path) -> std::result::Result<Vec<Platform>, String> {
    type Extension = unsafe extern "C" fn(*const c_char) -> *const c_void;
    type PlatformIds = unsafe extern "C" fn(u32, *mut Handle, *mut u32) -> i32;
    // SAFETY: a driver that the user or the system's registry names.
    let library = unsafe { Library::new(path) }.map_err(|e| e.to_string())?;
    let name = c"clIcdGetPlatformIDsKHR";
    // SAFETY: the entry points that cl_khr_icd asks of every driver.
    let enumerate: PlatformIds = unsafe {
        match library.get::<PlatformIds>(name.to_bytes()) {
            Ok(symbol) => *symbol,
            Err(_) => {
                let extension =
                    library.get::<Extension>(b"clGetExtensionFunctionAddress").map_err(|e| e.to_string())?;
                let address = extension(name.as_ptr());
                if address.is_null() {
                    return Err("it has no clIcdGetPlatformIDsKHR".to_string());
                }
                std::mem::transmute::<*const c_void, PlatformIds>(address)
            }
        }
    };
    std::mem::forget(library);
    let ids = listed(|n, ids, count| {
        // SAFETY: room for `n` handles.
        unsafe { enumerate(n, ids, count) }
    });
    let mut found = Vec::new();
    for id in ids {
        // SAFETY: just enumerated.
        let api = unsafe { Api::by_place(id) }.ok_or("it is older than OpenCL 2.0")?;
        found.push(Platform::new(Box::leak(Box::new(api)), id, path.display().to_string()));
    }
    Ok(found)
}

/// All handles of a call that fills an array and returns their number; none if it fails.
pub fn listed(call: impl Fn(u32, *mut Handle, *mut u32) -> i32) -> Vec<Handle> {
    let mut count = 0;
    if call(0, std::ptr::null_mut(), &mut count) != SUCCESS || count == 0 {
        return Vec::new();
    }
    let mut handles = vec![std::ptr::null_mut(); count as usize];
    if call(count, handles.as_mut_ptr(), &mut count) != SUCCESS {
        return Vec::new();
    }
    handles
}

impl Platform {
    fn new(api: &'static Api, id: Handle, path: String) -> Self {
        let text = |what| text(api.get_platform_info, id, what);
        let (name, vendor, version) =
            (text(info::PLATFORM_NAME), text(info::PLATFORM_VENDOR), text(info::PLATFORM_VERSION));
        Self { api, id, path, name, vendor, version }
    }
}

/// A string property of an object; empty if it has none.
pub fn text(ask: Info, object: Handle, what: u32) -> String {
    let mut size = 0;
    // SAFETY: only the size is written.
    if unsafe { ask(object, what, 0, std::ptr::null_mut(), &mut size) } != SUCCESS {
        return String::new();
    }
    let mut bytes = vec![0u8; size];
    // SAFETY: room for `size` bytes.
    if unsafe { ask(object, what, size, bytes.as_mut_ptr().cast(), std::ptr::null_mut()) } != SUCCESS {
        return String::new();
    }
    CStr::from_bytes_until_nul(&bytes).map_or(String::new(), |text| text.to_string_lossy().trim().to_string())
}

/// A numeric property of an object, of up to eight bytes; zero if it has none.
pub fn number(ask: Info, object: Handle, what: u32) -> u64 {
    let mut value = [0u8; 8];
    // SAFETY: room for eight bytes, the size of the largest queried number.
    let status = unsafe { ask(object, what, value.len(), value.as_mut_ptr().cast(), std::ptr::null_mut()) };
    if status == SUCCESS { u64::from_le_bytes(value) } else { 0 }
}

/// A list property of sizes, empty if the object has none.
pub fn sizes(ask: Info, object: Handle, what: u32) -> Vec<usize> {
    let mut bytes = 0;
    // SAFETY: only the size is written.
    let status = unsafe { ask(object, what, 0, std::ptr::null_mut(), &mut bytes) };
    if status != SUCCESS {
        return Vec::new();
    }
    let mut list = vec![0usize; bytes / size_of::<usize>()];
    let room = list.len() * size_of::<usize>();
    // SAFETY: room for as many bytes.
    let status = unsafe { ask(object, what, room, list.as_mut_ptr().cast(), std::ptr::null_mut()) };
    if status == SUCCESS { list } else { Vec::new() }
}

/// An error of a call.
#[cold]
pub fn failed(call: &str, status: i32) -> Error {
    let name = match status {
        -2 => "CL_DEVICE_NOT_AVAILABLE",
        -4 => "CL_MEM_OBJECT_ALLOCATION_FAILURE",
        -5 => "CL_OUT_OF_RESOURCES",
        -6 => "CL_OUT_OF_HOST_MEMORY",
        -11 => "CL_BUILD_PROGRAM_FAILURE",
        -14 => "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
        -30 => "CL_INVALID_VALUE",
        -36 => "CL_INVALID_COMMAND_QUEUE",
        -42 => "CL_INVALID_BINARY",
        -45 => "CL_INVALID_PROGRAM_EXECUTABLE",
        -46 => "CL_INVALID_KERNEL_NAME",
        -48 => "CL_INVALID_KERNEL",
        -49 => "CL_INVALID_ARG_INDEX",
        -50 => "CL_INVALID_ARG_VALUE",
        -51 => "CL_INVALID_ARG_SIZE",
        -52 => "CL_INVALID_KERNEL_ARGS",
        -54 => "CL_INVALID_WORK_GROUP_SIZE",
        -55 => "CL_INVALID_WORK_ITEM_SIZE",
        -61 => "CL_INVALID_BUFFER_SIZE",
        _ => "an OpenCL error",
    };
    let message = format!("{call} failed: {name} ({status})");
    if matches!(status, -6..=-4 | -61) { Error::out_of_memory(message) } else { Error::device(message) }
}

/// `Ok` if a call succeeded.
pub fn check(call: &str, status: i32) -> Result<()> {
    if status == SUCCESS { Ok(()) } else { Err(failed(call, status)) }
}
