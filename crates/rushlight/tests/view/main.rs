//! `rushlight ui` and `rushlight top` as users start them: over HTTP, in a real browser, with libraries that imitate
//! the vendors'.

#![cfg(target_os = "linux")]

mod browser;
mod http;
mod support;
mod top;
