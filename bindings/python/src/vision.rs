//! Images: files, public datasets and transforms of `rushlight-data`, for `rushlight.vision`.

use crate::error::IntoPyResult;
use crate::tensor::{PyTensor, wrap};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rushlight_core::{Error, Result};
use rushlight_data::transform;
use rushlight_data::vision::{
    Cifar10, Cifar100, Colours, DecodeLimits, FashionMnist, LabeledImages, Mnist, decode_image, encode_jpeg,
    encode_png, read_image,
};
use rushlight_tensor::Tensor;
use std::path::PathBuf;

/// A PNG or JPEG file as a colour image `[3, height, width]` of bytes.
#[pyfunction]
#[pyo3(name = "read_image")]
fn read_image_file(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyTensor>> {
    wrap(py, py.detach(|| read_image(&path, DecodeLimits::default())).py()?)
}

/// The bytes of a PNG or JPEG file as an image, with the channels that torchvision's `ImageReadMode` names.
#[pyfunction]
fn decode<'py>(py: Python<'py>, file: &[u8], mode: &str) -> PyResult<Bound<'py, PyTensor>> {
    let colours = match mode {
        "UNCHANGED" => Colours::Unchanged,
        "GRAY" => Colours::Gray,
        "GRAY_ALPHA" => Colours::GrayAlpha,
        "RGB" => Colours::Rgb,
        "RGB_ALPHA" => Colours::RgbAlpha,
        _ => return Err(Error::value(format!("decode_image: unknown mode {mode}"))).py(),
    };
    let bytes = file.to_vec();
    wrap(py, py.detach(|| decode_image(bytes, colours, DecodeLimits::default())).py()?)
}

/// The bytes of a PNG file.
#[pyfunction]
#[pyo3(name = "encode_png")]
fn png_bytes<'py>(image: &Bound<'py, PyTensor>, level: u8) -> PyResult<Bound<'py, PyBytes>> {
    let (py, tensor) = (image.py(), image.get().tensor());
    Ok(PyBytes::new(py, &py.detach(|| encode_png(&tensor, level)).py()?))
}

/// The bytes of a JPEG file.
#[pyfunction]
#[pyo3(name = "encode_jpeg")]
fn jpeg_bytes<'py>(image: &Bound<'py, PyTensor>, quality: u8) -> PyResult<Bound<'py, PyBytes>> {
    let (py, tensor) = (image.py(), image.get().tensor());
    Ok(PyBytes::new(py, &py.detach(|| encode_jpeg(&tensor, quality)).py()?))
}

/// An image resized by bilinear weights, averaged where it shrinks if `antialias`.
#[pyfunction]
fn resize<'py>(
    image: &Bound<'py, PyTensor>,
    height: usize,
    width: usize,
    antialias: bool,
) -> PyResult<Bound<'py, PyTensor>> {
    let (py, tensor) = (image.py(), image.get().tensor());
    wrap(py, py.detach(|| transform::resize(&tensor, [height, width], antialias)).py()?)
}

fn adjusted<'py>(
    image: &Bound<'py, PyTensor>,
    amount: f64,
    adjust: fn(&Tensor, f64) -> Result<Tensor>,
) -> PyResult<Bound<'py, PyTensor>> {
    let (py, tensor) = (image.py(), image.get().tensor());
    wrap(py, py.detach(|| adjust(&tensor, amount)).py()?)
}

macro_rules! adjustments {
    ($($(#[$doc:meta])* $name:ident),*) => {
        $(
            $(#[$doc])*
            #[pyfunction]
            fn $name<'py>(image: &Bound<'py, PyTensor>, amount: f64) -> PyResult<Bound<'py, PyTensor>> {
                adjusted(image, amount, transform::$name)
            }
        )*
    };
}

adjustments! {
    /// The image brighter or darker.
    adjust_brightness,
    /// The image with more or less contrast.
    adjust_contrast,
    /// The image with more or less colour.
    adjust_saturation,
    /// The image with its hues turned.
    adjust_hue
}

/// A colour image in grey.
#[pyfunction]
fn rgb_to_grayscale<'py>(image: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyTensor>> {
    let (py, tensor) = (image.py(), image.get().tensor());
    wrap(py, py.detach(|| transform::rgb_to_grayscale(&tensor)).py()?)
}

type Loaded<'py> = (Bound<'py, PyTensor>, Bound<'py, PyTensor>, Vec<String>);

fn loaded(py: Python<'_>, load: impl FnOnce() -> Result<LabeledImages> + Send) -> PyResult<Loaded<'_>> {
    let set = py.detach(load).py()?;
    Ok((wrap(py, set.images().clone())?, wrap(py, set.labels().clone())?, set.classes().to_vec()))
}

/// Images `[count, 1, 28, 28]` of bytes, labels and the names of the classes, from the official files.
#[pyfunction]
fn mnist(py: Python<'_>, root: PathBuf, fashion: bool, train: bool) -> PyResult<Loaded<'_>> {
    loaded(py, || match (fashion, train) {
        (false, true) => Mnist::train(root),
        (false, false) => Mnist::test(root),
        (true, true) => FashionMnist::train(root),
        (true, false) => FashionMnist::test(root),
    })
}

/// Fetches the files unless they are there.
#[pyfunction]
fn mnist_download(py: Python<'_>, root: PathBuf, fashion: bool) -> PyResult<()> {
    py.detach(|| if fashion { FashionMnist::download(root) } else { Mnist::download(root) }).py()
}

/// Images `[count, 3, 32, 32]` of bytes, labels and the names of the classes, from the binary version.
#[pyfunction]
fn cifar(py: Python<'_>, root: PathBuf, hundred: bool, train: bool) -> PyResult<Loaded<'_>> {
    loaded(py, || match (hundred, train) {
        (false, true) => Cifar10::train(root),
        (false, false) => Cifar10::test(root),
        (true, true) => Cifar100::train(root),
        (true, false) => Cifar100::test(root),
    })
}

/// Fetches and unpacks the binary version unless it is there.
#[pyfunction]
fn cifar_download(py: Python<'_>, root: PathBuf, hundred: bool) -> PyResult<()> {
    py.detach(|| if hundred { Cifar100::download(root) } else { Cifar10::download(root) }).py()
}

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let vision = PyModule::new(module.py(), "rushlight._C._vision")?;
    vision.add_function(wrap_pyfunction!(read_image_file, &vision)?)?;
    vision.add_function(wrap_pyfunction!(decode, &vision)?)?;
    vision.add_function(wrap_pyfunction!(png_bytes, &vision)?)?;
    vision.add_function(wrap_pyfunction!(jpeg_bytes, &vision)?)?;
    vision.add_function(wrap_pyfunction!(resize, &vision)?)?;
    vision.add_function(wrap_pyfunction!(adjust_brightness, &vision)?)?;
    vision.add_function(wrap_pyfunction!(adjust_contrast, &vision)?)?;
    vision.add_function(wrap_pyfunction!(adjust_saturation, &vision)?)?;
    vision.add_function(wrap_pyfunction!(adjust_hue, &vision)?)?;
    vision.add_function(wrap_pyfunction!(rgb_to_grayscale, &vision)?)?;
    vision.add_function(wrap_pyfunction!(mnist, &vision)?)?;
    vision.add_function(wrap_pyfunction!(mnist_download, &vision)?)?;
    vision.add_function(wrap_pyfunction!(cifar, &vision)?)?;
    vision.add_function(wrap_pyfunction!(cifar_download, &vision)?)?;
    module.add("_vision", vision)
}
