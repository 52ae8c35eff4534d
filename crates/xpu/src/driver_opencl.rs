//! OpenCL implementation of the engine's [`Driver`].
//!
//! Memory is a plain address: unified shared memory if the driver has it (Intel's), else shared virtual memory. Buffer
//! objects, which have no address, are not used.

use crate::driver::{Abilities, Address, Arg, Driver, Kernel, Mark, Program, Queue};
use crate::matmul_xmx::MatrixUnits;
use crate::opencl::{self, Api, Handle, check, failed, info};
use crate::platform::Found;
use rushlight_core::sync::lock;
use rushlight_core::{Error, Result};
use std::ffi::{CString, c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const QUEUE_PROPERTIES: u64 = 0x1093;
const QUEUE_PROFILING: u64 = 2;
const SVM_FINE_GRAIN: u64 = 1 << 10;
const READ_WRITE: u64 = 1;

/// cl_intel_unified_shared_memory.
struct Usm {
    device_alloc: unsafe extern "C" fn(Handle, Handle, *const u64, usize, u32, *mut i32) -> *mut c_void,
    host_alloc: unsafe extern "C" fn(Handle, *const u64, usize, u32, *mut i32) -> *mut c_void,
    free: unsafe extern "C" fn(Handle, *mut c_void) -> i32,
    set_arg: unsafe extern "C" fn(Handle, u32, *const c_void) -> i32,
    copy: unsafe extern "C" fn(Handle, u32, *mut c_void, *const c_void, usize, u32, *const Handle, *mut Handle) -> i32,
}

impl Usm {
    fn open(found: &Found) -> Option<Self> {
        let get = |name: &std::ffi::CStr| {
            // SAFETY: a platform and the name of a function.
            let address = unsafe { (found.platform.api.extension)(found.platform.id, name.as_ptr()) };
            (!address.is_null()).then_some(address)
        };
        // SAFETY: the signatures of the extension.
        unsafe {
            Some(Self {
                device_alloc: std::mem::transmute::<
                    *const c_void,
                    unsafe extern "C" fn(Handle, Handle, *const u64, usize, u32, *mut i32) -> *mut c_void,
                >(get(c"clDeviceMemAllocINTEL")?),
                host_alloc: std::mem::transmute::<
                    *const c_void,
                    unsafe extern "C" fn(Handle, *const u64, usize, u32, *mut i32) -> *mut c_void,
                >(get(c"clHostMemAllocINTEL")?),
                free: std::mem::transmute::<*const c_void, unsafe extern "C" fn(Handle, *mut c_void) -> i32>(get(
                    c"clMemFreeINTEL",
                )?),
                set_arg: std::mem::transmute::<*const c_void, unsafe extern "C" fn(Handle, u32, *const c_void) -> i32>(
                    get(c"clSetKernelArgMemPointerINTEL")?,
                ),
                copy: std::mem::transmute::<
                    *const c_void,
                    unsafe extern "C" fn(
                        Handle,
                        u32,
                        *mut c_void,
                        *const c_void,
                        usize,
                        u32,
                        *const Handle,
                        *mut Handle,
                    ) -> i32,
                >(get(c"clEnqueueMemcpyINTEL")?),
            })
        }
    }
}

/// A started device.
pub struct OpenCl {
    found: Found,
    context: Handle,
    abilities: Abilities,
    usm: Option<Usm>,
    fine_grained: bool,
    max_alloc: usize,
    held: AtomicUsize,
    /// Sizes of allocations, for the limit below: drivers of CPUs allocate more than the machine has.
    sizes: std::sync::Mutex<std::collections::HashMap<u64, usize>>,
    options: CString,
}

// SAFETY: handles of OpenCL, whose calls are safe from any thread; kernels are used under their lock.
unsafe impl Send for OpenCl {}
// SAFETY: as above.
unsafe impl Sync for OpenCl {}

/// Properties of a device, before it is started.
pub fn abilities(found: &Found) -> Abilities {
    let extensions = found.text(info::DEVICE_EXTENSIONS);
    let has = |name: &str| extensions.split_whitespace().any(|e| e == name);
    let (name, driver, version) =
        (found.text(info::DEVICE_NAME), found.text(info::DRIVER_VERSION), found.text(info::DEVICE_VERSION));
    let platform = found.platform;
    let sub_groups = opencl::sizes(platform.api.get_device_info, found.device, info::DEVICE_SUB_GROUP_SIZES_INTEL);
    let is_gpu = found.number(info::DEVICE_TYPE) & opencl::DEVICE_TYPE_GPU != 0;
    let fingerprint =
        [&platform.name, &platform.version, &name, &driver, &version, &extensions].map(String::as_str).join("\n");
    Abilities {
        memory: found.number(info::DEVICE_GLOBAL_MEM_SIZE) as usize,
        compute_units: found.number(info::DEVICE_MAX_COMPUTE_UNITS) as usize,
        // The variable makes a CPU run the GPU variants of kernels, for tests.
        is_cpu: found.number(info::DEVICE_TYPE) & opencl::DEVICE_TYPE_CPU != 0
            && std::env::var_os("RUSHLIGHT_XPU_GPU_FORMS").is_none(),
        f64: found.number(info::DEVICE_DOUBLE_FP_CONFIG) != 0,
        matrix_units: MatrixUnits::of(has, &sub_groups),
        is_intel_gpu: is_gpu && has("cl_intel_required_subgroup_size"),
        name,
        driver,
        fingerprint,
    }
}

impl OpenCl {
    /// Starts a device.
    pub fn start(found: Found) -> Result<Self> {
        let abilities = abilities(&found);
        let api = found.platform.api;
        let usm = if found.text(info::DEVICE_EXTENSIONS).contains("cl_intel_unified_shared_memory") {
            Usm::open(&found)
        } else {
            None
        };
        let svm = found.number(info::DEVICE_SVM_CAPABILITIES);
        if usm.is_none() && svm & 3 == 0 {
            return Err(Error::device(format!(
                "{} ({}) has neither unified shared memory nor shared virtual memory, and tensors need addresses; a newer driver may have one",
                abilities.name, found.platform.version
            )));
        }
        let mut status = 0;
        // SAFETY: one device; nobody is called back.
        let context = unsafe {
            (api.create_context)(
                std::ptr::null(),
                1,
                &found.device,
                std::ptr::null(),
                std::ptr::null_mut(),
                &mut status,
            )
        };
        check("clCreateContext", status)?;
        // Without -cl-mad-enable and similar options: results equal the CPU engine's except for the last bits of
        // functions.
        let mut options = String::from("-cl-std=CL1.2 -w");
        const CORRECTLY_ROUNDED: u64 = 1 << 7;
        if found.number(info::DEVICE_SINGLE_FP_CONFIG) & CORRECTLY_ROUNDED != 0 {
            options += " -cl-fp32-correctly-rounded-divide-sqrt";
        }
        if abilities.is_intel_gpu {
            options += " -cl-intel-greater-than-4GB-buffer-required";
        }
        Ok(Self {
            max_alloc: found.number(info::DEVICE_MAX_MEM_ALLOC_SIZE) as usize,
            fine_grained: svm & 2 != 0,
            options: CString::new(options).unwrap_or_default(),
            held: AtomicUsize::new(0),
            sizes: Default::default(),
            usm,
            found,
            context,
            abilities,
        })
    }

    fn api(&self) -> &'static Api {
        self.found.platform.api
    }

    fn finish_build(&self, program: Handle) -> Result<Program> {
        // SAFETY: our program and device; the options end with a zero.
        let status = unsafe {
            (self.api().build_program)(
                program,
                1,
                &self.found.device,
                self.options.as_ptr(),
                std::ptr::null(),
                std::ptr::null_mut(),
            )
        };
        if status == opencl::SUCCESS {
            return Ok(Program(program as usize));
        }
        let log = self.log(program);
        // SAFETY: nobody else knows it.
        unsafe { (self.api().release_program)(program) };
        Err(Error::device(format!(
            "{} ({}) could not compile a kernel: {status}\n{log}",
            self.abilities.name, self.abilities.driver
        )))
    }

    fn log(&self, program: Handle) -> String {
        let mut size = 0;
        let ask = self.api().get_program_build_info;
        let (device, what) = (self.found.device, info::PROGRAM_BUILD_LOG);
        // SAFETY: only the size is written, then as many bytes.
        unsafe {
            if ask(program, device, what, 0, std::ptr::null_mut(), &mut size) != opencl::SUCCESS {
                return String::new();
            }
            let mut bytes = vec![0u8; size];
            ask(program, device, what, size, bytes.as_mut_ptr().cast(), std::ptr::null_mut());
            String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_string()
        }
    }
}

impl Driver for OpenCl {
    fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    fn alloc(&self, bytes: usize) -> Result<Option<Address>> {
        // A CPU's driver would allocate memory that the machine does not have; a GPU's reports an error itself.
        if self.abilities.is_cpu && self.held.load(Relaxed).saturating_add(bytes) > self.abilities.memory {
            return Ok(None);
        }
        let address = match &self.usm {
            Some(usm) => {
                const MEM_FLAGS: u64 = 0x1101;
                const UNRESTRICTED: u64 = 1 << 23;
                let large = [MEM_FLAGS, UNRESTRICTED, 0];
                let properties = if bytes > self.max_alloc { large.as_ptr() } else { std::ptr::null() };
                let mut status = 0;
                // SAFETY: our context and device; the list of properties ends with zero.
                unsafe { (usm.device_alloc)(self.context, self.found.device, properties, bytes, 128, &mut status) }
            }
            None => {
                let flags = READ_WRITE | if self.fine_grained { SVM_FINE_GRAIN } else { 0 };
                // SAFETY: our context.
                unsafe { (self.api().svm_alloc)(self.context, flags, bytes, 128) }
            }
        };
        if address.is_null() {
            return Ok(None);
        }
        self.held.fetch_add(bytes, Relaxed);
        lock(&self.sizes).insert(address as u64, bytes);
        Ok(Some(address as u64))
    }

    unsafe fn free(&self, address: Address) {
        if let Some(bytes) = lock(&self.sizes).remove(&address) {
            self.held.fetch_sub(bytes, Relaxed);
        }
        // SAFETY: the caller's promise.
        unsafe {
            match &self.usm {
                Some(usm) => _ = (usm.free)(self.context, address as *mut c_void),
                None => (self.api().svm_free)(self.context, address as *mut c_void),
            }
        }
    }

    fn host_alloc(&self, bytes: usize) -> Result<Option<Address>> {
        let address = match &self.usm {
            Some(usm) => {
                let mut status = 0;
                // SAFETY: our context; no properties.
                unsafe { (usm.host_alloc)(self.context, std::ptr::null(), bytes, 128, &mut status) }
            }
            // SAFETY: our context.
            None if self.fine_grained => unsafe {
                (self.api().svm_alloc)(self.context, READ_WRITE | SVM_FINE_GRAIN, bytes, 128)
            },
            None => {
                return Err(Error::unsupported(format!(
                    "pin_memory: {} ({}) has no memory that the host and the device share; use tensors that are not pinned",
                    self.abilities.name, self.abilities.driver
                )));
            }
        };
        Ok((!address.is_null()).then_some(address as u64))
    }

    unsafe fn host_free(&self, address: Address) {
        // SAFETY: the caller's promise.
        unsafe {
            match &self.usm {
                Some(usm) => _ = (usm.free)(self.context, address as *mut c_void),
                None => (self.api().svm_free)(self.context, address as *mut c_void),
            }
        }
    }

    unsafe fn copy(&self, queue: Queue, to: u64, from: u64, bytes: usize, wait: bool) -> Result<()> {
        let (queue, to, from) = (queue.0 as Handle, to as *mut c_void, from as *const c_void);
        let none = std::ptr::null();
        // SAFETY: the caller's promise.
        let status = unsafe {
            match &self.usm {
                Some(usm) => (usm.copy)(queue, wait as u32, to, from, bytes, 0, none, std::ptr::null_mut()),
                None => (self.api().svm_copy)(queue, wait as u32, to, from, bytes, 0, none, std::ptr::null_mut()),
            }
        };
        check("a copy of memory", status)
    }

    fn build(&self, source: &str) -> Result<Program> {
        let (text, length, mut status) = (source.as_ptr().cast::<c_char>(), source.len(), 0);
        // SAFETY: one text with its length.
        let program = unsafe { (self.api().create_program_with_source)(self.context, 1, &text, &length, &mut status) };
        check("clCreateProgramWithSource", status)?;
        self.finish_build(program)
    }

    fn image(&self, program: Program) -> Option<Vec<u8>> {
        // PoCL keeps what it compiles itself, by the work group's size; for an image it would compile another form, for
        // any size.
        if self.found.platform.name == "Portable Computing Language" {
            return None;
        }
        let (program, ask) = (program.0 as Handle, self.api().get_program_info);
        let size = opencl::number(ask, program, info::PROGRAM_BINARY_SIZES) as usize;
        if size == 0 {
            return None;
        }
        let mut bytes = vec![0u8; size];
        let mut place = bytes.as_mut_ptr();
        let room = size_of::<*mut u8>();
        // SAFETY: an array of one address, with room for the binary of our one device.
        let status =
            unsafe { ask(program, info::PROGRAM_BINARIES, room, (&raw mut place).cast(), std::ptr::null_mut()) };
        (status == opencl::SUCCESS).then_some(bytes)
    }

    fn load(&self, image: &[u8]) -> Result<Program> {
        let (length, bytes) = (image.len(), image.as_ptr());
        let (mut own, mut status) = (0, 0);
        // SAFETY: one image with its length, for our one device.
        let program = unsafe {
            (self.api().create_program_with_binary)(
                self.context,
                1,
                &self.found.device,
                &length,
                &bytes,
                &mut own,
                &mut status,
            )
        };
        check("clCreateProgramWithBinary", status)?;
        check("clCreateProgramWithBinary", own)?;
        self.finish_build(program)
    }

    fn kernel(&self, program: Program, name: &str) -> Result<Kernel> {
        let text = CString::new(name).map_err(|_| Error::value("a kernel's name has no zero byte"))?;
        let mut status = 0;
        // SAFETY: our program and a text that ends with zero.
        let kernel = unsafe { (self.api().create_kernel)(program.0 as Handle, text.as_ptr(), &mut status) };
        check(&format!("clCreateKernel({name})"), status)?;
        Ok(Kernel { handle: kernel as usize, lock: Default::default() })
    }

    unsafe fn launch(
        &self,
        queue: Queue,
        kernel: &Kernel,
        groups: [usize; 3],
        items: [usize; 3],
        args: &[Arg],
    ) -> Result<()> {
        let api = self.api();
        let handle = kernel.handle as Handle;
        let _turn = lock(&kernel.lock);
        for (i, arg) in args.iter().enumerate() {
            // SAFETY: the caller's promise about the kernel's arguments.
            let status = unsafe {
                match (arg, &self.usm) {
                    (Arg::Memory(address), Some(usm)) => (usm.set_arg)(handle, i as u32, *address as *const c_void),
                    (Arg::Memory(address), None) => {
                        (api.set_kernel_arg_svm)(handle, i as u32, *address as *const c_void)
                    }
                    (Arg::Value(bytes), _) => {
                        (api.set_kernel_arg)(handle, i as u32, bytes.len(), bytes.as_ptr().cast())
                    }
                }
            };
            if status != opencl::SUCCESS {
                return Err(failed(&format!("argument {i} of a kernel"), status));
            }
        }
        let global: [usize; 3] = std::array::from_fn(|d| groups[d] * items[d]);
        // SAFETY: the caller's promise about the kernel's accesses; three dimensions each.
        let status = unsafe {
            (api.enqueue_kernel)(
                queue.0 as Handle,
                handle,
                3,
                std::ptr::null(),
                global.as_ptr(),
                items.as_ptr(),
                0,
                std::ptr::null(),
                std::ptr::null_mut(),
            )
        };
        check("clEnqueueNDRangeKernel", status)
    }

    fn create_queue(&self) -> Result<Queue> {
        let properties = [QUEUE_PROPERTIES, QUEUE_PROFILING, 0];
        let mut status = 0;
        // SAFETY: our context and device; the list of properties ends with zero.
        let queue =
            unsafe { (self.api().create_queue)(self.context, self.found.device, properties.as_ptr(), &mut status) };
        check("clCreateCommandQueueWithProperties", status)?;
        Ok(Queue(queue as usize))
    }

    unsafe fn release_queue(&self, queue: Queue) {
        // SAFETY: the caller's promise.
        unsafe { (self.api().release_queue)(queue.0 as Handle) };
    }

    fn flush(&self, queue: Queue) -> Result<()> {
        // SAFETY: a queue of ours.
        check("clFlush", unsafe { (self.api().flush)(queue.0 as Handle) })
    }

    fn finish(&self, queue: Queue) -> Result<()> {
        // SAFETY: a queue of ours.
        check("clFinish", unsafe { (self.api().finish)(queue.0 as Handle) })
    }

    fn mark(&self, queue: Queue) -> Result<Mark> {
        let mut event = std::ptr::null_mut();
        // SAFETY: a queue of ours.
        let status = unsafe { (self.api().enqueue_marker)(queue.0 as Handle, 0, std::ptr::null(), &mut event) };
        check("clEnqueueMarkerWithWaitList", status)?;
        self.flush(queue)?;
        Ok(Mark(event as usize))
    }

    fn wait_for(&self, queue: Queue, mark: &Mark) -> Result<()> {
        let event = mark.0 as Handle;
        // SAFETY: a queue and an event of ours.
        let status = unsafe { (self.api().enqueue_barrier)(queue.0 as Handle, 1, &event, std::ptr::null_mut()) };
        check("clEnqueueBarrierWithWaitList", status)
    }

    fn passed(&self, mark: &Mark) -> Result<bool> {
        let mut status = 0i32;
        // SAFETY: an event of ours; four bytes are written.
        let result = unsafe {
            (self.api().get_event_info)(
                mark.0 as Handle,
                info::EVENT_COMMAND_EXECUTION_STATUS,
                4,
                (&raw mut status).cast(),
                std::ptr::null_mut(),
            )
        };
        check("clGetEventInfo", result)?;
        if status < 0 { Err(failed("work on the device", status)) } else { Ok(status == 0) }
    }

    fn wait(&self, mark: &Mark) -> Result<()> {
        let event = mark.0 as Handle;
        // SAFETY: an event of ours.
        check("clWaitForEvents", unsafe { (self.api().wait_for_events)(1, &event) })
    }

    fn time(&self, mark: &Mark) -> Result<u64> {
        let mut time = 0u64;
        // SAFETY: an event of ours; eight bytes are written.
        let status = unsafe {
            (self.api().get_event_profiling_info)(
                mark.0 as Handle,
                info::PROFILING_COMMAND_END,
                8,
                (&raw mut time).cast(),
                std::ptr::null_mut(),
            )
        };
        check("clGetEventProfilingInfo", status)?;
        Ok(time)
    }

    fn release_mark(&self, mark: &Mark) {
        // SAFETY: an event of ours, once.
        unsafe { (self.api().release_event)(mark.0 as Handle) };
    }
}
