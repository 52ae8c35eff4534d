//! Status codes and the thread's last message.

use rushlight_core::{Error, ErrorKind, Result};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of a call: `RL_OK`, or the class of its error, whose text `rl_last_error` returns.
pub type rl_status = i32;

/// The codes, by name.
pub const CODES: &[(&str, rl_status)] = &[
    ("RL_OK", 0),
    ("RL_ERROR", 1),
    ("RL_ERROR_SHAPE", 2),
    ("RL_ERROR_DTYPE", 3),
    ("RL_ERROR_DEVICE", 4),
    ("RL_ERROR_INDEX", 5),
    ("RL_ERROR_VALUE", 6),
    ("RL_ERROR_AUTOGRAD", 7),
    ("RL_ERROR_OUT_OF_MEMORY", 8),
    ("RL_ERROR_UNSUPPORTED", 9),
    ("RL_ERROR_NUMERICAL", 10),
    ("RL_ERROR_IO", 11),
    ("RL_ERROR_TIMEOUT", 12),
];

fn code(kind: ErrorKind) -> rl_status {
    match kind {
        ErrorKind::Shape => 2,
        ErrorKind::DType => 3,
        ErrorKind::Device => 4,
        ErrorKind::Index => 5,
        ErrorKind::Value => 6,
        ErrorKind::Autograd => 7,
        ErrorKind::OutOfMemory => 8,
        ErrorKind::Unsupported => 9,
        ErrorKind::Numerical => 10,
        ErrorKind::Io => 11,
        ErrorKind::Timeout => 12,
        _ => 1,
    }
}

fn kind(code: rl_status) -> ErrorKind {
    match code {
        2 => ErrorKind::Shape,
        3 => ErrorKind::DType,
        4 => ErrorKind::Device,
        5 => ErrorKind::Index,
        7 => ErrorKind::Autograd,
        8 => ErrorKind::OutOfMemory,
        9 => ErrorKind::Unsupported,
        10 => ErrorKind::Numerical,
        11 => ErrorKind::Io,
        12 => ErrorKind::Timeout,
        _ => ErrorKind::Value,
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Advice in Rust's terms, and its translation to C++'s.
const WORDS: [(&str, &str); 3] = [
    ("Backward::default().retain_graph(true)", "retain_graph=true"),
    ("to_dtype(DType::F32)", ".to(torch::kFloat)"),
    ("with to_dtype", "with .to(dtype)"),
];

/// Sets the thread's message.
pub fn set_message(message: &str) {
    let mut text = message.replace('\0', " ");
    for (rust, other) in WORDS {
        if text.contains(rust) {
            text = text.replace(rust, other);
        }
    }
    LAST.with_borrow_mut(|last| *last = CString::new(text).unwrap_or_default());
}

/// The thread's message, valid until the thread's next failing call.
pub fn message() -> *const c_char {
    LAST.with_borrow(|last| last.as_ptr())
}

/// The error that a callback has reported by `rl_set_error`.
pub fn reported(code: rl_status) -> Error {
    let text = LAST.with_borrow(|last| last.to_string_lossy().into_owned());
    Error::new(kind(code), if text.is_empty() { "a callback failed without a message".to_string() } else { text })
}

/// Text from C; an error if it is not UTF-8.
///
/// # Safety
/// `text` is null or a string that ends with a zero byte.
pub unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str> {
    if text.is_null() {
        return Err(Error::value(format!("{name} is null")));
    }
    // SAFETY: by this function's contract.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Error::value(format!("{name} is not UTF-8")))
}

/// The status of a body. A panic becomes an error.
#[inline]
pub fn run(body: impl FnOnce() -> Result<()>) -> rl_status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => failed(&error),
        Err(panic) => panicked(panic.downcast_ref::<&str>().copied()),
    }
}

#[cold]
fn failed(error: &Error) -> rl_status {
    set_message(&error.to_string());
    code(error.kind())
}

#[cold]
fn panicked(message: Option<&str>) -> rl_status {
    set_message(&format!("internal error (a panic; please report it): {}", message.unwrap_or("no message")));
    1
}

/// A value, or another after a panic.
#[inline]
pub fn guard<T>(body: impl FnOnce() -> T, otherwise: T) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(panic) => {
            panicked(panic.downcast_ref::<&str>().copied());
            otherwise
        }
    }
}
