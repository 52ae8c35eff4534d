//! How the module is linked.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    // Named as extensions in C++ need it: `librushlight.so`, the C interface of the process that has loaded it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librushlight.so");
    // Functions of the same instructions are one, where Rust links by LLVM's linker.
    if env::var("TARGET").as_deref() == Ok("x86_64-unknown-linux-gnu") && minor_version() >= Some(90) {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--icf=all");
    }
}

/// 90 of `rustc 1.90.0`.
fn minor_version() -> Option<u32> {
    let output = Command::new(env::var_os("RUSTC")?).arg("--version").output().ok()?;
    String::from_utf8(output.stdout).ok()?.split('.').nth(1)?.parse().ok()
}
