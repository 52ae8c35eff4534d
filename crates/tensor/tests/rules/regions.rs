//! Ops over regions of images. torchvision's recorded answers are in the Python front's tests.

use rushlight_core::Result;
use rushlight_tensor::{ConvOptions, DeformConv, PoolRegions, Tensor};

/// The image is a plane, and bilinear samples of a plane are exact: each cell is the plane's value at its centre.
#[test]
fn pooled_regions_of_a_plane_are_its_values() -> Result<()> {
    let image = Tensor::arange(0.0, 64.0, 1.0)?.reshape([1, 1, 8, 8])?.requires_grad_(true)?;
    let boxes = Tensor::new([[0.0, 1.0, 2.0, 5.0, 6.0]])?;
    let found = image.pool_regions(&boxes, [2, 2], PoolRegions::default().aligned(true).sampling_ratio(2))?;
    // Centres (y, x) are (3, 2), (3, 4), (5, 2), (5, 4), half a pixel less in each direction.
    let plane = |y: f32, x: f32| 8.0 * (y - 0.5) + x - 0.5;
    assert_eq!(found.to_vec::<f32>()?, [plane(3.0, 2.0), plane(3.0, 4.0), plane(5.0, 2.0), plane(5.0, 4.0)]);
    found.sum(..)?.backward()?;
    assert!((image.grad().expect("a gradient").sum(..)?.item::<f32>()? - 4.0).abs() < 1e-5);
    assert!(image.pool_regions(&Tensor::zeros([1, 4])?, [2, 2], PoolRegions::default()).is_err());
    Ok(())
}

/// Taps that are not shifted are those of a convolution; a shift by whole pixels moves the image.
#[test]
fn deformable_convolutions() -> Result<()> {
    let close = |a: &Tensor, b: &Tensor| -> Result<bool> { a.allclose(b, 1e-5, 1e-5) };
    let ramp = |shape: &[usize], scale: f64| -> Result<Tensor> {
        let count = shape.iter().product::<usize>() as i64;
        Tensor::arange(0, count, 1)?.mul(scale)?.sin()?.reshape(shape)
    };
    let (x, w, b) = (ramp(&[2, 4, 6, 5], 0.7)?, ramp(&[3, 4, 3, 3], 0.3)?, ramp(&[3], 1.0)?);
    let plain = x.conv2d(&w, Some(&b), ConvOptions::default().padding(1))?;
    let still = Tensor::zeros([2, 18, 6, 5])?;
    let options = DeformConv::default().padding([1, 1]);
    assert!(close(&x.deform_conv2d(&still, &w, Some(&b), None, options)?, &plain)?);
    let half = Tensor::full([2, 9, 6, 5], 0.5)?;
    let masked = x.deform_conv2d(&still, &w, None, Some(&half), options)?;
    assert!(close(&masked, &plain.sub(&b.reshape([1, 3, 1, 1])?)?.mul(0.5)?)?);
    // All taps one pixel down: the result's rows move up by one.
    let down = Tensor::cat(&[&Tensor::ones([2, 9, 1, 6, 5])?, &Tensor::zeros([2, 9, 1, 6, 5])?], 2)?;
    let moved = x.deform_conv2d(&down.reshape([2, 18, 6, 5])?, &w, Some(&b), None, options)?;
    assert!(close(&moved.narrow(2, 0, 5)?, &plain.narrow(2, 1, 5)?)?);
    assert!(x.deform_conv2d(&Tensor::zeros([2, 17, 6, 5])?, &w, None, None, options).is_err());
    Ok(())
}
