//! The one error type of the library.

use std::backtrace::Backtrace;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// Whether errors record a backtrace: `RUSHLIGHT_BACKTRACE=1`.
static WANT_BACKTRACE: LazyLock<bool> =
    LazyLock::new(|| std::env::var_os("RUSHLIGHT_BACKTRACE").is_some_and(|v| !v.is_empty() && v != "0"));

/// The class of an error, after the exception PyTorch would raise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Shapes that do not fit together.
    Shape,
    /// A dtype that the op does not support.
    DType,
    /// Tensors on different devices, or an unavailable device.
    Device,
    /// An index or dimension out of range.
    Index,
    /// An invalid argument value.
    Value,
    /// A misuse of autograd: freed graph, changed saved value, non-scalar root.
    Autograd,
    /// The allocator could not provide the requested memory.
    OutOfMemory,
    /// Not supported by this build or backend.
    Unsupported,
    /// A numerical failure, such as a singular matrix.
    Numerical,
    /// A failure of the operating system, a file or a library.
    Io,
    /// A wait that ended without what was waited for.
    Timeout,
}

/// An error with a message a person can act on. One pointer wide, so that `Result` stays cheap.
///
/// Modules add their path (`transformer.h.7.attn.c_proj`). With `RUSHLIGHT_BACKTRACE=1`
/// in the environment an error records the stack where it was made; `{:?}` shows it, and so does a `main` that returns
/// the error.
///
/// ```
/// # mod rushlight { pub use rushlight_core::{Error, ErrorKind}; }
/// use rushlight::{Error, ErrorKind};
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
    module: Option<String>,
    backtrace: Option<Arc<Backtrace>>,
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
        let backtrace = WANT_BACKTRACE.then(|| Arc::new(Backtrace::force_capture()));
        Self(Box::new(Inner { kind, message: message.into(), module: None, backtrace }))
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
        timeout Timeout;
    }

    /// The class of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Prepends the name of the call to the message.
    pub fn within(mut self, call: &str) -> Self {
        self.0.message = format!("{call}: {}", self.0.message);
        self
    }

    /// The same error with the path of the module it happened in. An error keeps the first path it is given: the
    /// innermost.
    ///
    /// ```
    /// # mod rushlight { pub use rushlight_core::Error; }
    /// use rushlight::Error;
    /// let e = Error::shape("linear: input has 8 features, weight expects 9").in_module("h.7.mlp").in_module("h.7");
    /// assert_eq!(e.to_string(), "linear: input has 8 features, weight expects 9 (in h.7.mlp)");
    /// ```
    #[cold]
    pub fn in_module(mut self, path: impl Into<String>) -> Self {
        self.0.module.get_or_insert_with(|| path.into());
        self
    }

    /// The path of the module in which it happened, if a module has added it.
    pub fn module(&self) -> Option<&str> {
        self.0.module.as_deref()
    }

    /// The backtrace of the error, if `RUSHLIGHT_BACKTRACE=1` is set.
    pub fn backtrace(&self) -> Option<&Backtrace> {
        self.0.backtrace.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        match &self.0.module {
            Some(path) => write!(f, " (in {path})"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)?;
        match &self.0.backtrace {
            Some(backtrace) => write!(f, "\n{backtrace}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        Error::io(e.to_string())
    }
}
