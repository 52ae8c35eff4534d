//! The one error type of the library.

use std::fmt;

/// What went wrong, in the terms of the exception PyTorch would raise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Shapes that do not fit together.
    Shape,
    /// A dtype the op does not take.
    DType,
    /// Tensors on different devices, or a device that is not there.
    Device,
    /// An index or dimension out of range.
    Index,
    /// An argument with a value that makes no sense.
    Value,
    /// A misuse of autograd: freed graph, changed saved value, non-scalar root.
    Autograd,
    /// The allocator could not give what was asked for.
    OutOfMemory,
    /// Something this build or backend does not do.
    Unsupported,
    /// A numerical failure, such as a singular matrix.
    Numerical,
    /// A failure of the operating system, a file or a library.
    Io,
}

/// An error with a message a person can act on. One pointer wide, so that `Result` stays cheap.
///
/// ```
/// use rushlight_core::{Error, ErrorKind};
/// let e = Error::shape("add: shapes [2] and [3] do not broadcast");
/// assert_eq!(e.kind(), ErrorKind::Shape);
/// assert_eq!(e.to_string(), "add: shapes [2] and [3] do not broadcast");
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
}

/// The library's `Result`.
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! constructors {
    ($($name:ident $kind:ident;)*) => {$(
        #[doc = concat!("An error of kind [`ErrorKind::", stringify!($kind), "`].")]
        #[cold]
        pub fn $name(message: impl Into<String>) -> Self {
            Self::new(ErrorKind::$kind, message)
        }
    )*};
}

impl Error {
    /// An error of the given kind.
    #[cold]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, message: message.into() }))
    }

    constructors! {
        shape Shape;
        dtype DType;
        device Device;
        index Index;
        value Value;
        autograd Autograd;
        out_of_memory OutOfMemory;
        unsupported Unsupported;
        numerical Numerical;
        io Io;
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The same error with the name of the call put before the message.
    pub fn within(mut self, call: &str) -> Self {
        self.0.message = format!("{call}: {}", self.0.message);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.kind, self.0.message)
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        Error::io(e.to_string())
    }
}
