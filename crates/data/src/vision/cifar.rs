//! CIFAR-10 and CIFAR-100, in the binary version.

use super::{LabeledImages, class_names, synthetic};
use crate::download::{Checksum, Remote, UnpackLimits, failed, unpack_tar_gz};
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

const CHANNELS: usize = 3;
const SIDE: usize = 32;
const PIXELS: usize = CHANNELS * SIDE * SIDE;
/// The largest official file has 50,000 records.
const MOST_RECORDS: usize = 1 << 20;

/// One of the two sets.
struct Kind {
    name: &'static str,
    archive: &'static str,
    md5: &'static str,
    folder: &'static str,
    python_names: [&'static str; 2],
    train_files: &'static [&'static str],
    test_files: &'static [&'static str],
    /// Label bytes before the pixels; the last of them is the class.
    label_bytes: usize,
    /// The file that lists the classes, one a line.
    class_file: &'static str,
    classes: usize,
}

const CIFAR10: Kind = Kind {
    name: "CIFAR-10",
    archive: "cifar-10-binary.tar.gz",
    md5: "c32a1d4ab5d03f1284b67883e8d87530",
    folder: "cifar-10-batches-bin",
    python_names: ["cifar-10-batches-py", "cifar-10-python.tar.gz"],
    train_files: &["data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"],
    test_files: &["test_batch.bin"],
    label_bytes: 1,
    class_file: "batches.meta.txt",
    classes: 10,
};

const CIFAR100: Kind = Kind {
    name: "CIFAR-100",
    archive: "cifar-100-binary.tar.gz",
    md5: "03b5dce01913d631647c71ecec9e9cb8",
    folder: "cifar-100-binary",
    python_names: ["cifar-100-python", "cifar-100-python.tar.gz"],
    train_files: &["train.bin"],
    test_files: &["test.bin"],
    label_bytes: 2,
    class_file: "fine_label_names.txt",
    classes: 100,
};

const CIFAR10_CLASSES: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

impl Kind {
    fn remote(&self) -> Remote {
        let url = format!("https://www.cs.toronto.edu/~kriz/{}", self.archive);
        Remote::new(self.archive, [url], Checksum::Md5(self.md5.into()))
    }

    /// The folder with the files, unpacked from the archive if that is there.
    fn locate(&self, root: &Path) -> Result<PathBuf> {
        let first = self.train_files[0];
        for folder in [root.join(self.folder), root.to_path_buf()] {
            if folder.join(first).is_file() {
                return Ok(folder);
            }
        }
        if let Some(archive) = self.remote().find(root)? {
            return self.unpack(&archive, root);
        }
        let python = self.python_names.iter().find(|name| root.join(name).exists());
        let found = match python {
            Some(name) => format!("there is {name}, the version for Python, which only Python can read"),
            None => format!("neither {} nor {} is there", self.folder, self.archive),
        };
        Err(Error::io(format!(
            "{}: no binary version in {}: {found}. Call download, or fetch https://www.cs.toronto.edu/~kriz/{} (MD5 {}) and put it there",
            self.name,
            root.display(),
            self.archive,
            self.md5
        )))
    }

    fn unpack(&self, archive: &Path, root: &Path) -> Result<PathBuf> {
        // Unpacked aside and moved when whole, so that nobody sees half of it.
        let aside = root.join(format!(".{}-{}", self.folder, std::process::id()));
        let target = root.join(self.folder);
        let result = unpack_tar_gz(archive, &aside, UnpackLimits::default()).and_then(|_| {
            match fs::rename(aside.join(self.folder), &target) {
                // Another process was quicker.
                Err(_) if target.join(self.train_files[0]).is_file() => Ok(()),
                other => other.map_err(|e| failed("move the unpacked files to", &target, &e)),
            }
        });
        let _ = fs::remove_dir_all(&aside);
        result.map(|()| target)
    }

    fn download(&self, root: &Path) -> Result<()> {
        if self.locate(root).is_err() {
            let archive = self.remote().fetch(root)?;
            self.unpack(&archive, root)?;
        }
        Ok(())
    }

    fn open(&self, root: &Path, files: &[&str]) -> Result<LabeledImages> {
        let folder = self.locate(root)?;
        let (mut pixels, mut labels) = (Vec::new(), Vec::new());
        for file in files {
            self.read_records(&folder.join(file), &mut pixels, &mut labels)?;
        }
        let images = Tensor::from_slice(&pixels, [labels.len(), CHANNELS, SIDE, SIDE])?;
        LabeledImages::new(images, labels, self.class_names(&folder))
    }

    fn read_records(&self, path: &Path, pixels: &mut Vec<u8>, labels: &mut Vec<i64>) -> Result<()> {
        let record = self.label_bytes + PIXELS;
        let mut file = File::open(path).map_err(|e| failed("open", path, &e))?;
        let bytes = file.metadata().map_err(|e| failed("read", path, &e))?.len();
        let count = usize::try_from(bytes / record as u64).unwrap_or(usize::MAX);
        if bytes % record as u64 != 0 || count == 0 || count > MOST_RECORDS {
            return Err(Error::value(format!(
                "{}: {} has {bytes} bytes, which is not between 1 and {MOST_RECORDS} records of {record} bytes; is it cut off?",
                self.name,
                path.display()
            )));
        }
        pixels.reserve(count * PIXELS);
        labels.reserve(count);
        let mut buffer = vec![0u8; record];
        for number in 0..count {
            file.read_exact(&mut buffer).map_err(|e| failed("read", path, &e))?;
            let (label, image) = buffer.split_at(self.label_bytes);
            let label = label.last().copied().map_or(0, usize::from);
            if label >= self.classes {
                return Err(Error::value(format!(
                    "{}: record {number} of {} has label {label}, but there are {} classes; the file is damaged",
                    self.name,
                    path.display(),
                    self.classes
                )));
            }
            labels.push(label as i64);
            pixels.extend_from_slice(image);
        }
        Ok(())
    }

    /// The names in the folder's list, or else numbers.
    fn class_names(&self, folder: &Path) -> Vec<String> {
        let mut text = String::new();
        let listed = File::open(folder.join(self.class_file))
            .and_then(|file| file.take(1 << 16).read_to_string(&mut text))
            .is_ok();
        let names: Vec<String> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(String::from).collect();
        match listed && names.len() == self.classes {
            true => names,
            false if self.classes == CIFAR10_CLASSES.len() => class_names(&CIFAR10_CLASSES),
            false => (0..self.classes).map(|i| i.to_string()).collect(),
        }
    }
}

macro_rules! public {
    ($name:ident, $kind:ident, $doc:literal) => {
        #[doc = $doc]
        ///
        /// The folder given holds the unpacked binary version, or its archive, which is then checked and unpacked.
        pub struct $name;

        impl $name {
            /// The 50,000 training images.
            pub fn train(root: impl AsRef<Path>) -> Result<LabeledImages> {
                $kind.open(root.as_ref(), $kind.train_files)
            }

            /// The 10,000 test images.
            pub fn test(root: impl AsRef<Path>) -> Result<LabeledImages> {
                $kind.open(root.as_ref(), $kind.test_files)
            }

            /// Fetches and unpacks the set unless it is there.
            pub fn download(root: impl AsRef<Path>) -> Result<()> {
                $kind.download(root.as_ref())
            }

            /// A stand-in of the same shape that can be learned: stripes whose direction, width and colours tell the class.
            pub fn synthetic(count: usize, seed: u64) -> Result<LabeledImages> {
                let names = $kind.class_names(Path::new(""));
                synthetic::stripes(count, [CHANNELS, SIDE, SIDE], names, seed)
            }
        }
    };
}
public!(Cifar10, CIFAR10, "CIFAR-10: 60,000 colour images of 32 x 32 in 10 classes.");
public!(Cifar100, CIFAR100, "CIFAR-100: 60,000 colour images of 32 x 32 in 100 classes.");
