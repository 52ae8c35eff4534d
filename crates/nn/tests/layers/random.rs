//! Random layers.

use rushlight_core::Result;
use rushlight_nn::{
    AlphaDropout, Dropout, Dropout1d, Dropout2d, Dropout3d, FeatureAlphaDropout, Forward, Module, RReLU,
};
use rushlight_tensor::Tensor;

/// The fraction of zeros.
fn zeros(t: &Tensor) -> Result<f64> {
    t.eq(0.0)?.to_dtype(rushlight_core::DType::F64)?.mean(..)?.item()
}

#[test]
fn dropout_zeroes_and_scales() -> Result<()> {
    let layer = Dropout::new(0.25)?;
    let x = Tensor::ones([100, 100])?.requires_grad_(true)?;
    let y = layer.forward(&x)?;
    assert!((zeros(&y)? - 0.25).abs() < 0.03);
    assert!((y.max(..)?.item::<f32>()? - 4.0 / 3.0).abs() < 1e-6);
    y.sum(..)?.backward()?;
    assert!(x.grad().unwrap().equal(&y.detach())?, "the gradient passes where the value did");
    assert_eq!(Dropout::new(1.0)?.forward(&x)?.max(..)?.item::<f32>()?, 0.0);
    assert!(Dropout::new(0.0)?.forward(&x)?.is_same(&x));
    for p in [-0.1, 1.1, f64::NAN] {
        assert!(Dropout::new(p).err().unwrap().to_string().contains("between 0 and 1"));
    }
    Ok(())
}

#[test]
fn channel_dropout_drops_whole_channels() -> Result<()> {
    // Layer, input, and the number of leading dimensions that are dropped independently.
    let cases: [(Box<dyn Forward>, Vec<usize>, usize); 6] = [
        (Box::new(Dropout1d::new(0.5)?), vec![20, 20, 5], 2),
        (Box::new(Dropout1d::new(0.5)?), vec![400, 5], 1),
        (Box::new(Dropout2d::new(0.5)?), vec![20, 20, 3, 2], 2),
        (Box::new(Dropout2d::new(0.5)?), vec![20, 20, 5], 2),
        (Box::new(Dropout3d::new(0.5)?), vec![20, 20, 2, 2, 2], 2),
        (Box::new(Dropout3d::new(0.5)?), vec![400, 2, 2, 2], 1),
    ];
    for (layer, shape, lead) in cases {
        let y = layer.forward(&Tensor::ones(&shape)?)?.flatten(lead as isize, -1)?;
        let (low, high) = (y.amin([-1], false)?, y.amax([-1], false)?);
        assert!(low.equal(&high)?, "{} {shape:?}: a channel is dropped or kept as a whole", layer.type_name());
        assert!((zeros(&low)? - 0.5).abs() < 0.16, "{} {shape:?}", layer.type_name());
        assert_eq!(y.max(..)?.item::<f32>()?, 2.0);
        assert!(layer.forward(&Tensor::ones([7])?).err().unwrap().to_string().contains(layer.type_name()));
    }
    Ok(())
}

#[test]
fn alpha_dropout_keeps_mean_and_variance() -> Result<()> {
    let x = Tensor::randn([200, 200])?;
    let layers: [Box<dyn Forward>; 2] = [Box::new(AlphaDropout::new(0.3)?), Box::new(FeatureAlphaDropout::new(0.3)?)];
    for layer in layers {
        let y = layer.forward(&x)?;
        assert!(y.mean(..)?.item::<f32>()?.abs() < 0.05, "{}", layer.type_name());
        assert!((y.std_dims(.., 0.0, false)?.item::<f32>()? - 1.0).abs() < 0.05, "{}", layer.type_name());
        layer.eval();
        assert!(layer.forward(&x)?.is_same(&x));
    }
    assert_eq!(AlphaDropout::new(1.0)?.forward(&Tensor::ones([3])?)?.to_vec::<f32>()?, [0.0; 3]);
    Ok(())
}

#[test]
fn rrelu_draws_slopes_within_its_bounds() -> Result<()> {
    let x = Tensor::full([1000], -1.0)?.requires_grad_(true)?;
    let layer = RReLU::new().lower(0.2).upper(0.4);
    let y = layer.forward(&x)?;
    let slopes = y.detach().neg()?;
    assert!(slopes.min(..)?.item::<f32>()? >= 0.2 && slopes.max(..)?.item::<f32>()? <= 0.4);
    assert!(slopes.std_dims(.., 0.0, false)?.item::<f32>()? > 0.03);
    y.sum(..)?.backward()?;
    assert!(x.grad().unwrap().equal(&slopes)?);
    assert!(RReLU::new().lower(0.5).upper(0.1).forward(&x).is_err());
    Ok(())
}
