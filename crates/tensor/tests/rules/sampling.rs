//! `grid_sample`, `affine_grid`, `nms` and the special functions against PyTorch's answers.

use rushlight_core::{DType, ErrorKind, Result};
use rushlight_tensor::autograd::{Backward, grad};
use rushlight_tensor::{BagMode, GridMode, GridPadding, GridSample, Tensor};

#[track_caller]
fn close(got: &Tensor, want: &[f64], tolerance: f64) {
    let got = got.to_vec::<f64>().unwrap();
    assert_eq!(got.len(), want.len(), "{got:?}");
    for (a, b) in got.iter().zip(want) {
        let same = a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= tolerance * b.abs().max(1.0);
        assert!(same, "{got:?} is not {want:?}");
    }
}

/// The gradient of a sum.
fn slope(y: &Tensor, x: &Tensor) -> Result<Tensor> {
    let found = grad(&[&y.sum(..)?], &[x], Backward::default())?.pop().flatten();
    Ok(found.expect("a gradient"))
}

#[test]
fn grids_sample_images() -> Result<()> {
    use GridMode::{Bicubic, Bilinear, Nearest};
    use GridPadding::{Border, Reflection, Zeros};
    let image = Tensor::arange(0.0, 12.0, 1.0)?.reshape([1, 1, 3, 4])?;
    let grid = Tensor::new([-1.2f32, 0.3, 0.1, -0.4, 0.9, 1.3])?.reshape([1, 1, 3, 2])?;
    for (mode, padding, aligned, want) in [
        (Bilinear, Zeros, false, [0.579999, 3.3, 0.385001]),
        (Bilinear, Zeros, true, [3.639999, 4.05, 7.595]),
        (Bilinear, Border, false, [5.8, 3.3, 11.0]),
        (Bilinear, Border, true, [5.2, 4.05, 10.85]),
        (Bilinear, Reflection, false, [5.8, 3.3, 11.0]),
        (Bilinear, Reflection, true, [5.5, 4.05, 9.65]),
        (Nearest, Zeros, false, [0.0, 2.0, 0.0]),
        (Nearest, Zeros, true, [4.0, 6.0, 11.0]),
        (Nearest, Border, false, [4.0, 2.0, 11.0]),
        (Nearest, Reflection, true, [4.0, 6.0, 11.0]),
        (Bicubic, Zeros, false, [0.554538, 3.101065, 0.32126]),
        (Bicubic, Zeros, true, [4.163677, 3.748219, 8.970771]),
        (Bicubic, Border, false, [6.176877, 2.922, 11.117377]),
        (Bicubic, Reflection, false, [6.116127, 2.922, 11.300003]),
        (Bicubic, Reflection, true, [5.867496, 3.343875, 10.48194]),
    ] {
        let options = GridSample::default().mode(mode).padding(padding).align_corners(aligned);
        close(&image.grid_sample(&grid, options)?, &want, 2e-6);
    }
    let volume = Tensor::arange(0.0, 27.0, 1.0)?.reshape([1, 1, 3, 3, 3])?;
    let place = Tensor::new([0.3f32, -0.2, 0.7])?.reshape([1, 1, 1, 1, 3])?;
    let options = GridSample::default().mode(Bicubic);
    close(&volume.grid_sample(&place, options)?, &[23.598412], 2e-6);
    close(&volume.grid_sample(&place, options.align_corners(true))?, &[23.420567], 2e-6);
    assert_eq!(image.grid_sample(&Tensor::zeros([2, 1, 1, 2])?, options).unwrap_err().kind(), ErrorKind::Shape);
    Ok(())
}

#[test]
fn grids_of_affine_maps() -> Result<()> {
    let theta = Tensor::new([1.0, 0.5, 0.25, -0.5, 2.0, 0.0])?.reshape([1, 2, 3])?;
    close(&theta.affine_grid(&[1, 1, 2, 2], false)?, &[-0.5, -0.75, 0.5, -1.25, 0.0, 1.25, 1.0, 0.75], 1e-6);
    close(&theta.affine_grid(&[1, 1, 2, 2], true)?, &[-1.25, -1.5, 0.75, -2.5, -0.25, 2.5, 1.75, 1.5], 1e-6);
    let volume = Tensor::arange(0.0, 12.0, 1.0)?.reshape([1, 3, 4])?;
    close(&volume.affine_grid(&[1, 1, 1, 1, 2], true)?, &[3.0, 3.0, 3.0, 3.0, 11.0, 19.0], 1e-6);
    assert_eq!(theta.affine_grid(&[1, 1, 2], true).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(volume.affine_grid(&[1, 1, 2, 2], true).unwrap_err().kind(), ErrorKind::Shape);
    Ok(())
}

#[test]
fn windows_at_random_places() -> Result<()> {
    let x = Tensor::arange(0.0, 49.0, 1.0)?.reshape([1, 7, 7])?;
    let samples = Tensor::new([0.3f32, 0.6])?.reshape([1, 1, 2])?;
    let (found, places) = x.fractional_max_pool(&[2, 2], &[3, 3], &samples)?;
    let want = [8, 11, 13, 29, 32, 34, 43, 46, 48];
    assert_eq!(places.to_vec::<i64>()?, want);
    assert_eq!(found.to_vec::<i64>()?, want);
    assert!(x.fractional_max_pool(&[2, 2], &[7, 7], &samples).is_err());
    Ok(())
}

#[test]
fn better_boxes_suppress_others() -> Result<()> {
    let boxes = [0.0f32, 0.0, 10.0, 10.0, 1.0, 1.0, 11.0, 11.0, 20.0, 20.0, 30.0, 30.0, 0.0, 0.0, 10.0, 9.0];
    let boxes = Tensor::new(boxes)?.reshape([4, 4])?;
    let scores = Tensor::new([0.5f32, 0.9, 0.1, 0.7])?;
    assert_eq!(boxes.nms(&scores, 0.5)?.to_vec::<i64>()?, [1, 2]);
    assert_eq!(boxes.nms(&scores, 0.65)?.to_vec::<i64>()?, [1, 3, 2]);
    assert_eq!(boxes.nms(&scores, 0.95)?.to_vec::<i64>()?, [1, 3, 0, 2]);
    assert_eq!(boxes.narrow(0, 0, 0)?.nms(&scores.narrow(0, 0, 0)?, 0.5)?.shape(), [0]);
    assert!(boxes.nms(&scores.narrow(0, 0, 2)?, 0.5).is_err());
    Ok(())
}

fn double<const N: usize>(values: [f64; N]) -> Result<Tensor> {
    Tensor::new_with(values, DType::F64)
}

/// Bessel functions satisfy Wronski's identities, on both sides of where one series takes over from another.
#[test]
fn bessel_functions_of_both_kinds() -> Result<()> {
    let x = double([0.02, 0.7, 3.0, 12.9, 13.1, 24.5, 25.5, 60.0])?;
    let identities = [
        x.bessel_j1()?
            .mul(&x.bessel_y0()?)?
            .sub(&x.bessel_j0()?.mul(&x.bessel_y1()?)?)?
            .mul(std::f64::consts::FRAC_PI_2)?,
        x.i0()?.mul(&x.modified_bessel_k1()?)?.add(&x.i1()?.mul(&x.modified_bessel_k0()?)?)?,
        x.i0e()?.mul(&x.scaled_modified_bessel_k1()?)?.add(&x.i1e()?.mul(&x.scaled_modified_bessel_k0()?)?)?,
    ];
    for found in identities {
        for (one, at) in found.mul(&x)?.to_vec::<f64>()?.into_iter().zip(x.to_vec::<f64>()?) {
            assert!((one - 1.0).abs() < 1e-9, "{one} at {at}");
        }
    }
    assert_eq!(double([0.0])?.bessel_j0()?.to_vec::<f64>()?, [1.0]);
    assert_eq!(double([0.0])?.bessel_y1()?.to_vec::<f64>()?, [f64::NEG_INFINITY]);
    assert!(double([-1.0])?.modified_bessel_k0()?.to_vec::<f64>()?[0].is_nan());
    let sine = double([0.0, 2.0])?.spherical_bessel_j0()?.to_vec::<f64>()?;
    assert_eq!(sine, [1.0, 2f64.sin() / 2.0]);
    Ok(())
}

#[test]
fn bags_of_rows() -> Result<()> {
    let rows = double([1.0, 2.0, 4.0, 8.0])?.reshape([4, 1])?;
    let (owner, kept) = (Tensor::new([0i64, 0, 2, 3])?, Tensor::new([true, false, true, true])?);
    // The last row belongs to no bag.
    let by = |mode, kept: Option<&Tensor>| rows.bags(mode, &owner, 3, kept)?.to_vec::<f64>();
    assert_eq!(by(BagMode::Sum, None)?, [3.0, 0.0, 4.0]);
    assert_eq!(by(BagMode::Mean, None)?, [1.5, 0.0, 4.0]);
    assert_eq!(by(BagMode::Max, None)?, [2.0, 0.0, 4.0]);
    assert_eq!(by(BagMode::Mean, Some(&kept))?, [1.0, 0.0, 4.0]);
    assert_eq!(by(BagMode::Max, Some(&kept))?, [1.0, 0.0, 4.0]);
    let even = rows.reshape([2, 2, 1])?;
    let none = Tensor::new([[true, false], [false, false]])?;
    for (mode, whole, part) in [
        (BagMode::Sum, [3.0, 12.0], [1.0, 0.0]),
        (BagMode::Mean, [1.5, 6.0], [1.0, 0.0]),
        (BagMode::Max, [2.0, 8.0], [1.0, 0.0]),
    ] {
        assert_eq!(even.even_bags(mode, None)?.to_vec::<f64>()?, whole);
        assert_eq!(even.even_bags(mode, Some(&none))?.to_vec::<f64>()?, part);
    }
    assert!(
        rows.bags(BagMode::Sum, &owner.narrow(0, 0, 2)?, 3, None).is_err()
            && rows.even_bags(BagMode::Sum, None).is_err()
    );
    // More rows than a half type can count.
    let many = Tensor::ones_with([600, 1], DType::F16)?;
    let owner = Tensor::zeros_with([600], DType::I64)?;
    assert_eq!(many.bags(BagMode::Mean, &owner, 1, None)?.to_dtype(DType::F32)?.to_vec::<f32>()?, [1.0]);
    Ok(())
}

#[test]
fn bessel_and_error_functions() -> Result<()> {
    const INF: f64 = f64::INFINITY;
    let points = [-30.0, -2.0, -0.3, 0.0, 0.7, 5.0, 40.0];
    type Function = fn(&Tensor) -> Result<Tensor>;
    let cases: [(&str, Function, [f64; 7], [f64; 7]); 6] = [
        (
            "i0",
            Tensor::i0,
            [
                781672297823.9775,
                2.279585302336067,
                1.0226268793515967,
                1.0,
                1.1263030183068092,
                27.239871823604442,
                1.48947747934199e+16,
            ],
            [
                -768532038938.9569,
                -1.5906368546373295,
                -0.15169384000359282,
                0.0,
                0.37187967777700853,
                24.335642142450524,
                1.4707396163259354e+16,
            ],
        ),
        (
            "i0e",
            Tensor::i0e,
            [
                0.0731459464822373,
                0.308508322553671,
                0.7575806251825477,
                1.0,
                0.5593055265070683,
                0.18354081260932834,
                0.06327827987523532,
            ],
            [
                0.0012296158835897464,
                0.0932390333047333,
                0.6452030645427088,
                0.0,
                -0.37463554374432106,
                -0.019568545664785997,
                -0.0007960508007932646,
            ],
        ),
        (
            "i1",
            Tensor::i1,
            [
                -768532038938.9569,
                -1.5906368546373295,
                -0.15169384000359282,
                0.0,
                0.37187967777700853,
                24.335642142450524,
                1.4707396163259354e+16,
            ],
            [
                756054563192.679,
                1.484266875017402,
                0.5169807460062873,
                0.5,
                0.5950463357682256,
                22.372743395114338,
                1.4527089889338416e+16,
            ],
        ),
        (
            "i1e",
            Tensor::i1e,
            [
                -0.07191633059864755,
                -0.2152692892489377,
                -0.11237756063983881,
                0.0,
                0.18466998276274726,
                0.16397226694454234,
                0.06248222907444206,
            ],
            [
                -0.0011675951363651765,
                -0.014395611319735546,
                0.2706111957432461,
                0.5,
                0.11082128265468205,
                -0.013225907724122465,
                -0.0007660049260677787,
            ],
        ),
        (
            "erfcx",
            Tensor::erfcx,
            [
                INF,
                108.94090438997797,
                1.4537492328427655,
                1.0,
                0.525930337349441,
                0.11070463773306861,
                0.014100335983377815,
            ],
            [
                -INF,
                -436.8919967270074,
                -2.0006287068011717,
                -std::f64::consts::FRAC_2_SQRT_PI,
                -0.39207669480629526,
                -0.021332789764826332,
                -0.0003522884252873393,
            ],
        ),
        (
            "log_ndtr",
            Tensor::log_ndtr,
            [
                -454.32124395634327,
                -3.7831843336820317,
                -0.9621028181688508,
                -std::f64::consts::LN_2,
                -0.27702394227713123,
                -2.866516129637633e-07,
                -0.0,
            ],
            [
                30.03325966743577,
                2.3732155328228406,
                0.9981659688584834,
                0.7978845608028654,
                0.41192475041929066,
                1.4867199409049054e-06,
                0.0,
            ],
        ),
    ];
    for (name, function, values, slopes) in cases {
        let x = double(points)?.requires_grad_(true)?;
        let y = function(&x)?;
        println!("{name}");
        close(&y, &values, 1e-13);
        close(&slope(&y, &x)?, &slopes, 1e-12);
        let half = function(&Tensor::new([0.5f32])?)?;
        assert_eq!(half.dtype(), DType::F32);
    }
    Ok(())
}

#[test]
fn zeta_and_incomplete_gamma_functions() -> Result<()> {
    let (x, q) = (double([1.5, 3.0, 2.0, 1.0, 0.5])?, double([1.0, 2.5, 0.3, 2.0, 1.0])?);
    let want = [2.612375348685488, 0.11810202582086368, 12.245364546107734, f64::INFINITY, f64::NAN];
    close(&x.zeta(&q)?, &want, 1e-14);
    let a = double([0.5, 3.0, 10.0, 0.0, 2.0])?;
    let x = double([0.2, 4.0, 3.0, 1.0, 0.0])?.requires_grad_(true)?;
    let lower = a.gammainc(&x)?;
    close(&lower, &[0.47291074313446185, 0.7618966944464556, 0.0011024881301154798, 1.0, 0.0], 1e-14);
    close(&a.gammaincc(&x)?, &[0.5270892568655381, 0.2381033055535443, 0.9988975118698845, 0.0, 1.0], 1e-14);
    let slopes = [1.0328830949345564, 0.1465251111098734, 0.002700503931560479, 0.0, 0.0];
    close(&slope(&lower, &x)?, &slopes, 1e-13);
    let a = a.requires_grad_(true)?;
    let error = slope(&a.gammainc(&x)?, &a).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    Ok(())
}

#[test]
fn airys_function() -> Result<()> {
    let x = double([-20.0, -7.5, -1.0, 0.0, 0.5, 3.0, 9.0, f64::INFINITY])?;
    let want = [
        -0.17640612707798434,
        0.3217757163806479,
        0.5355608832923522,
        0.3550280538878172,
        0.23169360648083343,
        0.006591139357460717,
        2.4711684308724904e-09,
        f64::NAN,
    ];
    close(&x.airy_ai()?, &want, 1e-9);
    let x = double([1.0])?.requires_grad_(true)?;
    assert_eq!(slope(&x.airy_ai()?, &x).unwrap_err().kind(), ErrorKind::Unsupported);
    Ok(())
}
