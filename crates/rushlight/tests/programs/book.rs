//! The commands of the book and the other pages. Programs run as doc tests; `scripts/lint` checks links and names.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Files below a directory whose names end in one of `endings`, without build outputs.
fn files(directory: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap_or_default());
        if path.is_dir() {
            if name != "target" && name != "node_modules" && !name.starts_with('.') {
                files(&path, endings, found);
            }
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            found.push(path);
        }
    }
}

fn pages() -> Vec<PathBuf> {
    let root = root();
    let mut pages: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "bindings/python/README.md"]
            .iter()
            .map(|page| root.join(page))
            .collect();
    files(&root.join("docs"), &[".md"], &mut pages);
    pages
}

/// Every page with a program in Rust is among those that run as doc tests.
#[test]
fn programs_are_run() {
    let listed = include_str!("../../src/lib.rs");
    for page in pages() {
        let name = page.strip_prefix(root()).unwrap().display().to_string();
        let has_program =
            fs::read_to_string(&page).unwrap().lines().any(|line| line.trim_start().starts_with("```rust"));
        assert!(
            !has_program || listed.contains(&format!("{name:?}")),
            "{name} has programs and is not in crates/rushlight/src/lib.rs"
        );
    }
}

/// Every `rushlight job` of the book writes a script, and every `rushlight` command is one.
#[test]
fn commands_work() {
    let rushlight = env!("CARGO_BIN_EXE_rushlight");
    let help = Command::new(rushlight).arg("--help").output().unwrap();
    let help = String::from_utf8_lossy(&help.stdout).into_owned() + &String::from_utf8_lossy(&help.stderr);
    let mut jobs = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let mut shell = false;
        for line in text.lines() {
            if let Some(language) = line.trim_start().strip_prefix("```") {
                shell = !shell && matches!(language.trim(), "sh" | "bash");
                continue;
            }
            let Some(arguments) = line.trim().strip_prefix("rushlight ").filter(|_| shell) else { continue };
            let arguments: Vec<&str> = arguments.split(" #").next().unwrap_or_default().split_whitespace().collect();
            let place = format!("{}: {line}", page.display());
            assert!(help.contains(arguments[0]), "{place}: no such command\n{help}");
            if arguments[0] == "job" && !arguments.contains(&"…") {
                let arguments = arguments.iter().filter(|a| **a != "--submit");
                let out = Command::new(rushlight).args(arguments).output().unwrap();
                let (script, said) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
                assert!(
                    out.status.success() && (script.starts_with("#!") || script.contains("apiVersion:")),
                    "{place}\n{script}{said}"
                );
                jobs += 1;
            }
        }
    }
    assert!(jobs >= 5, "the pages of machines have {jobs} commands");
}
