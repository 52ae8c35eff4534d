//! The C header and the C++ declarations of the ops are those that the sources describe.
//! `RUSHLIGHT_WRITE=1 cargo test --workspace --test headers` writes them.

#[path = "headers/c.rs"]
mod c;
#[path = "headers/cpp.rs"]
mod cpp;

use std::fs;
use std::path::Path;

/// Compares a file with its text, or writes it.
fn agree(path: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("RUSHLIGHT_WRITE").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    if found == text {
        return;
    }
    let differs = found.lines().zip(text.lines()).position(|(a, b)| a != b);
    let line = differs.unwrap_or(found.lines().count().min(text.lines().count()));
    panic!(
        "{}:{} differs from the sources:\n  file:    {}\n  sources: {}\nRUSHLIGHT_WRITE=1 cargo test --workspace --test headers writes it; \
         a change that old programs see also needs another ABI_VERSION",
        path.display(),
        line + 1,
        found.lines().nth(line).unwrap_or_default(),
        text.lines().nth(line).unwrap_or_default()
    );
}

#[test]
fn c_header() {
    agree("include/rushlight.h", &c::header());
}

#[test]
fn cpp_functions() {
    agree("../cpp/include/torch/generated/functions.inc", &cpp::functions());
}

#[test]
fn cpp_methods() {
    agree("../cpp/include/torch/generated/methods.inc", &cpp::declarations());
    agree("../cpp/include/torch/generated/definitions.inc", &cpp::definitions());
}

#[test]
fn cpp_raw_functional() {
    agree("../cpp/include/torch/generated/functional.inc", &cpp::functional());
}
