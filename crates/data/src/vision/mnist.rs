//! MNIST and Fashion-MNIST.

use super::idx::read_idx;
use super::{LabeledImages, class_names, synthetic};
use crate::download::{Checksum, Remote};
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use std::path::{Path, PathBuf};

/// One of the sets.
struct Kind {
    name: &'static str,
    /// The folder's name in torchvision's layout, where the files are in its folder `raw`.
    folder: &'static str,
    url: &'static str,
    /// MD5 of the packed files: training images and labels, test images and labels.
    md5: [&'static str; 4],
    classes: [&'static str; 10],
}

const FILES: [&str; 4] =
    ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"];

const MNIST: Kind = Kind {
    name: "MNIST",
    folder: "MNIST",
    url: "https://ossci-datasets.s3.amazonaws.com/mnist/",
    md5: [
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ],
    classes: [
        "0 - zero",
        "1 - one",
        "2 - two",
        "3 - three",
        "4 - four",
        "5 - five",
        "6 - six",
        "7 - seven",
        "8 - eight",
        "9 - nine",
    ],
};

const FASHION: Kind = Kind {
    name: "Fashion-MNIST",
    folder: "FashionMNIST",
    url: "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    md5: [
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ],
    classes: ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"],
};

impl Kind {
    fn remote(&self, file: usize) -> Remote {
        let name = format!("{}.gz", FILES[file]);
        Remote::new(&name, [format!("{}{name}", self.url)], Checksum::Md5(self.md5[file].into()))
    }

    fn raw_folder(&self, root: &Path) -> PathBuf {
        root.join(self.folder).join("raw")
    }

    /// A file, plain or compressed; in torchvision's layout or in the folder itself.
    fn locate(&self, root: &Path, file: usize) -> Result<PathBuf> {
        for folder in [self.raw_folder(root), root.to_path_buf()] {
            for name in [FILES[file].to_string(), format!("{}.gz", FILES[file])] {
                let path = folder.join(name);
                if path.is_file() {
                    return Ok(path);
                }
            }
        }
        Err(Error::io(format!(
            "{}: no {} (or .gz) in {} or its {}/raw. Call download, or fetch {}{}.gz and put it there",
            self.name,
            FILES[file],
            root.display(),
            self.folder,
            self.url,
            FILES[file]
        )))
    }

    fn download(&self, root: &Path) -> Result<()> {
        for file in 0..FILES.len() {
            if self.locate(root, file).is_err() {
                self.remote(file).fetch(&self.raw_folder(root))?;
            }
        }
        Ok(())
    }

    fn open(&self, root: &Path, images: usize, labels: usize) -> Result<LabeledImages> {
        let (sizes, pixels) = read_idx(&self.locate(root, images)?, 3)?;
        let (counts, labels) = read_idx(&self.locate(root, labels)?, 1)?;
        let &[count, height, width] = &sizes[..] else {
            return Err(Error::value(format!("{}: the images have sizes {sizes:?}", self.name)));
        };
        if counts != [count] {
            return Err(Error::value(format!("{}: there are {count} images but {counts:?} labels", self.name)));
        }
        let images = Tensor::from_slice(&pixels, [count, 1, height, width])?;
        LabeledImages::new(images, labels.into_iter().map(i64::from).collect(), class_names(&self.classes))
            .map_err(|e| e.within(self.name))
    }
}

macro_rules! public {
    ($name:ident, $kind:ident, $doc:literal) => {
        #[doc = $doc]
        ///
        /// The files are in the given folder or where torchvision puts them, with or without gzip.
        pub struct $name;

        impl $name {
            /// The 60,000 training images.
            pub fn train(root: impl AsRef<Path>) -> Result<LabeledImages> {
                $kind.open(root.as_ref(), 0, 1)
            }

            /// The 10,000 test images.
            pub fn test(root: impl AsRef<Path>) -> Result<LabeledImages> {
                $kind.open(root.as_ref(), 2, 3)
            }

            /// Fetches the files that are not there, to where torchvision puts them.
            pub fn download(root: impl AsRef<Path>) -> Result<()> {
                $kind.download(root.as_ref())
            }

            /// Synthetic learnable data of the same shape: stripes whose direction and width determine the class.
            pub fn synthetic(count: usize, seed: u64) -> Result<LabeledImages> {
                synthetic::stripes(count, [1, 28, 28], class_names(&$kind.classes), seed)
            }
        }
    };
}
public!(Mnist, MNIST, "MNIST: 70,000 grey images of 28 x 28 of handwritten digits.");
public!(FashionMnist, FASHION, "Fashion-MNIST: 70,000 grey images of 28 x 28 of clothes.");
