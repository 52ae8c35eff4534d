//! Errors of the op table.

use rushlight_core::Error;

/// An invalid value; other fronts have a separate class for it.
pub fn value(message: impl Into<String>) -> Error {
    Error::value(message)
}
