//! CIFAR-10 and CIFAR-100, in the binary version and in the one for Python.

use super::{LabeledImages, class_names, synthetic};
use crate::download::{Checksum, Remote, UnpackLimits, failed, unpack_tar_gz};
use rushlight_core::{DType, Error, Result};
use rushlight_io::pickle;
use rushlight_tensor::Tensor;
use rushlight_tensor::state::Value;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

const CHANNELS: usize = 3;
const SIDE: usize = 32;
const PIXELS: usize = CHANNELS * SIDE * SIDE;
/// The largest official file has 50,000 records.
const MAX_RECORDS: usize = 1 << 20;

/// One of the two sets.
struct Kind {
    name: &'static str,
    classes: usize,
    /// Label bytes before the pixels in the binary version; the last of them is the class.
    label_bytes: usize,
    /// Where the version for Python has the labels, and the classes' names.
    label_keys: [&'static str; 2],
    binary: Version,
    python: Version,
}

/// One of the two versions a set comes in.
struct Version {
    archive: &'static str,
    md5: &'static str,
    folder: &'static str,
    train_files: &'static [&'static str],
    test_files: &'static [&'static str],
    /// The file that lists the classes.
    class_file: &'static str,
    read: fn(&Kind, &Path, &mut Records) -> Result<()>,
    class_names: fn(&Kind, &Path) -> Option<Vec<String>>,
}

/// Pictures and their labels, as they are read.
#[derive(Default)]
struct Records {
    pixels: Vec<u8>,
    labels: Vec<i64>,
}

const CIFAR10: Kind = Kind {
    name: "CIFAR-10",
    classes: 10,
    label_bytes: 1,
    label_keys: ["labels", "label_names"],
    binary: Version {
        archive: "cifar-10-binary.tar.gz",
        md5: "c32a1d4ab5d03f1284b67883e8d87530",
        folder: "cifar-10-batches-bin",
        train_files: &[
            "data_batch_1.bin",
            "data_batch_2.bin",
            "data_batch_3.bin",
            "data_batch_4.bin",
            "data_batch_5.bin",
        ],
        test_files: &["test_batch.bin"],
        class_file: "batches.meta.txt",
        read: Kind::read_binary,
        class_names: Kind::names_by_line,
    },
    python: Version {
        archive: "cifar-10-python.tar.gz",
        md5: "c58f30108f718f92721af3b95e74349a",
        folder: "cifar-10-batches-py",
        train_files: &["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"],
        test_files: &["test_batch"],
        class_file: "batches.meta",
        read: Kind::read_pickle,
        class_names: Kind::names_in_pickle,
    },
};

const CIFAR100: Kind = Kind {
    name: "CIFAR-100",
    classes: 100,
    label_bytes: 2,
    label_keys: ["fine_labels", "fine_label_names"],
    binary: Version {
        archive: "cifar-100-binary.tar.gz",
        md5: "03b5dce01913d631647c71ecec9e9cb8",
        folder: "cifar-100-binary",
        train_files: &["train.bin"],
        test_files: &["test.bin"],
        class_file: "fine_label_names.txt",
        read: Kind::read_binary,
        class_names: Kind::names_by_line,
    },
    python: Version {
        archive: "cifar-100-python.tar.gz",
        md5: "eb9058c3a382ffc7106e4002c42a8d85",
        folder: "cifar-100-python",
        train_files: &["train"],
        test_files: &["test"],
        class_file: "meta",
        read: Kind::read_pickle,
        class_names: Kind::names_in_pickle,
    },
};

const CIFAR10_CLASSES: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

impl Version {
    fn remote(&self) -> Remote {
        let url = format!("https://www.cs.toronto.edu/~kriz/{}", self.archive);
        Remote::new(self.archive, [url], Checksum::Md5(self.md5.into()))
    }

    /// The folder with the files, if it is there, or the archive to unpack.
    fn locate(&self, root: &Path) -> Result<Option<PathBuf>> {
        for folder in [root.join(self.folder), root.to_path_buf()] {
            if folder.join(self.train_files[0]).is_file() {
                return Ok(Some(folder));
            }
        }
        self.remote().find(root)?.map(|archive| self.unpack(&archive, root)).transpose()
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
}

impl Kind {
    /// The version that is there, and its folder; the binary one if both are.
    fn locate(&self, root: &Path) -> Result<(&Version, PathBuf)> {
        for version in [&self.binary, &self.python] {
            if let Some(folder) = version.locate(root)? {
                return Ok((version, folder));
            }
        }
        let Version { archive, md5, folder, .. } = self.binary;
        Err(Error::io(format!(
            "{}: there is no {folder} or {archive} in {}, nor {} or {}. Call download, or fetch \
             https://www.cs.toronto.edu/~kriz/{archive} (MD5 {md5}) and put it there",
            self.name,
            root.display(),
            self.python.folder,
            self.python.archive
        )))
    }

    fn download(&self, root: &Path) -> Result<()> {
        if self.locate(root).is_err() {
            let archive = self.binary.remote().fetch(root)?;
            self.binary.unpack(&archive, root)?;
        }
        Ok(())
    }

    fn open(&self, root: &Path, files: fn(&Version) -> &'static [&'static str]) -> Result<LabeledImages> {
        let (version, folder) = self.locate(root)?;
        let mut records = Records::default();
        for file in files(version) {
            (version.read)(self, &folder.join(file), &mut records)?;
        }
        let Records { pixels, labels } = records;
        let images = Tensor::from_slice(&pixels, [labels.len(), CHANNELS, SIDE, SIDE])?;
        let names = (version.class_names)(self, &folder.join(version.class_file));
        let names = names.filter(|names| names.len() == self.classes).unwrap_or_else(|| self.usual_names());
        LabeledImages::new(images, labels, names)
    }

    fn read_binary(&self, path: &Path, records: &mut Records) -> Result<()> {
        let record = self.label_bytes + PIXELS;
        let mut file = File::open(path).map_err(|e| failed("open", path, &e))?;
        let bytes = file.metadata().map_err(|e| failed("read", path, &e))?.len();
        let count = usize::try_from(bytes / record as u64).unwrap_or(usize::MAX);
        if bytes % record as u64 != 0 || count == 0 || count > MAX_RECORDS {
            return Err(Error::value(format!(
                "{}: {} has {bytes} bytes, which is not between 1 and {MAX_RECORDS} records of {record} bytes; is it cut off?",
                self.name,
                path.display()
            )));
        }
        records.pixels.reserve(count * PIXELS);
        records.labels.reserve(count);
        let mut buffer = vec![0u8; record];
        for number in 0..count {
            file.read_exact(&mut buffer).map_err(|e| failed("read", path, &e))?;
            let (label, image) = buffer.split_at(self.label_bytes);
            let label = self.check_label(label.last().copied().map_or(0, i64::from), number, path)?;
            records.labels.push(label);
            records.pixels.extend_from_slice(image);
        }
        Ok(())
    }

    /// A pickled dictionary with a list of labels and an array of pictures.
    fn read_pickle(&self, path: &Path, records: &mut Records) -> Result<()> {
        let within = |e: Error| e.within(self.name);
        let batch = pickle::load(path).map_err(within)?;
        let labels = batch.get(self.label_keys[0]).and_then(Value::as_list).map_err(within)?;
        let data = batch.get("data").and_then(Value::as_tensor).map_err(within)?;
        if data.dtype() != DType::U8 || data.shape() != [labels.len(), PIXELS] || labels.is_empty() {
            return Err(Error::value(format!(
                "{}: {} has {} labels, but data of shape {:?} and dtype {} instead of {PIXELS} uint8 for each",
                self.name,
                path.display(),
                labels.len(),
                data.shape(),
                data.dtype()
            )));
        }
        for (number, label) in labels.iter().enumerate() {
            records.labels.push(self.check_label(label.as_int().map_err(within)?, number, path)?);
        }
        records.pixels.extend(data.to_vec::<u8>()?);
        Ok(())
    }

    fn check_label(&self, label: i64, record: usize, path: &Path) -> Result<i64> {
        if usize::try_from(label).is_ok_and(|l| l < self.classes) {
            return Ok(label);
        }
        Err(Error::value(format!(
            "{}: record {record} of {} has label {label}, but there are {} classes; the file is damaged",
            self.name,
            path.display(),
            self.classes
        )))
    }

    fn names_by_line(&self, path: &Path) -> Option<Vec<String>> {
        let mut text = String::new();
        File::open(path).ok()?.take(1 << 16).read_to_string(&mut text).ok()?;
        Some(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(String::from).collect())
    }

    fn names_in_pickle(&self, path: &Path) -> Option<Vec<String>> {
        let meta = pickle::load(path).ok()?;
        let names = meta.get(self.label_keys[1]).and_then(Value::as_list).ok()?;
        names.iter().map(|name| name.as_str().ok().map(String::from)).collect()
    }

    /// The classes' names where no file lists them: known ones, or numbers.
    fn usual_names(&self) -> Vec<String> {
        match self.classes == CIFAR10_CLASSES.len() {
            true => class_names(&CIFAR10_CLASSES),
            false => (0..self.classes).map(|i| i.to_string()).collect(),
        }
    }
}

macro_rules! public {
    ($name:ident, $kind:ident, $doc:literal) => {
        #[doc = $doc]
        ///
        /// The folder given holds the binary version or the one for Python, unpacked, or as an archive that is then
        /// checked and unpacked.
        pub struct $name;

        impl $name {
            /// The 50,000 training images.
            pub fn train(root: impl AsRef<Path>) -> Result<LabeledImages> {
                $kind.open(root.as_ref(), |version| version.train_files)
            }

            /// The 10,000 test images.
            pub fn test(root: impl AsRef<Path>) -> Result<LabeledImages> {
                $kind.open(root.as_ref(), |version| version.test_files)
            }

            /// Fetches and unpacks the set unless it is there.
            pub fn download(root: impl AsRef<Path>) -> Result<()> {
                $kind.download(root.as_ref())
            }

            /// Synthetic learnable data of the same shape: stripes whose direction, width and colours determine the
            /// class.
            pub fn synthetic(count: usize, seed: u64) -> Result<LabeledImages> {
                synthetic::stripes(count, [CHANNELS, SIDE, SIDE], $kind.usual_names(), seed)
            }
        }
    };
}
public!(Cifar10, CIFAR10, "CIFAR-10: 60,000 colour images of 32 x 32 in 10 classes.");
public!(Cifar100, CIFAR100, "CIFAR-100: 60,000 colour images of 32 x 32 in 100 classes.");
