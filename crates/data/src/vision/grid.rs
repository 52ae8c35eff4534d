//! Grids of images, and images as files.

use super::{encode_jpeg, encode_png};
use rushlight_core::{DType, Error, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::no_grad;
use std::path::Path;

/// Pixels between the images of a grid.
const PADDING: usize = 2;

/// Images `[count, channels, height, width]` side by side in one image, `columns` in a row, with two black pixels
/// between them: torchvision's `make_grid`. Grey images become coloured. One image alone, `[channels, height, width]`
/// or `[height, width]`, stays as it is.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_data as data; }
/// use rushlight::{Tensor, data::vision::make_grid};
/// let digits = Tensor::rand([10, 1, 28, 28])?;
/// assert_eq!(make_grid(&digits, 4)?.shape(), [3, 92, 122]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
pub fn make_grid(images: &Tensor, columns: usize) -> Result<Tensor> {
    let images = match images.rank() {
        2 => images.unsqueeze(0)?.unsqueeze(0)?,
        3 => images.unsqueeze(0)?,
        _ => images.clone(),
    };
    let &[count, channels, height, width] = images.shape() else {
        return Err(Error::shape(format!(
            "make_grid: expects images [count, channels, height, width], got {:?}",
            images.shape()
        )));
    };
    if columns == 0 || count == 0 {
        return Err(Error::value(format!("make_grid: {count} images in {columns} columns make no grid")));
    }
    no_grad(|| {
        let images = images.detach();
        let images = if channels == 1 { images.expand([count, 3, height, width])? } else { images };
        if count == 1 {
            return images.squeeze(0);
        }
        let (columns, channels) = (columns.min(count), images.shape()[1]);
        let (down, across) = (height + PADDING, width + PADDING);
        let size = [channels, down * count.div_ceil(columns) + PADDING, across * columns + PADDING];
        let grid = Tensor::zeros_with(size, (images.dtype(), images.device()))?;
        for k in 0..count {
            let (top, left) = (k / columns * down + PADDING, k % columns * across + PADDING);
            let place = grid.narrow(1, top as isize, height)?.narrow(2, left as isize, width)?;
            place.copy_(&images.select(0, k as isize)?)?;
        }
        Ok(grid)
    })
}

/// Writes an image, or a grid of images with eight columns, to a `.png`, `.jpg` or `.jpeg` file: torchvision's
/// `save_image`. Floats are from 0 to 1; `uint8` is written as it is.
///
/// ```
/// # mod rushlight { pub use rushlight_tensor::*; pub use rushlight_data as data; }
/// use rushlight::{Tensor, data::vision::{read_image, save_image}};
/// let path = std::env::temp_dir().join("rushlight-doc-grid.png");
/// save_image(&Tensor::rand([16, 3, 32, 32])?, &path)?;
/// assert_eq!(read_image(&path, Default::default())?.shape(), [3, 70, 274]);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[doc(alias("write_png", "write_jpeg"))]
pub fn save_image(images: &Tensor, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let grid = make_grid(images, 8)?;
    let bytes = match grid.dtype() {
        DType::U8 => grid,
        dtype if dtype.is_float() => {
            no_grad(|| grid.to_dtype(DType::F32)?.mul(255.0)?.add(0.5)?.clamp(0.0, 255.0)?.to_dtype(DType::U8))?
        }
        dtype => return Err(Error::dtype(format!("save_image: takes floats from 0 to 1 or uint8, got {dtype}"))),
    };
    let bytes = bytes.to(rushlight_core::Device::Cpu)?;
    let file = match path.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase).as_deref() {
        Some("png") => encode_png(&bytes, 6)?,
        Some("jpg" | "jpeg") => encode_jpeg(&bytes, 75)?,
        _ => {
            return Err(Error::value(format!(
                "save_image: the name must end in .png, .jpg or .jpeg, got '{}'",
                path.display()
            )));
        }
    };
    std::fs::write(path, file).map_err(|e| Error::io(format!("save_image: cannot write '{}': {e}", path.display())))
}
