//! Damaged and hostile files: every one gives a value or an error, in bounded memory, without a panic.
//!
//! The corpus is `tests/fixtures/io` and `tests/fixtures/io/hostile`; mutations of it are made by a fixed random stream.

use rushlight_core::Result;
use rushlight_io::{npy, npz, pt, safetensors::SafeTensors};
use rushlight_tensor::state::Value;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Counts what the current thread holds, so that tests can bound it.
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

/// The most heap that reading `bytes` takes, beside the bytes themselves.
fn heap_of(work: impl FnOnce()) -> isize {
    let (now, _) = HELD.get();
    HELD.set((now, now));
    work();
    HELD.get().1 - now
}

#[derive(Clone, Copy, Debug)]
enum Format {
    Pt,
    Safetensors,
    Npy,
    Npz,
}

/// Reads a file as far as it goes: tensors are summed, so that a view outside of its memory would be seen.
fn read(format: Format, bytes: &[u8]) -> Result<()> {
    match format {
        Format::Pt => touch(&pt::from_bytes(bytes)?),
        Format::Safetensors => touch(&SafeTensors::from_bytes(bytes)?.tensors()?.into()),
        Format::Npy => touch(&npy::from_bytes(bytes)?.into()),
        Format::Npz => touch(&npz::from_bytes(bytes)?.into()),
    }
}

fn touch(value: &Value) -> Result<()> {
    match value {
        // An expanded tensor may have any number of elements over few bytes.
        Value::Tensor(t) if t.numel() <= 1 << 20 => t.to_vec::<f64>().map(drop),
        Value::List(items) | Value::Tuple(items) => items.iter().try_for_each(touch),
        Value::Dict(dict) => dict.values().try_for_each(touch),
        _ => Ok(()),
    }
}

fn corpus(folder: &str) -> Vec<(PathBuf, Format, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/io").join(folder);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let files = paths.into_iter().filter_map(|path| {
        let format = match path.extension()?.to_str()? {
            "pt" => Format::Pt,
            "safetensors" => Format::Safetensors,
            "npy" => Format::Npy,
            "npz" => Format::Npz,
            _ => return None,
        };
        let bytes = std::fs::read(&path).unwrap();
        Some((path, format, bytes))
    });
    files.collect()
}

/// Heap that a file of this size may take: some tens of bytes for each of its bytes, and the unpacker's tables.
fn allowed(bytes: usize) -> isize {
    (1 << 20) + 400 * bytes as isize
}

#[test]
fn hostile_files_are_errors_in_bounded_memory() {
    let files = corpus("hostile");
    assert!(files.len() > 60);
    for (path, format, bytes) in files {
        let mut outcome = Ok(());
        let heap = heap_of(|| outcome = read(format, &bytes));
        let error = outcome.expect_err(&path.display().to_string()).to_string();
        assert!(error.len() < 1000, "{}: {error}", path.display());
        assert!(heap < allowed(bytes.len()), "{}: {heap} bytes of heap", path.display());
    }
}

/// A stream of numbers below a bound (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound.max(1) as u64) as usize
    }
}

/// A change within `place` that moves nothing: it gets past the outer format, whose offsets still fit.
fn overwrite(bytes: &mut [u8], place: Range<usize>, random: &mut Random) {
    let at = place.start + random.below(place.len());
    let room = place.end - at;
    match random.below(5) {
        _ if room == 0 => {}
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.below(256) as u8,
        2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
        3 => {
            // A field with an extreme value.
            let width = [2, 4, 8][random.below(3)].min(room);
            let value = [0, u64::MAX, i64::MAX as u64, u64::from(u32::MAX), bytes.len() as u64][random.below(5)];
            bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        }
        _ => {
            // A piece copied from elsewhere.
            let from = place.start + random.below(place.len());
            let n = (1 + random.below(32)).min(place.end - from).min(room);
            bytes.copy_within(from..from + n, at);
        }
    }
}

/// A change that makes the file longer or shorter.
fn shift(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    match random.below(3) {
        0 => bytes.truncate(at),
        1 if at < bytes.len() => drop(bytes.remove(at)),
        _ => bytes.insert(at, random.below(256) as u8),
    }
}

/// Where a file says what it holds: the pickle, the header.
fn inner(format: Format, bytes: &[u8]) -> Range<usize> {
    let field = |at: usize| bytes.get(at..at + 2).map_or(0, |b| usize::from(u16::from_le_bytes([b[0], b[1]])));
    let place = match format {
        Format::Pt => {
            let start = 30 + field(26) + field(28);
            let rest = bytes.get(start..).unwrap_or_default();
            start..start + rest.windows(2).position(|w| w == b"PK").unwrap_or(rest.len())
        }
        Format::Safetensors => 8..8 + field(0),
        Format::Npy => 6..10 + field(8),
        Format::Npz => 0..bytes.len(),
    };
    if place.end <= bytes.len() { place } else { 0..bytes.len() }
}

#[test]
fn mutations_are_values_or_errors() {
    let seeds: Vec<_> = corpus("").into_iter().chain(corpus("hostile")).filter(|f| f.2.len() <= 1 << 14).collect();
    let mut random = Random(1);
    let mut outcomes = [0, 0];
    for round in 0..300 {
        for (path, format, seed) in &seeds {
            let mut bytes = seed.clone();
            for _ in 0..=random.below(3) {
                match round % 3 {
                    0 => shift(&mut bytes, &mut random),
                    1 => {
                        let all = 0..bytes.len();
                        overwrite(&mut bytes, all, &mut random);
                    }
                    _ => {
                        let place = inner(*format, &bytes);
                        overwrite(&mut bytes, place, &mut random);
                    }
                }
            }
            let mut outcome = Ok(());
            let heap = heap_of(|| outcome = read(*format, &bytes));
            // `to_vec` of an expanded tensor is the test's own doing.
            let limit = allowed(bytes.len()) + (32 << 20);
            assert!(heap < limit, "{} in round {round}: {heap} bytes of heap", path.display());
            outcomes[usize::from(outcome.is_ok())] += 1;
        }
    }
    // Both ways through the readers were taken.
    assert!(outcomes.iter().all(|&n| n > 500), "errors and values: {outcomes:?}");
}
