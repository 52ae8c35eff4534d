//! Damaged and hostile files: every one gives a value or an error, in bounded memory, without a panic.
//!
//! The corpus of a reader is `fuzz/corpus`, and the files of its format in `tests/fixtures`.

mod mutation;
mod readers;

use mutation::{Random, mutate};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::{Path, PathBuf};

/// Counts the heap of the current thread, so that tests can bound it.
struct Counting;

thread_local! {
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn count(change: isize) {
    let _ = HELD.try_with(|held| {
        let (now, peak) = held.get();
        held.set((now + change, peak.max(now + change)));
    });
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: by the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: by the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Peak heap of a computation.
fn heap_of(work: impl FnOnce()) -> isize {
    let (now, _) = HELD.get();
    HELD.set((now, now));
    work();
    HELD.get().1 - now
}

/// The readers' names and their fixtures.
const READERS: [(&str, &str); 11] = [
    ("pt", ".pt"),
    ("safetensors", ".safetensors"),
    ("npy", ".npy"),
    ("npz", ".npz"),
    ("pickle", ".pkl"),
    ("cifar", ""),
    ("cifar_python", "_batch"),
    ("idx", ""),
    ("image", ""),
    ("archive", ""),
    ("tokenizer", ""),
];

fn files(folder: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).filter(|path| path.is_file()).collect();
    paths.sort();
    let read = |path: PathBuf| (path.clone(), std::fs::read(path).unwrap());
    paths.into_iter().map(read).collect()
}

/// The files of a reader's format in a folder of fixtures.
fn fixtures(folder: &str, ending: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = files(&format!("tests/fixtures/{folder}"));
    files.retain(|(path, _)| !ending.is_empty() && path.to_string_lossy().ends_with(ending));
    files
}

/// Maximum heap for a file of this size: a few tens of bytes per byte, and the decompressors' tables.
fn allowed(bytes: usize) -> isize {
    (1 << 20) + 400 * bytes as isize
}

#[test]
fn hostile_files_are_errors_in_bounded_memory() {
    let mut seen = 0;
    for (name, ending) in READERS {
        for (path, bytes) in fixtures("io/hostile", ending) {
            let mut outcome = Ok(());
            let heap = heap_of(|| outcome = readers::read(name, &bytes));
            let error = outcome.expect_err(&path.display().to_string()).to_string();
            assert!(error.len() < 1000, "{}: {error}", path.display());
            assert!(heap < allowed(bytes.len()), "{}: {heap} bytes of heap", path.display());
            seen += 1;
        }
    }
    assert!(seen > 70);
}

#[test]
fn mutations_are_values_or_errors() {
    for (name, ending) in READERS {
        let mut seeds = files(&format!("fuzz/corpus/{name}"));
        for folder in ["io", "io/hostile", "cifar/cifar-10-batches-py"] {
            seeds.extend(fixtures(folder, ending));
        }
        seeds.retain(|(_, seed)| seed.len() <= 1 << 14);
        assert!(!seeds.is_empty(), "{name} has no corpus");
        let mut random = Random(1);
        let mut outcomes = [0, 0];
        for round in 0..300 {
            for (path, seed) in &seeds {
                let mut bytes = seed.clone();
                if round > 0 {
                    mutate(name, &mut bytes, round % 3, &mut random);
                }
                let mut outcome = Ok(());
                let heap = heap_of(|| outcome = readers::read(name, &bytes));
                // The copy of an expanded tensor is made by the test itself.
                let limit = allowed(bytes.len()) + (32 << 20);
                assert!(heap < limit, "{} in round {round}: {heap} bytes of heap", path.display());
                outcomes[usize::from(outcome.is_ok())] += 1;
            }
        }
        // Both outcomes occurred.
        assert!(outcomes.iter().all(|&n| n > 5), "{name}: {outcomes:?} errors and values");
    }
}
