//! Products, convolutions, pooling, normalisation, losses, attention and interpolation: derivatives twice over, errors,
//! odd shapes.

use rushlight_core::{DType, Error, ErrorKind, Result};
use rushlight_tensor::autograd::{gradcheck, gradgradcheck};
use rushlight_tensor::*;

/// Values without a pattern, between -1 and 1.
fn values(shape: &[usize], seed: usize) -> Result<Tensor> {
    let n = shape.iter().product::<usize>();
    Tensor::from_iter((0..n).map(|i| (((i * 37 + seed * 101 + 11) % 1009) as f64 * 12.9898).sin()))?.reshape(shape)
}

fn inputs(shapes: &[&[usize]]) -> Result<Vec<Tensor>> {
    shapes.iter().enumerate().map(|(i, shape)| values(shape, i)?.requires_grad_(true)).collect()
}

/// First and second derivatives against differences.
fn twice(shapes: &[&[usize]], f: impl Fn(&[Tensor]) -> Result<Tensor>) -> Result<()> {
    let xs = inputs(shapes)?;
    let f = |xs: &[Tensor]| Ok(vec![f(xs)?]);
    gradcheck(f, &xs)?;
    gradgradcheck(f, &xs)
}

fn fails(result: Result<Tensor>, kind: ErrorKind, text: &str) {
    let Err(e) = result else { panic!("expected an error with {text:?}") };
    assert_eq!(e.kind(), kind, "{e}");
    assert!(e.to_string().contains(text), "{e}");
}

#[test]
fn products_twice() -> Result<()> {
    twice(&[&[2, 3], &[3, 4]], |x| x[0].matmul(&x[1]))?;
    twice(&[&[2, 2, 3], &[3, 2]], |x| x[0].matmul(&x[1]))?;
    twice(&[&[2, 1, 2, 3], &[3, 3, 2]], |x| x[0].matmul(&x[1]))?;
    twice(&[&[3], &[2, 3, 2]], |x| x[0].matmul(&x[1]))?;
    twice(&[&[2, 2, 3], &[4, 3], &[4]], |x| x[0].linear(&x[1], Some(&x[2])))?;
    twice(&[&[2], &[2, 3], &[3, 2]], |x| x[0].addmm(&x[1], &x[2], 0.5, 2.0))?;
    twice(&[&[2, 2, 3], &[2, 2, 4], &[2, 4, 3]], |x| x[0].baddbmm(&x[1], &x[2], 0.5, 2.0))?;
    twice(&[&[2, 3], &[2, 2], &[2, 3, 2], &[2]], |x| x[0].bilinear(&x[1], &x[2], Some(&x[3])))?;
    twice(&[&[2, 3], &[2, 2], &[2, 3, 2]], |x| einsum("bi,bj,bij->b", &[&x[0], &x[1], &x[2]]))?;
    twice(&[&[3, 3]], |x| einsum("ii->i", &[&x[0]]))
}

/// Attention heads are strided views whose batch dimensions do not merge; nothing is copied, so the engine walks over
/// them.
#[test]
fn batches_of_strided_heads() -> Result<()> {
    let heads = |seed| values(&[2, 3, 4, 5], seed)?.transpose(1, 2);
    let (q, k) = (heads(1)?, heads(2)?);
    let got = q.matmul(&k.transpose(-2, -1)?)?;
    let want = q.contiguous()?.matmul(&k.contiguous()?.transpose(-2, -1)?.contiguous()?)?;
    assert_eq!(got.shape(), [2, 4, 3, 3]);
    assert!(got.allclose(&want, 1e-12, 1e-12)?);
    Ok(())
}

#[test]
fn product_errors() -> Result<()> {
    let (a, b) = (Tensor::ones([2, 3])?, Tensor::ones([4, 5])?);
    fails(a.matmul(&b), ErrorKind::Shape, "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)");
    fails(a.linear(&b, None), ErrorKind::Shape, "mat1 and mat2 shapes cannot be multiplied (2x3 and 5x4)");
    let wide = Tensor::ones_with([3, 2], DType::F64)?;
    fails(a.mm(&wide), ErrorKind::DType, "expected m1 and m2 to have the same dtype, but got: float != double");
    fails(a.matmul(&Tensor::scalar(1.0)?), ErrorKind::Shape, "at least 1D");
    fails(a.bmm(&b), ErrorKind::Shape, "3-dimensional");
    fails(a.mv(&Tensor::ones([2])?), ErrorKind::Shape, "size mismatch");
    let flags = Tensor::ones_with([2, 2], DType::Bool)?;
    fails(flags.mm(&flags), ErrorKind::DType, "not implemented for bool");
    let whole = Tensor::ones_with([2, 2], DType::I64)?;
    fails(whole.addmm(&whole, &whole, 0.5, 1), ErrorKind::DType, "integral");
    Ok(())
}

#[test]
fn empty_products() -> Result<()> {
    let zeros = |shape: &[usize]| Tensor::zeros_with(shape, DType::F32);
    assert_eq!(zeros(&[0, 3])?.matmul(&zeros(&[3, 2])?)?.shape(), [0, 2]);
    assert_eq!(zeros(&[2, 0])?.matmul(&zeros(&[0, 3])?)?.to_vec::<f32>()?, [0.0; 6]);
    assert_eq!(zeros(&[4, 0, 3])?.matmul(&zeros(&[3, 2])?)?.shape(), [4, 0, 2]);
    let bias = Tensor::ones([3])?;
    assert_eq!(zeros(&[2, 0])?.linear(&zeros(&[3, 0])?, Some(&bias))?.to_vec::<f32>()?, [1.0; 6]);
    assert_eq!(zeros(&[0])?.dot(&zeros(&[0])?)?.item::<f32>()?, 0.0);
    Ok(())
}

#[test]
fn einsum_errors() -> Result<()> {
    let x = Tensor::ones([2, 3])?;
    fails(einsum("i->i", &[&x]), ErrorKind::Shape, "does not match the number of dimensions (2) for operand 0");
    fails(einsum("ij,jk", &[&x]), ErrorKind::Value, "fewer operands");
    fails(einsum("ij->ik", &[&x]), ErrorKind::Value, "output subscript k");
    fails(einsum("ij->ii", &[&x]), ErrorKind::Value, "more than once");
    fails(einsum("ii->i", &[&x]), ErrorKind::Shape, "repeated");
    fails(einsum("i1->i", &[&x]), ErrorKind::Value, "invalid subscript '1'");
    fails(einsum("......", &[&x]), ErrorKind::Value, "more than one ellipsis");
    fails(einsum("ij,jk->ik", &[&x, &x]), ErrorKind::Shape, "do not broadcast");
    fails(einsum("é", &[&x]), ErrorKind::Value, "invalid subscript");
    Ok(())
}

#[test]
fn convolutions_twice() -> Result<()> {
    let options = ConvOptions::default().stride(2).padding(1);
    twice(&[&[1, 2, 5], &[2, 2, 3], &[2]], |x| x[0].conv1d(&x[1], Some(&x[2]), options))?;
    let grouped = ConvOptions::default().groups(2).padding([1, 0]).dilation([1, 2]);
    twice(&[&[1, 2, 3, 4], &[2, 1, 2, 2], &[2]], |x| x[0].conv2d(&x[1], Some(&x[2]), grouped))?;
    let same = ConvOptions::default().padding(Padding::Same);
    twice(&[&[2, 3, 3], &[1, 2, 2, 2]], |x| x[0].conv2d(&x[1], None, same))?;
    let transposed = ConvTransposeOptions::default().stride(2).padding(1).output_padding(1);
    twice(&[&[1, 2, 3], &[2, 2, 3], &[2]], |x| x[0].conv_transpose1d(&x[1], Some(&x[2]), transposed))
}

#[test]
fn convolution_shapes_and_errors() -> Result<()> {
    let (x, w) = (Tensor::ones([2, 5, 5])?, Tensor::ones([3, 2, 3, 3])?);
    let plain = ConvOptions::default();
    assert_eq!(x.conv2d(&w, None, plain)?.shape(), [3, 3, 3]);
    assert_eq!(Tensor::ones([0, 2, 5, 5])?.conv2d(&w, None, plain)?.shape(), [0, 3, 3, 3]);
    fails(
        Tensor::ones([1, 3, 5, 5])?.conv2d(&w, None, plain),
        ErrorKind::Shape,
        "to have 2 channels, but got 3 channels",
    );
    fails(Tensor::ones([1, 2, 2, 2])?.conv2d(&w, None, plain), ErrorKind::Shape, "Kernel size can't be greater");
    fails(Tensor::ones([5, 5])?.conv2d(&w, None, plain), ErrorKind::Shape, "3D (unbatched) or 4D (batched)");
    fails(x.conv2d(&w, None, plain.stride(0)), ErrorKind::Value, "non-positive stride");
    fails(x.conv2d(&w, None, plain.stride([1, 1, 1])), ErrorKind::Value, "stride must be a single integer or 2");
    fails(x.conv2d(&w, None, plain.groups(0)), ErrorKind::Value, "non-positive groups");
    fails(x.conv2d(&w, None, plain.groups(2)), ErrorKind::Shape, "divisible by 2");
    fails(x.conv2d(&w, None, plain.stride(2).padding(Padding::Same)), ErrorKind::Value, "strided");
    fails(x.conv2d(&w, None, plain.padding(usize::MAX)), ErrorKind::Shape, "is larger than");
    fails(
        x.conv2d(&w, Some(&Tensor::ones([2])?), plain),
        ErrorKind::Shape,
        "expected bias to be 1-dimensional with 3 elements",
    );
    let half = Tensor::ones_with([3, 2, 3, 3], DType::F16)?;
    fails(x.conv2d(&half, None, plain), ErrorKind::DType, "should be the same");
    let grown = ConvTransposeOptions::default().output_padding(1);
    fails(
        Tensor::ones([1, 3, 2, 2])?.conv_transpose2d(&w, None, grown),
        ErrorKind::Value,
        "output padding must be smaller",
    );
    let cut = ConvTransposeOptions::default().padding(2);
    fails(Tensor::ones([1, 3, 1, 1])?.conv_transpose2d(&w, None, cut), ErrorKind::Shape, "output size is too small");
    Ok(())
}

#[test]
fn pooling_twice() -> Result<()> {
    let window = MaxPool::new(3).stride(2).padding(1).ceil_mode(true);
    twice(&[&[1, 2, 4, 5]], |x| x[0].max_pool2d(window))?;
    twice(&[&[2, 7]], |x| x[0].max_pool1d(2))?;
    let window = AvgPool::new([2, 3]).stride(2).padding(1).count_include_pad(false);
    twice(&[&[1, 2, 4, 5]], |x| x[0].avg_pool2d(window))?;
    twice(&[&[2, 7]], |x| x[0].adaptive_avg_pool1d(3))?;
    twice(&[&[2, 4, 5]], |x| x[0].adaptive_max_pool2d([Some(3), None]))
}

#[test]
fn pooling_errors() -> Result<()> {
    let x = Tensor::ones([2, 4, 4])?;
    fails(x.max_pool2d(5), ErrorKind::Shape, "output size is too small");
    fails(x.max_pool2d(MaxPool::new(2).padding(2)), ErrorKind::Value, "pad should be at most half");
    fails(x.max_pool2d(0), ErrorKind::Value, "non-positive kernel_size");
    fails(x.avg_pool2d(AvgPool::new(2).divisor_override(0)), ErrorKind::Value, "divisor");
    fails(x.max_pool1d([1, 2]), ErrorKind::Value, "kernel_size must be a single integer");
    fails(Tensor::ones([4])?.max_pool1d(2), ErrorKind::Shape, "2D or 3D");
    fails(Tensor::ones_with([1, 4], DType::I64)?.avg_pool1d(2), ErrorKind::DType, "floating point");
    assert_eq!(Tensor::ones([0, 2, 4, 4])?.max_pool2d(2)?.shape(), [0, 2, 2, 2]);
    fails(x.max_pool3d(2), ErrorKind::Shape, "4D or 5D");
    let x = Tensor::ones([1, 2, 4, 4])?;
    fails(x.max_pool3d([5, 1, 1]), ErrorKind::Shape, "output size is too small");
    fails(x.avg_pool3d([1, 2]), ErrorKind::Value, "3 integers");
    fails(x.avg_pool3d(AvgPool::new(2).divisor_override(0)), ErrorKind::Value, "divisor");
    fails(x.adaptive_avg_pool3d([1, 2]), ErrorKind::Value, "1 or 3 numbers");
    assert_eq!(Tensor::ones([0, 2, 4, 4, 4])?.max_pool3d(2)?.shape(), [0, 2, 2, 2, 2]);
    Ok(())
}

#[test]
fn normalisations_twice() -> Result<()> {
    twice(&[&[2, 3]], |x| x[0].softmax(1))?;
    twice(&[&[2, 3]], |x| x[0].log_softmax(0))?;
    twice(&[&[3, 4], &[4], &[4]], |x| x[0].layer_norm(&[4], Some(&x[1]), Some(&x[2]), 1e-5))?;
    twice(&[&[3, 4], &[4]], |x| x[0].rms_norm(&[4], Some(&x[1]), Some(1e-3)))?;
    twice(&[&[2, 4, 3], &[4], &[4]], |x| x[0].group_norm(2, Some(&x[1]), Some(&x[2]), 1e-5))?;
    twice(&[&[2, 2, 4]], |x| x[0].instance_norm(&InstanceNormOptions::default()))?;
    twice(&[&[4, 2, 2], &[2], &[2]], |x| {
        x[0].batch_norm(&BatchNormOptions::default().weight(&x[1]).bias(&x[2]).training(true))
    })?;
    let (mean, var) = (values(&[2], 8)?, values(&[2], 9)?.abs()?);
    twice(&[&[4, 2, 2], &[2], &[2]], |x| {
        x[0].batch_norm(&BatchNormOptions::default().running_mean(&mean).running_var(&var).weight(&x[1]).bias(&x[2]))
    })?;
    twice(&[&[3, 4]], |x| x[0].normalize(2.0, 1, 1e-12))?;
    twice(&[&[3, 4], &[3, 4]], |x| x[0].cosine_similarity(&x[1], 1, 1e-8))?;
    twice(&[&[3, 2], &[4, 2]], |x| x[0].cdist(&x[1], 2.0))
}

#[test]
fn running_statistics_move() -> Result<()> {
    let x = Tensor::new([[1.0f32], [3.0], [5.0]])?;
    let (mean, var) = (Tensor::zeros([1])?, Tensor::ones([1])?);
    let options = BatchNormOptions::default().running_mean(&mean).running_var(&var).momentum(0.5);
    x.batch_norm(&options.training(true))?;
    assert!((mean.item::<f64>()? - 1.5).abs() < 1e-6);
    assert!((var.item::<f64>()? - 2.5).abs() < 1e-5, "{}", var.item::<f64>()?);
    x.batch_norm(&options)?;
    assert!((mean.item::<f64>()? - 1.5).abs() < 1e-6, "evaluation leaves them alone");
    Ok(())
}

#[test]
fn norm_errors_and_empty_inputs() -> Result<()> {
    let x = Tensor::ones([2, 3])?;
    fails(x.layer_norm(&[4], None, None, 1e-5), ErrorKind::Shape, "normalized_shape=[4]");
    fails(x.layer_norm(&[], None, None, 1e-5), ErrorKind::Shape, "at least 1-dimensional");
    fails(
        x.layer_norm(&[3], Some(&Tensor::ones([2])?), None, 1e-5),
        ErrorKind::Shape,
        "same shape as normalized_shape",
    );
    fails(
        x.layer_norm(&[3], Some(&Tensor::ones_with([3], DType::F64)?), None, 1e-5),
        ErrorKind::DType,
        "expected weight",
    );
    fails(x.group_norm(2, None, None, 1e-5), ErrorKind::Shape, "divisible by num_groups");
    fails(x.batch_norm(&BatchNormOptions::default()), ErrorKind::Value, "running_mean");
    let one = Tensor::ones([1, 3])?;
    fails(
        one.batch_norm(&BatchNormOptions::default().training(true)),
        ErrorKind::Value,
        "more than 1 value per channel",
    );
    fails(Tensor::ones_with([2], DType::I64)?.softmax(0), ErrorKind::DType, "not implemented for int64");
    fails(x.softmax(2), ErrorKind::Index, "Dimension out of range");
    let empty = Tensor::ones([0, 3])?.requires_grad_(true)?;
    let weight = Tensor::ones([3])?.requires_grad_(true)?;
    empty.layer_norm(&[3], Some(&weight), None, 1e-5)?.sum(..)?.backward()?;
    assert_eq!(weight.grad().ok_or_else(|| Error::autograd("no gradient"))?.to_vec::<f32>()?, [0.0; 3]);
    let mixed = Tensor::ones_with([2, 3], DType::BF16)?.layer_norm(&[3], Some(&weight), None, 1e-5)?;
    assert_eq!(mixed.dtype(), DType::BF16);
    Ok(())
}

#[test]
fn losses_twice() -> Result<()> {
    let target = Tensor::new([1i64, -100, 3])?;
    let weight = Tensor::new_with([0.5, 1.0, 1.5, 2.0], rushlight_core::DType::F64)?;
    let options = CrossEntropyOptions::default().weight(&weight).label_smoothing(0.2);
    twice(&[&[3, 4]], |x| x[0].cross_entropy_with(&target, &options))?;
    twice(&[&[3, 4]], |x| x[0].cross_entropy_with(&target, &options.reduction(Reduction::None)))?;
    let spatial = Tensor::new([[0i64, 2, 1], [1, 1, 0]])?;
    twice(&[&[2, 3, 3]], |x| x[0].cross_entropy(&spatial))?;
    twice(&[&[3, 4]], |x| x[0].nll_loss(&target, &CrossEntropyOptions::default().weight(&weight)))?;
    twice(&[&[2, 3], &[2, 3]], |x| x[0].cross_entropy(&x[1].softmax(1)?))?;
    twice(&[&[5], &[5]], |x| x[0].mse_loss(&x[1], Reduction::Mean))?;
    twice(&[&[5], &[5]], |x| x[0].huber_loss(&x[1], 0.6, Reduction::Sum))?;
    twice(&[&[5], &[5]], |x| x[0].smooth_l1_loss(&x[1], 0.6, Reduction::None))?;
    twice(&[&[5], &[5]], |x| x[0].sigmoid()?.binary_cross_entropy(&x[1].sigmoid()?, None, Reduction::Mean))?;
    let weight = Tensor::new_with([2.0], rushlight_core::DType::F64)?;
    twice(&[&[5], &[5]], |x| x[0].binary_cross_entropy_with_logits(&x[1], None, Some(&weight), Reduction::Mean))?;
    twice(&[&[2, 3], &[2, 3]], |x| x[0].log_softmax(1)?.kl_div(&x[1].softmax(1)?, false, Reduction::BatchMean))?;
    twice(&[&[4], &[4], &[4]], |x| x[0].gaussian_nll_loss(&x[1], &x[2].exp()?, true, 1e-6, Reduction::Mean))?;
    let signs = Tensor::new([1i64, -1])?;
    twice(&[&[2, 3], &[2, 3]], |x| x[0].cosine_embedding_loss(&x[1], &signs, -0.9, Reduction::Mean))?;
    twice(&[&[2, 3], &[2, 3], &[2, 3]], |x| {
        x[0].triplet_margin_loss(&x[1], &x[2], TripletMargin::default().margin(3.0), Reduction::Mean)
    })
}

#[test]
fn loss_errors() -> Result<()> {
    let x = Tensor::ones([4, 3])?;
    let classes = |v: &[i64]| Tensor::from_slice(v, [v.len()]);
    fails(x.cross_entropy(&classes(&[0, 1, 2])?), ErrorKind::Shape, "batch_size (4) to match target batch_size (3)");
    fails(x.cross_entropy(&classes(&[0, 1, 2, 3])?), ErrorKind::Index, "");
    fails(x.cross_entropy(&Tensor::ones([4])?), ErrorKind::DType, "expected target dtype");
    let options = CrossEntropyOptions::default();
    fails(x.nll_loss(&classes(&[0, 1, 2, -1])?, &options), ErrorKind::Index, "Target -1 is out of bounds");
    fails(x.cross_entropy_with(&classes(&[0; 4])?, &options.label_smoothing(1.5)), ErrorKind::Value, "label_smoothing");
    let short = Tensor::ones([2])?;
    fails(x.cross_entropy_with(&classes(&[0; 4])?, &options.weight(&short)), ErrorKind::Shape, "all 3 classes");
    fails(x.mul(2.0)?.binary_cross_entropy(&x, None, Reduction::Mean), ErrorKind::Value, "between 0 and 1");
    fails(x.mse_loss(&x, Reduction::BatchMean), ErrorKind::Value, "batchmean");
    fails(x.huber_loss(&x, 0.0, Reduction::Mean), ErrorKind::Value, "non-positive");
    fails(x.gaussian_nll_loss(&x, &x.neg()?, false, 1e-6, Reduction::Mean), ErrorKind::Value, "negative");
    assert!(x.cross_entropy(&classes(&[-100; 4])?)?.item::<f32>()?.is_nan());
    Ok(())
}

#[test]
fn attention_twice() -> Result<()> {
    let heads: [&[usize]; 3] = [&[1, 2, 3, 2], &[1, 2, 4, 2], &[1, 2, 4, 3]];
    let plain = AttentionOptions::default();
    twice(&heads, |x| x[0].scaled_dot_product_attention(&x[1], &x[2], &plain))?;
    twice(&heads, |x| x[0].scaled_dot_product_attention(&x[1], &x[2], &plain.is_causal(true).scale(0.4)))?;
    let mask = Tensor::new([[true, false, true, true], [false; 4], [true; 4]])?;
    twice(&heads, |x| x[0].scaled_dot_product_attention(&x[1], &x[2], &plain.attn_mask(&mask)))?;
    let bias: [&[usize]; 4] = [heads[0], heads[1], heads[2], &[3, 4]];
    twice(&bias, |x| x[0].scaled_dot_product_attention(&x[1], &x[2], &plain.attn_mask(&x[3])))?;
    let grouped: [&[usize]; 3] = [&[1, 4, 2, 2], &[1, 2, 3, 2], &[1, 2, 3, 2]];
    twice(&grouped, |x| x[0].scaled_dot_product_attention(&x[1], &x[2], &plain.enable_gqa(true)))?;
    twice(&[&[3, 2], &[4, 2], &[4, 2]], |x| x[0].scaled_dot_product_attention(&x[1], &x[2], &plain))
}

/// The fused kernel and the composed form drop the same weights: they use the same numbering.
#[test]
fn attention_dropout_is_the_same_in_both_forms() -> Result<()> {
    let (q, k, v) = (values(&[2, 3, 5, 4], 1)?, values(&[2, 3, 6, 4], 2)?, values(&[2, 3, 6, 4], 3)?);
    let mask = Tensor::zeros_with([5, 6], DType::F64)?;
    let options = AttentionOptions::default().dropout_p(0.4).attn_mask(&mask);
    let _turn = crate::turn();
    rushlight_core::rng::manual_seed(5);
    let fused = q.scaled_dot_product_attention(&k, &v, &options)?;
    rushlight_core::rng::manual_seed(5);
    let learnt = mask.copy()?.requires_grad_(true)?;
    let composed = q.scaled_dot_product_attention(&k, &v, &options.attn_mask(&learnt))?;
    assert!(fused.allclose(&composed, 1e-9, 1e-9)?);
    Ok(())
}

#[test]
fn attention_errors() -> Result<()> {
    let x = Tensor::ones([1, 2, 3])?;
    let mask = Tensor::ones([2, 2])?;
    let plain = AttentionOptions::default();
    let both = plain.attn_mask(&mask).is_causal(true);
    fails(
        x.scaled_dot_product_attention(&x, &x, &both),
        ErrorKind::Value,
        "attn_mask should not be set when is_causal",
    );
    let wide = Tensor::ones_with([1, 2, 3], DType::F64)?;
    fails(x.scaled_dot_product_attention(&wide, &x, &plain), ErrorKind::DType, "same dtype");
    fails(x.scaled_dot_product_attention(&Tensor::ones([1, 2, 4])?, &x, &plain), ErrorKind::Shape, "same last size");
    let whole = Tensor::ones_with([2, 2], DType::I64)?;
    fails(x.scaled_dot_product_attention(&x, &x, &plain.attn_mask(&whole)), ErrorKind::DType, "attn_mask dtype");
    let (q, k) = (Tensor::ones([1, 4, 2, 3])?, Tensor::ones([1, 3, 2, 3])?);
    fails(q.scaled_dot_product_attention(&k, &k, &plain.enable_gqa(true)), ErrorKind::Shape, "number of heads");
    fails(q.scaled_dot_product_attention(&k, &k, &plain), ErrorKind::Shape, "broadcast");
    let nothing = Tensor::ones([1, 2, 0, 3])?;
    let seen = Tensor::ones([1, 2, 4, 3])?.scaled_dot_product_attention(&nothing, &nothing, &plain)?;
    assert_eq!(seen.to_vec::<f32>()?, [0.0; 24]);
    Ok(())
}

#[test]
fn interpolation_twice() -> Result<()> {
    let linear = InterpolateOptions::size(7).mode(InterpolateMode::Linear);
    twice(&[&[1, 2, 4]], |x| x[0].interpolate(&linear))?;
    let bilinear = InterpolateOptions::scale_factor([1.5]).mode(InterpolateMode::Bilinear).align_corners(true);
    twice(&[&[1, 1, 3, 4]], |x| x[0].interpolate(&bilinear))?;
    twice(&[&[1, 1, 3, 4]], |x| x[0].interpolate(&InterpolateOptions::size([2, 5])))
}

#[test]
fn interpolation_errors() -> Result<()> {
    let x = Tensor::ones([1, 1, 4])?;
    fails(x.interpolate(&InterpolateOptions::default()), ErrorKind::Value, "either size or scale_factor");
    fails(x.interpolate(&InterpolateOptions::size(3).align_corners(true)), ErrorKind::Value, "align_corners");
    fails(
        x.interpolate(&InterpolateOptions::size(3).mode(InterpolateMode::Bilinear)),
        ErrorKind::Unsupported,
        "3D input",
    );
    fails(
        x.interpolate(&InterpolateOptions::size(3).mode(InterpolateMode::Bicubic)),
        ErrorKind::Unsupported,
        "3D input",
    );
    fails(x.interpolate(&InterpolateOptions::size(0)), ErrorKind::Shape, "greater than 0");
    fails(x.interpolate(&InterpolateOptions::scale_factor([-1.0])), ErrorKind::Shape, "greater than 0");
    fails(x.interpolate(&InterpolateOptions::scale_factor([1.0, 2.0])), ErrorKind::Value, "spatial dimensions");
    fails(x.interpolate(&InterpolateOptions::scale_factor([f64::INFINITY])), ErrorKind::Value, "");
    Ok(())
}
