//! MPI's binary interfaces: values of its constants in each family, and the functions called.
//!
//! Libraries differ in the type of a handle: MPICH and its relatives use 32-bit integers, Open MPI pointers to objects
//! that it exports, the standard interface of MPI 5 pointers with small fixed values. A handle is passed here as a
//! word, which works for all of them: integers use its lower half, and MPI writes into
//! zeroed words.

use libloading::os::unix::Library;
use std::ffi::{CStr, c_char, c_int, c_void};

/// A communicator, datatype, operation, group, request or error handler.
pub(super) type Handle = usize;
/// A function that combines elements: inputs, inputs and results, their number, their type.
pub(super) type Combine = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut Handle);
/// Large enough for every family's `MPI_Status`.
pub(super) type Status = [u64; 16];

/// Which binary interface a library has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// MPICH, Intel MPI, Cray MPICH, MVAPICH.
    Mpich,
    OpenMpi,
    /// The standard ABI of MPI 5, of any vendor.
    Standard,
}

/// Values of MPI's constants in one family.
pub(super) struct Constants {
    pub(super) comm_world: Handle,
    pub(super) comm_null: Handle,
    pub(super) errors_return: Handle,
    pub(super) in_place: *mut c_void,
    pub(super) thread_multiple: c_int,
    pub(super) tag_upper_bound: c_int,
    pub(super) byte: Handle,
    pub(super) int16: Handle,
    pub(super) int32: Handle,
    pub(super) int64: Handle,
    pub(super) float: Handle,
    pub(super) double: Handle,
    pub(super) sum: Handle,
    pub(super) max: Handle,
}

// SAFETY: numbers and addresses that nobody writes to.
unsafe impl Send for Constants {}
// SAFETY: as above.
unsafe impl Sync for Constants {}

impl Constants {
    /// An error names the symbol that is missing.
    pub(super) fn new(family: Family, library: &Library) -> Result<Self, String> {
        let object = |name: &str| {
            // SAFETY: only the address is taken.
            unsafe { library.get::<*mut c_void>(name.as_bytes()) }
                .map(|symbol| symbol.into_raw() as usize)
                .map_err(|_| format!("it has no symbol {name}"))
        };
        Ok(match family {
            Family::Mpich => Self {
                comm_world: 0x4400_0000,
                comm_null: 0x0400_0000,
                errors_return: 0x5400_0001,
                in_place: std::ptr::without_provenance_mut(usize::MAX),
                thread_multiple: 3,
                tag_upper_bound: 0x6440_0001,
                byte: 0x4c00_010d,
                int16: 0x4c00_0238,
                int32: 0x4c00_0439,
                int64: 0x4c00_083a,
                float: 0x4c00_040a,
                double: 0x4c00_080b,
                sum: 0x5800_0003,
                max: 0x5800_0001,
            },
            Family::OpenMpi => Self {
                comm_world: object("ompi_mpi_comm_world")?,
                comm_null: object("ompi_mpi_comm_null")?,
                errors_return: object("ompi_mpi_errors_return")?,
                in_place: std::ptr::without_provenance_mut(1),
                thread_multiple: 3,
                tag_upper_bound: 0,
                byte: object("ompi_mpi_byte")?,
                int16: object("ompi_mpi_int16_t")?,
                int32: object("ompi_mpi_int32_t")?,
                int64: object("ompi_mpi_int64_t")?,
                float: object("ompi_mpi_float")?,
                double: object("ompi_mpi_double")?,
                sum: object("ompi_mpi_op_sum")?,
                max: object("ompi_mpi_op_max")?,
            },
            Family::Standard => Self {
                comm_world: 0x101,
                comm_null: 0x100,
                errors_return: 0x143,
                in_place: std::ptr::without_provenance_mut(1),
                thread_multiple: 4096,
                tag_upper_bound: 501,
                byte: 0x247,
                int16: 0x248,
                int32: 0x250,
                int64: 0x258,
                float: 0x210,
                double: 0x214,
                sum: 0x21,
                max: 0x23,
            },
        })
    }
}

macro_rules! functions {
    ($($(#[$doc:meta])* $field:ident = $name:literal ($($argument:ty),* $(,)?);)*) => {
        /// The functions called, by address.
        pub(super) struct Functions {
            $($(#[$doc])* pub(super) $field: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl Functions {
            /// An error names the function that is missing.
            pub(super) fn load(library: &Library) -> Result<Self, String> {
                Ok(Self {
                    $($field: {
                        // SAFETY: the type is the function's in all families, with handles as words.
                        let symbol = unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) -> c_int>($name.as_bytes())
                        };
                        *symbol.map_err(|_| format!("it has no function {}", $name))?
                    },)*
                })
            }
        }
    };
}

functions! {
    initialized = "MPI_Initialized"(*mut c_int);
    finalized = "MPI_Finalized"(*mut c_int);
    init_thread = "MPI_Init_thread"(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    query_thread = "MPI_Query_thread"(*mut c_int);
    finalize = "MPI_Finalize"();
    library_version = "MPI_Get_library_version"(*mut c_char, *mut c_int);
    error_string = "MPI_Error_string"(c_int, *mut c_char, *mut c_int);
    comm_rank = "MPI_Comm_rank"(Handle, *mut c_int);
    comm_size = "MPI_Comm_size"(Handle, *mut c_int);
    comm_split = "MPI_Comm_split"(Handle, c_int, c_int, *mut Handle);
    comm_group = "MPI_Comm_group"(Handle, *mut Handle);
    comm_create_group = "MPI_Comm_create_group"(Handle, Handle, c_int, *mut Handle);
    comm_free = "MPI_Comm_free"(*mut Handle);
    comm_set_errhandler = "MPI_Comm_set_errhandler"(Handle, Handle);
    comm_get_attr = "MPI_Comm_get_attr"(Handle, c_int, *mut c_void, *mut c_int);
    group_incl = "MPI_Group_incl"(Handle, c_int, *const c_int, *mut Handle);
    group_free = "MPI_Group_free"(*mut Handle);
    op_create = "MPI_Op_create"(Combine, c_int, *mut Handle);
    test = "MPI_Test"(*mut Handle, *mut c_int, *mut Status);
    get_count = "MPI_Get_count"(*const Status, Handle, *mut c_int);
    isend = "MPI_Isend"(*const c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    iprobe = "MPI_Iprobe"(c_int, c_int, Handle, *mut c_int, *mut Status);
    irecv = "MPI_Irecv"(*mut c_void, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    ibcast = "MPI_Ibcast"(*mut c_void, c_int, Handle, c_int, Handle, *mut Handle);
    iallreduce = "MPI_Iallreduce"(*const c_void, *mut c_void, c_int, Handle, Handle, Handle, *mut Handle);
    ireduce = "MPI_Ireduce"(*const c_void, *mut c_void, c_int, Handle, Handle, c_int, Handle, *mut Handle);
    iallgather = "MPI_Iallgather"(
        *const c_void, c_int, Handle, *mut c_void, c_int, Handle, Handle, *mut Handle,
    );
    iallgatherv = "MPI_Iallgatherv"(
        *const c_void, c_int, Handle, *mut c_void, *const c_int, *const c_int, Handle, Handle, *mut Handle,
    );
    ireduce_scatter = "MPI_Ireduce_scatter"(
        *const c_void, *mut c_void, *const c_int, Handle, Handle, Handle, *mut Handle,
    );
    igather = "MPI_Igather"(
        *const c_void, c_int, Handle, *mut c_void, c_int, Handle, c_int, Handle, *mut Handle,
    );
    iscatter = "MPI_Iscatter"(
        *const c_void, c_int, Handle, *mut c_void, c_int, Handle, c_int, Handle, *mut Handle,
    );
}

impl Functions {
    /// The library's version text. May be called before MPI is initialised.
    pub(super) fn version(&self) -> String {
        let (mut text, mut len) = ([0 as c_char; 8192], 0);
        // SAFETY: the longest such text of all families fits.
        unsafe { (self.library_version)(text.as_mut_ptr(), &mut len) };
        text[text.len() - 1] = 0;
        // SAFETY: the last byte ends it at the latest.
        unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().trim().to_owned()
    }

    /// The meaning of an error code.
    pub(super) fn describe(&self, code: c_int) -> String {
        let (mut text, mut len) = ([0 as c_char; 8192], 0);
        // SAFETY: the longest such text of all families fits.
        unsafe { (self.error_string)(code, text.as_mut_ptr(), &mut len) };
        text[text.len() - 1] = 0;
        // SAFETY: the last byte ends it at the latest.
        let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().trim().to_owned();
        if text.is_empty() { format!("error {code}") } else { text }
    }
}

/// Determines the family from the library's answers. The presence of a function proves nothing: libraries with MPICH's
/// handles export `MPI_Abi_get_version` too, and answer -1.
pub(super) fn family(library: &Library, version: &str) -> Result<Family, String> {
    type GetVersion = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
    // SAFETY: the type is the function's.
    if let Ok(get) = unsafe { library.get::<GetVersion>(b"MPI_Abi_get_version") } {
        let (mut major, mut minor) = (-1, -1);
        // SAFETY: two integers to write to; the function may be called at any time.
        if unsafe { get(&mut major, &mut minor) } == 0 && major >= 1 {
            return Ok(Family::Standard);
        }
    }
    let first = version.lines().next().unwrap_or_default();
    let lower = version.to_lowercase();
    if lower.contains("open mpi") || lower.contains("open-mpi") {
        Ok(Family::OpenMpi)
    } else if ["mpich", "intel(r) mpi", "mvapich"].iter().any(|name| lower.contains(name)) {
        Ok(Family::Mpich)
    } else {
        Err(format!("its version {first:?} is of no known family (MPICH, Open MPI, the standard ABI of MPI 5)"))
    }
}
