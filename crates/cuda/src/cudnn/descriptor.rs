//! Descriptors of the library's graphs: a kind and attributes, each an array of one type.

use super::Cudnn;
use rushlight_gpu::vendor::conv_library::Descriptors;
use rushlight_gpu::vendor::driver::Handle;
use std::ffi::{c_int, c_void};

/// `cudnnBackendDescriptorType_t`.
#[derive(Clone, Copy)]
#[repr(i32)]
pub enum Kind {
    Convolution = 1,
    Engine = 2,
    EngineConfig = 3,
    Heuristics = 4,
    Plan = 5,
    Forward = 10,
    BackwardWeight = 11,
    BackwardInput = 12,
    Graph = 15,
    VariantPack = 16,
    Tensor = 17,
}

/// `cudnnBackendAttributeName_t`, as far as it is used here. Attributes of the three operations follow each other: see
/// `conv.rs`.
pub mod name {
    use std::ffi::c_int;

    pub const CONV_COMPUTE: c_int = 100;
    pub const CONV_MODE: c_int = 101;
    pub const CONV_DILATIONS: c_int = 102;
    pub const CONV_STRIDES: c_int = 103;
    pub const CONV_PADDING_AFTER: c_int = 104;
    pub const CONV_PADDING_BEFORE: c_int = 105;
    pub const CONV_DIMENSIONS: c_int = 106;
    pub const HEURISTICS_MODE: c_int = 200;
    pub const HEURISTICS_GRAPH: c_int = 201;
    pub const HEURISTICS_RESULTS: c_int = 202;
    pub const CONFIG_ENGINE: c_int = 300;
    pub const PLAN_HANDLE: c_int = 400;
    pub const PLAN_CONFIG: c_int = 401;
    pub const PLAN_WORKSPACE: c_int = 402;
    pub const GRAPH_HANDLE: c_int = 800;
    pub const GRAPH_OPERATIONS: c_int = 801;
    pub const TENSOR_ALIGNMENT: c_int = 900;
    pub const TENSOR_DTYPE: c_int = 901;
    pub const TENSOR_SIZES: c_int = 902;
    pub const TENSOR_STRIDES: c_int = 903;
    pub const TENSOR_ID: c_int = 906;
    pub const PACK_IDS: c_int = 1000;
    pub const PACK_POINTERS: c_int = 1001;
    pub const PACK_WORKSPACE: c_int = 1003;
    pub const ENGINE_NOTES: c_int = 1303;
}

/// The values of an attribute; each variant has its own `cudnnBackendAttributeType_t`.
#[derive(Clone, Copy)]
pub enum Values<'a> {
    Library(&'a Handle),
    Dtype(&'a c_int),
    Integers(&'a [i64]),
    Float(&'a f32),
    Double(&'a f64),
    Pointers(&'a [u64]),
    ConvMode(&'a c_int),
    HeuristicsMode(&'a c_int),
    Descriptors(&'a [Handle]),
}

const INTEGERS: c_int = 3;
const NOTES: c_int = 11;
const DESCRIPTORS: c_int = 15;

impl Values<'_> {
    /// The type, the count and the address.
    fn parts(&self) -> (c_int, i64, *const c_void) {
        match *self {
            Self::Library(v) => (0, 1, (v as *const Handle).cast()),
            Self::Dtype(v) => (1, 1, (v as *const c_int).cast()),
            Self::Integers(v) => (INTEGERS, v.len() as i64, v.as_ptr().cast()),
            Self::Float(v) => (4, 1, (v as *const f32).cast()),
            Self::Double(v) => (5, 1, (v as *const f64).cast()),
            Self::Pointers(v) => (6, v.len() as i64, v.as_ptr().cast()),
            Self::ConvMode(v) => (7, 1, (v as *const c_int).cast()),
            Self::HeuristicsMode(v) => (8, 1, (v as *const c_int).cast()),
            Self::Descriptors(v) => (DESCRIPTORS, v.len() as i64, v.as_ptr().cast()),
        }
    }
}

impl Cudnn {
    /// An empty descriptor, destroyed with `keep`; `None` if this version of the library has none of the kind.
    fn empty(&self, kind: Kind, keep: &mut Descriptors) -> Option<Handle> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: a handle to write to; the destructor is that of descriptors.
        unsafe {
            if (self.descriptor)(kind as c_int, &mut handle) != 0 {
                return None;
            }
            keep.push(self.destroy, handle);
        }
        Some(handle)
    }

    /// A descriptor with these attributes, destroyed with `keep`; `None` if the library does not support them.
    pub fn described(&self, kind: Kind, attributes: &[(c_int, Values)], keep: &mut Descriptors) -> Option<Handle> {
        let handle = self.empty(kind, keep)?;
        for (name, values) in attributes {
            let (dtype, count, at) = values.parts();
            // SAFETY: `count` values of the type are there.
            if unsafe { (self.set)(handle, *name, dtype, count, at) } != 0 {
                return None;
            }
        }
        // SAFETY: a descriptor of ours.
        (unsafe { (self.finalize)(handle) } == 0).then_some(handle)
    }

    /// Descriptors that another one holds, at most `most`, in its order; none where it has no answer.
    pub fn held(&self, of: Handle, name: c_int, kind: Kind, most: usize, keep: &mut Descriptors) -> Vec<Handle> {
        let mut out: Vec<Handle> = (0..most).map_while(|_| self.empty(kind, keep)).collect();
        let mut count = 0;
        // SAFETY: room for as many descriptors as are asked for, which the library fills in.
        let rc = unsafe { (self.get)(of, name, DESCRIPTORS, out.len() as i64, &mut count, out.as_mut_ptr().cast()) };
        out.truncate(if rc == 0 { count.max(0) as usize } else { 0 });
        out
    }

    /// An integer attribute.
    pub fn integer(&self, of: Handle, name: c_int) -> Option<i64> {
        let (mut value, mut count) = (0i64, 0);
        // SAFETY: room for one integer.
        let rc = unsafe { (self.get)(of, name, INTEGERS, 1, &mut count, (&raw mut value).cast()) };
        (rc == 0 && count == 1).then_some(value)
    }

    /// Notes on the numbers that an engine computes; `None` if the library does not tell.
    pub fn notes(&self, engine: Handle) -> Option<Vec<c_int>> {
        let (mut notes, mut count) = (vec![0 as c_int; 16], 0);
        let (room, at) = (notes.len() as i64, notes.as_mut_ptr().cast());
        // SAFETY: room for as many notes as are asked for.
        let rc = unsafe { (self.get)(engine, name::ENGINE_NOTES, NOTES, room, &mut count, at) };
        notes.truncate(count.max(0) as usize);
        (rc == 0).then_some(notes)
    }
}
