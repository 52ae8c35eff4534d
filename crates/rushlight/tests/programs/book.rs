//! The book and the other pages: complete, linked, and naming only commands and settings that exist. Its programs run
//! as doc tests. Sources: comments within 120 columns, files within 700 lines.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
#[cfg(target_os = "linux")]
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

/// The targets of a page's links, after `](`.
fn links(text: &str) -> Vec<&str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target).collect()
}

#[test]
fn every_page_is_in_the_summary() {
    let book = root().join("docs/book/src");
    let summary = fs::read_to_string(book.join("SUMMARY.md")).unwrap();
    let listed: BTreeSet<PathBuf> = links(&summary).into_iter().map(|target| book.join(target)).collect();
    let mut there = Vec::new();
    files(&book, &[".md"], &mut there);
    let there: BTreeSet<PathBuf> = there.into_iter().filter(|page| !page.ends_with("SUMMARY.md")).collect();
    assert_eq!(listed, there);
}

#[test]
fn links_resolve() {
    let mut broken = Vec::new();
    for page in pages() {
        for target in links(&fs::read_to_string(&page).unwrap()) {
            let target = target.split('#').next().unwrap_or_default();
            let outside = target.is_empty() || target.contains("://") || target.starts_with("mailto:");
            if !outside && !page.parent().unwrap().join(target).exists() {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// `src/lib.rs` includes every page with Rust programs, so that they run as doc tests.
#[test]
fn programs_are_doc_tests() {
    let root = root();
    let facade = fs::read_to_string(root.join("crates/rushlight/src/lib.rs")).unwrap();
    for page in pages() {
        let name = page.strip_prefix(&root).unwrap().to_str().unwrap();
        let has_program = fs::read_to_string(&page).unwrap().lines().any(|line| line.starts_with("```rust"));
        assert!(
            !has_program || facade.contains(name),
            "{name} has Rust programs: add it to `book` in crates/rushlight/src/lib.rs"
        );
    }
}

/// The words of a text that begin with `start` and continue with `rest`.
fn words<'a>(text: &'a str, start: &str, rest: impl Fn(char) -> bool + 'a) -> Vec<&'a str> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(start) {
        if text[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '/' || c == '.') {
            continue;
        }
        let tail = &text[at + start.len()..];
        let end = tail.find(|c: char| !rest(c)).unwrap_or(tail.len());
        found.push(&text[at..at + start.len() + end]);
    }
    found
}

#[test]
fn settings_and_scripts_exist() {
    let root = root();
    let mut sources = Vec::new();
    for directory in ["crates", "bindings", "scripts", "bench"] {
        files(&root.join(directory), &[".rs", ".py", ".sh", ".cu", ".cl", ".toml"], &mut sources);
    }
    sources
        .extend(fs::read_dir(root.join("scripts")).unwrap().map(|entry| entry.unwrap().path()).filter(|p| p.is_file()));
    let sources: String = sources.iter().filter_map(|path| fs::read_to_string(path).ok()).collect();
    let mut missing = BTreeSet::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for name in words(&text, "RUSHLIGHT_", |c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_') {
            if !sources.contains(name) {
                missing.insert(format!("{}: {name}", page.display()));
            }
        }
        for name in words(&text, "scripts/", |c| c.is_ascii_alphanumeric() || c == '_' || c == '-') {
            if name != "scripts/" && !root.join(name).exists() {
                missing.insert(format!("{}: {name}", page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Comments and files have a readable length.
#[test]
fn sources_are_readable() {
    const COLUMNS: usize = 120;
    const LINES: usize = 700;
    let root = root();
    let mut sources = Vec::new();
    for directory in ["crates", "bindings", "bench", "tests", "fuzz"] {
        files(&root.join(directory), &[".rs", ".py", ".cu", ".cuh", ".h", ".cl"], &mut sources);
    }
    let mut faults = Vec::new();
    for path in sources {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let name = path.strip_prefix(&root).unwrap().display();
        let lines = text.lines().count();
        if lines > LINES {
            faults.push(format!("{name} has {lines} lines: split it by subject into files of at most {LINES}"));
        }
        let marks: &[&str] = if path.extension().is_some_and(|e| e == "py") { &["#"] } else { &["//", "* ", "/*"] };
        for (number, line) in text.lines().enumerate() {
            let comment = line.trim_start();
            // A table or a link cannot be broken.
            let breakable = !comment.contains("://") && !comment.trim_start_matches(['/', '!', ' ']).starts_with('|');
            if breakable && marks.iter().any(|mark| comment.starts_with(mark)) && line.chars().count() > COLUMNS {
                faults.push(format!("{name}:{}: a comment over {COLUMNS} columns: wrap it", number + 1));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Every `rushlight job` of the book writes a script, and every `rushlight` command is one.
#[test]
#[cfg(target_os = "linux")]
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
