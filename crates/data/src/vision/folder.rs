//! Folders of images.

use super::decode::{DecodeLimits, read_image};
use crate::dataset::{Dataset, out_of_range};
use crate::download::failed;
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use std::fs;
use std::path::{Path, PathBuf};

/// Deeper folders than this are taken for a loop of links.
const DEEPEST: usize = 32;

/// Images in one folder per class, as `root/dog/1.png`, `root/cat/…/2.jpeg`. Classes and files are sorted by name, so
/// the order is the same everywhere.
#[derive(Clone, Debug)]
pub struct ImageFolder {
    samples: Vec<(PathBuf, i64)>,
    classes: Vec<String>,
    limits: DecodeLimits,
}

impl ImageFolder {
    /// The PNG and JPEG files under a folder.
    pub fn new(root: impl AsRef<Path>) -> Result<Self> {
        let root = root.as_ref();
        let mut classes: Vec<String> = entries(root)?
            .into_iter()
            .filter(|path| path.is_dir())
            .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
            .collect();
        classes.sort();
        if classes.is_empty() {
            return Err(Error::value(format!("ImageFolder: {} has no folders, one per class", root.display())));
        }
        let mut samples = Vec::new();
        for (label, class) in classes.iter().enumerate() {
            let before = samples.len();
            collect(&root.join(class), label as i64, 0, &mut samples)?;
            if samples.len() == before {
                return Err(Error::value(format!("ImageFolder: class '{class}' has no .png, .jpg or .jpeg files")));
            }
        }
        Ok(Self { samples, classes, limits: DecodeLimits::default() })
    }

    /// How large a file and its image may be.
    pub fn limits(mut self, limits: DecodeLimits) -> Self {
        self.limits = limits;
        self
    }

    /// The classes' names, by label.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Paths and labels of all samples.
    pub fn samples(&self) -> &[(PathBuf, i64)] {
        &self.samples
    }
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| failed("read the folder", folder, &e))? {
        paths.push(entry.map_err(|e| failed("read the folder", folder, &e))?.path());
    }
    paths.sort();
    Ok(paths)
}

fn collect(folder: &Path, label: i64, depth: usize, samples: &mut Vec<(PathBuf, i64)>) -> Result<()> {
    if depth > DEEPEST {
        return Err(Error::value(format!("ImageFolder: {} is nested too deeply", folder.display())));
    }
    let (folders, files): (Vec<_>, Vec<_>) = entries(folder)?.into_iter().partition(|path| path.is_dir());
    let image = |path: &PathBuf| {
        let extension = path.extension().map(|e| e.to_ascii_lowercase());
        extension.is_some_and(|e| e == "png" || e == "jpg" || e == "jpeg")
    };
    samples.extend(files.into_iter().filter(image).map(|path| (path, label)));
    folders.iter().try_for_each(|inner| collect(inner, label, depth + 1, samples))
}

impl Dataset for ImageFolder {
    type Item = (Tensor, i64);

    fn len(&self) -> usize {
        self.samples.len()
    }

    fn get(&self, index: usize) -> Result<(Tensor, i64)> {
        match self.samples.get(index) {
            Some((path, label)) => Ok((read_image(path, self.limits)?, *label)),
            None => Err(out_of_range("ImageFolder", index, self.samples.len())),
        }
    }
}
