//! Arguments and results as tagged values.

use crate::handle::{rl_tensor, slice};
use rushlight_core::Scalar;
use std::ffi::c_char;

/// The kinds of values.
pub type rl_kind = i32;

macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $name:ident = $value:literal;)*) => {
        $($(#[doc = $doc])* pub const $name: rl_kind = $value;)*
        /// The kinds by name, with their texts.
        pub const KINDS: &[(&str, rl_kind, &str)] = &[$((stringify!($name), $value, concat!($($doc),*))),*];
    };
}

kinds! {
    /// The parameter's default.
    RL_DEFAULT = 0;
    /// Python's None, an undefined tensor.
    RL_NONE = 1;
    /// `tensor`.
    RL_TENSOR = 2;
    /// `tensors`, `count` of them.
    RL_TENSORS = 3;
    /// `integer` is 0 or 1.
    RL_BOOL = 4;
    /// `integer`.
    RL_INT = 5;
    /// `number`.
    RL_FLOAT = 6;
    /// `integers`, `count` of them.
    RL_INTS = 7;
    /// `numbers`, `count` of them.
    RL_FLOATS = 8;
    /// `text`, `count` bytes of UTF-8.
    RL_STRING = 9;
    /// `integer` is a dtype's number.
    RL_DTYPE = 10;
    /// `integer` is the device's kind, `count` its index.
    RL_DEVICE = 11;
    /// `integer` is a memory format: 0 contiguous, 1 preserve, 2 channels last, 3 channels last 3d.
    RL_MEMORY_FORMAT = 12;
    /// `numbers`: the real and the imaginary part; `rl_value_free` frees a result's.
    RL_COMPLEX = 13;
}

/// A value's content; `kind` says which.
#[derive(Clone, Copy)]
#[repr(C)]
pub union rl_data {
    pub tensor: *mut rl_tensor,
    pub tensors: *const *mut rl_tensor,
    pub integer: i64,
    pub number: f64,
    pub integers: *const i64,
    pub numbers: *const f64,
    pub text: *const c_char,
}

/// An argument or a result.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct rl_value {
    pub kind: rl_kind,
    pub data: rl_data,
    pub count: usize,
}

impl rl_value {
    pub fn none() -> Self {
        rl_value { kind: RL_NONE, data: rl_data { integer: 0 }, count: 0 }
    }

    pub fn tensor(tensor: *mut rl_tensor) -> Self {
        rl_value { kind: RL_TENSOR, data: rl_data { tensor }, count: 1 }
    }

    pub fn integer(kind: rl_kind, integer: i64) -> Self {
        rl_value { kind, data: rl_data { integer }, count: 0 }
    }

    pub fn float(number: f64) -> Self {
        rl_value { kind: RL_FLOAT, data: rl_data { number }, count: 0 }
    }

    /// The number of a value that is one.
    ///
    /// # Safety
    /// `numbers` of a complex value points to `count` of them.
    #[inline]
    pub unsafe fn scalar(&self) -> Option<Scalar> {
        // SAFETY: each field is read only for the kind that has it; the parts are the caller's promise.
        unsafe {
            match self.kind {
                RL_BOOL => Some(Scalar::Bool(self.data.integer != 0)),
                RL_INT => Some(Scalar::Int(self.data.integer)),
                RL_FLOAT => Some(Scalar::Float(self.data.number)),
                RL_COMPLEX => match slice(self.data.numbers, self.count) {
                    &[re, im] => Some(Scalar::Complex(re, im)),
                    _ => None,
                },
                _ => None,
            }
        }
    }

    /// A complex number, in memory that `rl_value_free` frees.
    pub fn complex(re: f64, im: f64) -> Self {
        let parts = Box::new([re, im]);
        rl_value { kind: RL_COMPLEX, data: rl_data { numbers: Box::into_raw(parts).cast() }, count: 2 }
    }
}

impl From<Scalar> for rl_value {
    fn from(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Bool(b) => rl_value::integer(RL_BOOL, b as i64),
            Scalar::Int(i) => rl_value::integer(RL_INT, i),
            Scalar::Unsigned(u) => rl_value::integer(RL_INT, u as i64),
            Scalar::Float(f) => rl_value::float(f),
            Scalar::Complex(re, im) => rl_value::complex(re, im),
        }
    }
}
