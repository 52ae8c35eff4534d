//! Tests of the crate's public interface, by topic.

// Its unit tests run here; the rest of it is unused: the library is not compiled as a test.
#[allow(dead_code)]
#[path = "../src/text/bpe/alphabet.rs"]
mod alphabet;
#[path = "main/collate.rs"]
mod collate;
#[path = "main/download.rs"]
mod download;
#[path = "main/goldens.rs"]
mod goldens;
#[path = "main/loader.rs"]
mod loader;
// Its unit tests run here; the rest of it is unused: the library is not compiled as a test.
#[allow(dead_code)]
#[path = "../src/sampler/permutation.rs"]
mod permutation;
// Its unit tests run here; the rest of it is unused: the library is not compiled as a test.
#[allow(dead_code)]
#[path = "../src/progress.rs"]
mod progress;
#[path = "main/resume.rs"]
mod resume;
#[path = "main/sampler.rs"]
mod sampler;
#[path = "main/text.rs"]
mod text;
#[path = "main/transform.rs"]
mod transform;
#[path = "main/vision.rs"]
mod vision;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A folder of a test's own, removed at its end.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("rushlight-data-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
