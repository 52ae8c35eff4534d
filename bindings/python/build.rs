//! Names the module as extensions in C++ need it: `librushlight.so`, the C interface of the process that has loaded it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,librushlight.so");
    }
}
