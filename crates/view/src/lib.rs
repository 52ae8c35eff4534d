//! Monitoring of runs: `rushlight ui` shows training runs in a browser, `rushlight top` GPUs and processors in a
//! terminal.
//!
//! | module | what it does |
//! |---|---|
//! | `alerts` | commands of the user's when a run is in trouble |
//! | `runs` | finds runs on the disk and reads them as they grow |
//! | `server` | the page's server: HTTP, tokens, server-sent events |
//! | `page` (no Rust) | the page: HTML, CSS and JavaScript, embedded |
//! | `ui` | the command `rushlight ui` |
//! | `top` | the command `rushlight top` |

mod alerts;
mod runs;
mod server;
mod top;
mod ui;

pub use top::top;
pub use ui::ui;

/// The name of this machine.
fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost".into() } else { name.to_owned() }
}
