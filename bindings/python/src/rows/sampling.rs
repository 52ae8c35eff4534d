//! Sampling of images, boxes, and special functions of `torch.special`.

use crate::rows;
use crate::value::{Out, size, sizes};
use rushlight_core::{Error, Result};
use rushlight_tensor::{BagMode, DeformConv, GridMode, GridPadding, GridSample, PoolRegions, RegionPooling, Tensor};

fn float(input: &Tensor) -> Result<Tensor> {
    if input.dtype().is_float() { Ok(input.clone()) } else { input.to_dtype(crate::dtype::default()) }
}

/// Python's functions have checked the words.
fn grid_sample(input: &Tensor, grid: &Tensor, mode: &str, padding: &str, align_corners: bool) -> Result<Tensor> {
    let mode = match mode {
        "bilinear" => GridMode::Bilinear,
        "nearest" => GridMode::Nearest,
        "bicubic" => GridMode::Bicubic,
        _ => return Err(Error::value(format!("grid_sample: unknown mode '{mode}'"))),
    };
    let padding = match padding {
        "zeros" => GridPadding::Zeros,
        "border" => GridPadding::Border,
        "reflection" => GridPadding::Reflection,
        _ => return Err(Error::value(format!("grid_sample: unknown padding_mode '{padding}'"))),
    };
    input.grid_sample(grid, GridSample::default().mode(mode).padding(padding).align_corners(align_corners))
}

/// Two sizes, for height and width.
fn two(name: &str, values: &[i64]) -> Result<[usize; 2]> {
    let found = sizes(values)?;
    found.as_slice().try_into().map_err(|_| Error::value(format!("{name}: expected two sizes, got {values:?}")))
}

/// Python's functions have checked the word.
fn pool_regions(
    (input, boxes): (&Tensor, &Tensor),
    size: &[i64],
    pooling: &str,
    (scale, ratio): (f64, i64),
    (aligned, position_sensitive): (bool, bool),
) -> Result<Tensor> {
    let pooling = match pooling {
        "align" => RegionPooling::Align,
        "max" => RegionPooling::Max,
        "mean" => RegionPooling::Mean,
        _ => return Err(Error::value(format!("pool_regions: unknown pooling '{pooling}'"))),
    };
    let options = PoolRegions::default().pooling(pooling).spatial_scale(scale).sampling_ratio(ratio.max(0) as usize);
    input.pool_regions(
        boxes,
        two("pool_regions", size)?,
        options.aligned(aligned).position_sensitive(position_sensitive),
    )
}

fn deform_conv2d(
    [input, offset, weight]: [&Tensor; 3],
    [bias, mask]: [Option<&Tensor>; 2],
    [stride, padding, dilation]: [&[i64]; 3],
) -> Result<Tensor> {
    let options = DeformConv::default().stride(two("deform_conv2d", stride)?).padding(two("deform_conv2d", padding)?);
    input.deform_conv2d(offset, weight, bias, mask, options.dilation(two("deform_conv2d", dilation)?))
}

rows! { ROWS:
    /// Pixels of images at places between -1 and 1.
    _grid_sample [Functional] "_grid_sample(Tensor input, Tensor grid, str mode, str padding_mode, bool align_corners)"
        |input: &Tensor, grid: &Tensor, mode: &str, padding: &str, align_corners: bool| grid_sample(input, grid, mode, padding, align_corners);
    /// The sampling grid of affine maps.
    _affine_grid [Functional] "_affine_grid(Tensor theta, int[] size, bool align_corners)"
        |theta: &Tensor, size: &[i64], align_corners: bool| theta.affine_grid(&sizes(size)?, align_corners);
    /// Indices of boxes that no better box overlaps.
    _nms [Functional] "_nms(Tensor boxes, Tensor scores, float iou_threshold)"
        |boxes: &Tensor, scores: &Tensor, threshold: f64| boxes.nms(scores, threshold);
    /// Values of bins of regions of feature maps.
    _pool_regions [Functional] "_pool_regions(Tensor input, Tensor boxes, int[] size, str pooling, float spatial_scale, int sampling_ratio, bool aligned, bool position_sensitive)"
        |input: &Tensor, boxes: &Tensor, size: &[i64], pooling: &str, scale: f64, ratio: i64, aligned: bool, sensitive: bool|
        pool_regions((input, boxes), size, pooling, (scale, ratio), (aligned, sensitive));
    /// A convolution whose taps are shifted.
    _deform_conv2d [Functional] "_deform_conv2d(Tensor input, Tensor offset, Tensor weight, Tensor? bias, Tensor? mask, int[] stride, int[] padding, int[] dilation)"
        |input: &Tensor, offset: &Tensor, weight: &Tensor, bias: Option<&Tensor>, mask: Option<&Tensor>, stride: &[i64], padding: &[i64], dilation: &[i64]|
        deform_conv2d([input, offset, weight], [bias, mask], [stride, padding, dilation]);
    /// Largest elements of windows at random places, and their indices.
    _fractional_max_pool [Functional] "_fractional_max_pool(Tensor input, int[] kernel_size, int[] output_size, Tensor samples)"
        |input: &Tensor, kernel: &[i64], output: &[i64], samples: &Tensor|
        input.fractional_max_pool(&sizes(kernel)?, &sizes(output)?, samples).map(|(found, places)| Out::Tuple(vec![found, places]));
    /// Rows reduced by bags: of one length, or by their owners.
    _bags [Functional] "_bags(Tensor rows, str mode, Tensor? owner, int bags, Tensor? kept)"
        |rows: &Tensor, mode: &str, owner: Option<&Tensor>, bags: i64, kept: Option<&Tensor>| {
            let mode = BagMode::by_name(mode)?;
            match owner {
                Some(owner) => rows.bags(mode, owner, size(bags, "embedding_bag: bags")?, kept),
                None => rows.even_bags(mode, kept),
            }
        };
    /// Modified Bessel function of the first kind of order 0.
    i0 [Torch Method Inplace Special] "i0(Tensor input)" |input: &Tensor| float(input)?.i0();
    /// The same, times `exp(-|x|)`.
    i0e [Special] "i0e(Tensor input)" |input: &Tensor| float(input)?.i0e();
    /// Modified Bessel function of the first kind of order 1.
    i1 [Special] "i1(Tensor input)" |input: &Tensor| float(input)?.i1();
    /// The same, times `exp(-|x|)`.
    i1e [Special] "i1e(Tensor input)" |input: &Tensor| float(input)?.i1e();
    /// Airy's function of the first kind.
    airy_ai [Special] "airy_ai(Tensor input)" |input: &Tensor| float(input)?.airy_ai();
    /// Bessel function of the first kind of order 0.
    bessel_j0 [Special] "bessel_j0(Tensor input)" |input: &Tensor| float(input)?.bessel_j0();
    /// Bessel function of the first kind of order 1.
    bessel_j1 [Special] "bessel_j1(Tensor input)" |input: &Tensor| float(input)?.bessel_j1();
    /// Bessel function of the second kind of order 0.
    bessel_y0 [Special] "bessel_y0(Tensor input)" |input: &Tensor| float(input)?.bessel_y0();
    /// Bessel function of the second kind of order 1.
    bessel_y1 [Special] "bessel_y1(Tensor input)" |input: &Tensor| float(input)?.bessel_y1();
    /// Modified Bessel function of the first kind of order 0.
    modified_bessel_i0 [Special] "modified_bessel_i0(Tensor input)" |input: &Tensor| float(input)?.i0();
    /// Modified Bessel function of the first kind of order 1.
    modified_bessel_i1 [Special] "modified_bessel_i1(Tensor input)" |input: &Tensor| float(input)?.i1();
    /// Modified Bessel function of the second kind of order 0.
    modified_bessel_k0 [Special] "modified_bessel_k0(Tensor input)" |input: &Tensor| float(input)?.modified_bessel_k0();
    /// Modified Bessel function of the second kind of order 1.
    modified_bessel_k1 [Special] "modified_bessel_k1(Tensor input)" |input: &Tensor| float(input)?.modified_bessel_k1();
    /// The same of order 0, times `exp(x)`.
    scaled_modified_bessel_k0 [Special] "scaled_modified_bessel_k0(Tensor input)" |input: &Tensor| float(input)?.scaled_modified_bessel_k0();
    /// The same of order 1, times `exp(x)`.
    scaled_modified_bessel_k1 [Special] "scaled_modified_bessel_k1(Tensor input)" |input: &Tensor| float(input)?.scaled_modified_bessel_k1();
    /// `sin(x) / x`, one at zero.
    spherical_bessel_j0 [Special] "spherical_bessel_j0(Tensor input)" |input: &Tensor| float(input)?.spherical_bessel_j0();
    /// `exp(x^2) erfc(x)`.
    erfcx [Special] "erfcx(Tensor input)" |input: &Tensor| float(input)?.erfcx();
    /// Logarithm of the normal distribution function.
    log_ndtr [Special] "log_ndtr(Tensor input)" |input: &Tensor| float(input)?.log_ndtr();
    /// Hurwitz's zeta function.
    _zeta [Special] "_zeta(Tensor input, Tensor other)" |x: &Tensor, q: &Tensor| float(x)?.zeta(&float(q)?);
    /// Regularised lower incomplete gamma function.
    _gammainc [Special] "_gammainc(Tensor input, Tensor other)" |a: &Tensor, x: &Tensor| float(a)?.gammainc(&float(x)?);
    /// Regularised upper incomplete gamma function.
    _gammaincc [Special] "_gammaincc(Tensor input, Tensor other)" |a: &Tensor, x: &Tensor| float(a)?.gammaincc(&float(x)?);
}
