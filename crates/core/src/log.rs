//! What the library says while it works: through the `log` crate where the program has installed a logger, otherwise to
//! the standard error stream.
//!
//! Warnings are on by default. `RUSHLIGHT_LOG=off|error|warn|info|debug|trace` chooses for programs without a logger.

use std::fmt::Arguments;
use std::sync::LazyLock;

pub use log::Level;

/// What goes to the standard error stream of a program without a logger.
static SHOWN: LazyLock<log::LevelFilter> = LazyLock::new(|| match std::env::var("RUSHLIGHT_LOG") {
    Err(_) => log::LevelFilter::Warn,
    Ok(text) => text.trim().parse().unwrap_or_else(|_| {
        eprintln!("rushlight: RUSHLIGHT_LOG={text} is unknown (off, error, warn, info, debug, trace); using warn");
        log::LevelFilter::Warn
    }),
});

/// Hands a message to the program's logger, or prints it. The macros [`warn!`](crate::warn) and
/// [`info!`](crate::info) call it.
#[cold]
pub fn write(level: Level, target: &str, message: Arguments<'_>) {
    // A program that has installed a logger has set a level.
    if log::max_level() != log::LevelFilter::Off {
        log::logger().log(&log::Record::builder().level(level).target(target).args(message).build());
    } else if level <= *SHOWN {
        eprintln!("rushlight: {message}");
    }
}

/// Says what the user should know and act on. Takes the arguments of `format!`.
///
/// ```
/// rushlight_core::warn!("the checkpoint '{}' is damaged and was passed over", "last.pt");
/// ```
#[macro_export]
macro_rules! warn {
    ($($message:tt)+) => {
        $crate::log::write($crate::log::Level::Warn, module_path!(), format_args!($($message)+))
    };
}

/// Says what explains a choice of the library; shown with `RUSHLIGHT_LOG=info`.
///
/// ```
/// rushlight_core::info!("collectives of tensors on {} use {}", "cuda:0", "NCCL");
/// ```
#[macro_export]
macro_rules! info {
    ($($message:tt)+) => {
        $crate::log::write($crate::log::Level::Info, module_path!(), format_args!($($message)+))
    };
}
