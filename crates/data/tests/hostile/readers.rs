//! Every reader of untrusted files, as a function of bytes. `main.rs` runs them on a corpus and mutations of it, and
//! the programs in `fuzz` on libFuzzer's inputs.

use rushlight_core::{Error, Result};
use rushlight_data::download::{UnpackLimits, unpack_tar_gz};
use rushlight_data::text::{Bpe, Tokenizer};
use rushlight_data::vision::{Cifar10, DecodeLimits, LabeledImages, Mnist, read_image};
use rushlight_io::{npy, npz, pickle, pt, safetensors::SafeTensors};
use rushlight_tensor::state::Value;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Reads everything: tensors are copied, so that a view outside of its memory is detected.
pub fn read(name: &str, bytes: &[u8]) -> Result<()> {
    match name {
        "pt" => touch(&pt::from_bytes(bytes)?),
        "safetensors" => touch(&SafeTensors::from_bytes(bytes)?.tensors()?.into()),
        "npy" => touch(&npy::from_bytes(bytes)?.into()),
        "npz" => touch(&npz::from_bytes(bytes)?.into()),
        "pickle" => touch(&pickle::from_bytes(bytes)?),
        "cifar" => cifar("data_batch_1.bin", "test_batch.bin", bytes),
        "cifar_python" => cifar("data_batch_1", "test_batch", bytes),
        "idx" => idx(bytes),
        "image" => image(bytes),
        "archive" => archive(bytes),
        "tokenizer" => tokenizer(bytes),
        _ => Err(Error::value(format!("no reader '{name}'"))),
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

/// A folder of the thread's own.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // In memory if possible: there are tens of thousands of files.
        let memory = Some(PathBuf::from("/dev/shm")).filter(|folder| folder.is_dir());
        let place = memory.unwrap_or_else(std::env::temp_dir);
        Self(place.join(format!("rushlight-hostile-{}-{number}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A directory with exactly these files, the same one for each purpose.
fn folder(purpose: &str, files: &[(&str, &[u8])]) -> Result<PathBuf> {
    thread_local!(static SCRATCH: Scratch = Scratch::new());
    let folder = SCRATCH.with(|scratch| scratch.0.join(purpose));
    if !folder.is_dir() {
        std::fs::create_dir_all(&folder)?;
    }
    for (name, bytes) in files {
        std::fs::write(folder.join(name), bytes)?;
    }
    Ok(folder)
}

fn touch_images(set: &LabeledImages) -> Result<()> {
    set.images().to_vec::<u8>()?;
    set.labels().to_vec::<i64>().map(drop)
}

fn cifar(other: &str, test: &str, bytes: &[u8]) -> Result<()> {
    touch_images(&Cifar10::test(folder(test, &[(other, b""), (test, bytes)])?)?)
}

/// As images, packed or not, and as labels.
fn idx(bytes: &[u8]) -> Result<()> {
    let packed = if bytes.starts_with(b"\x1f\x8b") { ".gz" } else { "" };
    let (images, labels) = (format!("train-images-idx3-ubyte{packed}"), format!("t10k-labels-idx1-ubyte{packed}"));
    let folder = folder(
        &images,
        &[
            (&images, bytes),
            ("train-labels-idx1-ubyte", b"\0\0\x08\x01\0\0\0\x02\x01\x02"),
            ("t10k-images-idx3-ubyte", b"\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x01\x07\x08"),
            (&labels, bytes),
        ],
    )?;
    let (images, labels) = (Mnist::train(&folder), Mnist::test(&folder));
    images.or(labels).and_then(|set| touch_images(&set))
}

fn image(bytes: &[u8]) -> Result<()> {
    let limits = DecodeLimits { file_bytes: 1 << 16, pixels: 1 << 16 };
    read_image(&folder("image", &[("image", bytes)])?.join("image"), limits)?.to_vec::<u8>().map(drop)
}

/// A compressed tar archive whose first header gets a valid checksum.
fn archive(bytes: &[u8]) -> Result<()> {
    let mut bytes = bytes.to_vec();
    if let Some(header) = bytes.get_mut(..512) {
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|&b| u32::from(b)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &bytes)?;
    let folder = folder("archive", &[("a.tar.gz", &packed.finish()?)])?;
    let inside = folder.join("inside");
    let files = unpack_tar_gz(&folder.join("a.tar.gz"), &inside, UnpackLimits { bytes: 4096, entries: 8 })?;
    assert!(files.iter().all(|file| file.starts_with(&inside)), "{files:?}");
    Ok(())
}

/// A vocabulary and merges, with a zero byte between them.
fn tokenizer(bytes: &[u8]) -> Result<()> {
    let text = String::from_utf8_lossy(bytes);
    let (vocab, merges) = text.split_once('\0').unwrap_or((&text, ""));
    let tokenizer = Bpe::parse(vocab, merges)?;
    let tokens = tokenizer.encode("hello a b ab")?;
    tokenizer.decode(&tokens).map(drop)
}
