//! Invalid arguments are errors that say so.

use rushlight_core::Result;
use rushlight_nn::*;
use rushlight_tensor::{Padding, Reduction, Tensor};

fn says<T>(result: Result<T>, parts: &[&str]) {
    let error = result.err().expect("an error").to_string();
    for part in parts {
        assert!(error.contains(part), "{error:?} does not contain {part:?}");
    }
}

#[test]
fn convolutions_check_their_settings() -> Result<()> {
    says(Conv2d::builder(3, 4, 3).groups(2).build(), &["Conv2d", "in_channels 3", "groups 2"]);
    says(Conv2d::builder(4, 3, 3).groups(2).build(), &["out_channels 3"]);
    says(Conv2d::builder(4, 4, 3).groups(0).build(), &["groups must be a positive"]);
    says(Conv1d::new(1, 1, [3, 3]), &["Conv1d", "kernel_size", "2 were given"]);
    says(Conv2d::builder(1, 1, 3).stride([1, 1, 1]).build(), &["stride", "3 were given"]);
    says(Conv2d::builder(1, 1, 3).padding([1, 1, 1]).build(), &["padding"]);
    says(Conv2d::new(1, 1, [3, 3, 3, 3]), &["4 were given"]);
    says(Conv2d::new(1, 1, 0), &["kernel_size must not be zero"]);
    says(Conv2d::builder(1, 1, 3).stride(0).build(), &["stride must not be zero"]);
    says(Conv2d::builder(1, 1, 3).padding(Padding::Same).stride(2).build(), &["'same'", "strided"]);
    says(Conv2d::new(usize::MAX, 1, 3), &[]);
    let conv = Conv2d::builder(1, 1, 3).padding(usize::MAX).padding_mode(PaddingMode::Reflect).build()?;
    says(conv.forward(&Tensor::ones([1, 1, 4, 4])?), &["Conv2d"]);
    says(Conv2d::new(3, 4, 3)?.forward(&Tensor::ones([1, 2, 5, 5])?), &["conv2d"]);
    let up = ConvTranspose2d::builder(1, 1, 3).stride(2).build()?;
    says(up.forward_to(&Tensor::ones([1, 1, 3, 3])?, &[20, 7]), &["ConvTranspose2d", "7 to 8"]);
    says(up.forward_to(&Tensor::ones([1, 1, 3, 3])?, &[7]), &["output_size takes 2 numbers"]);
    Ok(())
}

#[test]
fn norms_check_their_inputs() -> Result<()> {
    let x = Tensor::ones([2, 4, 3])?;
    says(BatchNorm2d::new(4)?.forward(&x), &["BatchNorm2d", "expected 4D input", "[2, 4, 3]"]);
    says(BatchNorm1d::new(4)?.forward(&Tensor::ones([2, 4, 3, 3])?), &["expected 2D or 3D input"]);
    let norm = BatchNorm1d::new(5)?;
    says(norm.forward(&x), &["batch_norm", "4"]);
    assert_eq!(norm.num_batches_tracked.as_ref().unwrap().item::<i64>()?, 0, "a failed batch is not counted");
    says(InstanceNorm1d::new(4)?.forward(&Tensor::ones([3])?), &["InstanceNorm1d", "2D or 3D"]);
    says(InstanceNorm1d::builder(3).affine(true).build()?.forward(&x), &["expected 3 channels"]);
    says(GroupNorm::new(3, 4), &["num_channels (4) must be divisible by num_groups (3)"]);
    says(GroupNorm::new(0, 4), &["num_groups (0)"]);
    says(LayerNorm::new([4])?.forward(&x), &["layer_norm", "[4]"]);
    Ok(())
}

#[test]
fn embeddings_check_indices_and_offsets() -> Result<()> {
    says(Embedding::builder(3, 2).padding_idx(3).build(), &["padding_idx 3", "num_embeddings 3"]);
    says(Embedding::builder(3, 2).padding_idx(-4).build(), &["padding_idx -4"]);
    says(Embedding::builder(3, 2).sparse(true).build(), &["sparse gradients are not supported"]);
    says(Embedding::from_pretrained(&Tensor::ones([3])?).build(), &["2-dimensional"]);
    let table = Embedding::builder(3, 2).max_norm(1.0).build()?;
    says(table.forward(&Tensor::new([3i64])?), &[]);
    says(table.forward(&Tensor::new([-1i64])?), &[]);
    says(table.forward(&Tensor::new([0.5f32])?), &[]);

    let bag = EmbeddingBag::new(4, 2)?;
    let (indices, offsets) = (Tensor::new([0i64, 1, 2])?, |o: &[i64]| Tensor::new(o).unwrap());
    says(bag.forward(&indices), &["offsets"]);
    says(bag.forward_with(&indices, Some(&offsets(&[1, 2])), None), &["begin with 0"]);
    says(bag.forward_with(&indices, Some(&offsets(&[0, 2, 1])), None), &["must not decrease"]);
    says(bag.forward_with(&indices, Some(&offsets(&[0, 4])), None), &["within the 3 indices"]);
    says(bag.forward_with(&indices, Some(&offsets(&[0, -1])), None), &["-1"]);
    says(
        bag.forward_with(&indices, Some(&Tensor::zeros_with([0], rushlight_core::DType::I64)?), None),
        &["begin with 0"],
    );
    let ends = EmbeddingBag::builder(4, 2).include_last_offset(true).build()?;
    says(ends.forward_with(&indices, Some(&offsets(&[0, 2])), None), &["include_last_offset", "3"]);
    says(bag.forward_with(&indices, Some(&offsets(&[0])), Some(&Tensor::ones([3])?)), &["mode sum"]);
    says(bag.forward(&Tensor::new([[0i64, 9]])?), &["EmbeddingBag"]);
    let sum = EmbeddingBag::builder(4, 2).mode(BagMode::Sum).build()?;
    says(sum.forward_with(&indices, Some(&offsets(&[0])), Some(&Tensor::ones([2])?)), &["per_sample_weights"]);
    says(EmbeddingBag::builder(4, 2).mode(BagMode::Max).scale_grad_by_freq(true).build(), &["scale_grad_by_freq"]);
    // No bags, and bags without indices.
    let none = Tensor::zeros_with([0], rushlight_core::DType::I64)?;
    assert_eq!(bag.forward_with(&none, Some(&none), None)?.shape(), [0, 2]);
    assert_eq!(bag.forward_with(&none, Some(&offsets(&[0, 0])), None)?.to_vec::<f32>()?, [0.0; 4]);
    assert_eq!(bag.forward(&Tensor::zeros_with([3, 0], rushlight_core::DType::I64)?)?.to_vec::<f32>()?, [0.0; 6]);
    Ok(())
}

#[test]
fn pretrained_tables_are_shared_and_frozen() -> Result<()> {
    let values = Tensor::ones([2, 2])?;
    let table = Embedding::from_pretrained(&values).padding_idx(0).build()?;
    assert!(!table.weight.requires_grad() && table.weight.shares_storage(&values));
    assert_eq!(table.weight.to_vec::<f32>()?, [1.0; 4], "the row for padding keeps its values");
    assert!(Embedding::from_pretrained(&values).freeze(false).build()?.weight.requires_grad());
    Ok(())
}

#[test]
fn shape_layers_check_sizes() -> Result<()> {
    let x = Tensor::ones([1, 4, 3, 3])?;
    says(PixelShuffle::new(3).forward(&x), &["PixelShuffle", "divisible"]);
    says(PixelShuffle::new(0).forward(&x), &["PixelShuffle"]);
    says(PixelShuffle::new(usize::MAX).forward(&x), &["PixelShuffle"]);
    says(PixelUnshuffle::new(2).forward(&x), &["PixelUnshuffle"]);
    says(PixelUnshuffle::new(0).forward(&x), &["PixelUnshuffle"]);
    says(ChannelShuffle::new(3).forward(&x), &["groups 3"]);
    says(ChannelShuffle::new(0).forward(&x), &["groups 0"]);
    says(GLU::new().forward(&x), &["must be even"]);
    says(Softmax2d.forward(&Tensor::ones([2, 2])?), &["3D or 4D"]);
    says(Flatten::new().start_dim(7).forward(&x), &[]);
    says(Upsample::new().forward(&x), &["either size or scale_factor"]);
    says(Upsample::new().size(2).scale_factor([2.0]).forward(&x), &["not both"]);
    says(ReflectionPad2d::new(3).forward(&x), &["ReflectionPad2d"]);
    says(ReflectionPad1d::new(1).forward(&x), &["ReflectionPad1d", "2D or 3D"]);
    says(ZeroPad2d::new(-2).forward(&x), &["ZeroPad2d"]);
    says(ZeroPad3d::new(isize::MAX).forward(&x), &["ZeroPad3d"]);
    says(Unfold::new(5).forward(&x), &["Unfold"]);
    says(Unfold::new(0).forward(&x), &["Unfold"]);
    says(Unfold::new(2).padding(usize::MAX).forward(&x), &["Unfold"]);
    says(Unfold::new(2).stride(0).forward(&x), &["Unfold"]);
    says(Fold::new(4, 2).forward(&x), &["Fold"]);
    says(Fold::new(4, 2).forward(&Tensor::ones([1, 8, 5])?), &["3 · 3"]);
    says(MaxPool2d::new([2, 2, 2]).forward(&x), &["kernel"]);
    let indices = Tensor::new([[[100i64, 0]]])?;
    says(MaxUnpool1d::new(2).forward(&Tensor::ones([1, 1, 2])?, &indices), &["MaxUnpool1d"]);
    says(MaxUnpool1d::new(2).padding(9).forward(&Tensor::ones([1, 1, 2])?, &indices), &["no output size"]);
    says(MaxUnpool1d::new(2).forward(&x, &indices), &["2D or 3D"]);
    Ok(())
}

#[test]
fn losses_check_shapes_and_options() -> Result<()> {
    let (x, t) = (Tensor::ones([2, 3])?, Tensor::new([0i64, 1])?);
    says(MSELoss::new().reduction(Reduction::BatchMean).forward(&x, &x), &["batchmean"]);
    says(MultiMarginLoss::new().p(3).forward(&x, &t), &["p == 1 and p == 2"]);
    says(MultiMarginLoss::new().forward(&x, &Tensor::new([0i64])?), &["MultiMarginLoss"]);
    says(MultiMarginLoss::new().forward(&x, &Tensor::new([0i64, 3])?), &[]);
    says(MultiMarginLoss::new().reduction(Reduction::BatchMean).forward(&x, &t), &["batchmean"]);
    says(MultiLabelMarginLoss::new().forward(&x, &t), &["MultiLabelMarginLoss"]);
    says(MultiLabelMarginLoss::new().forward(&x, &Tensor::new([[7i64, 0, 0], [0, 0, 0]])?), &[]);
    says(CrossEntropyLoss::new().weight(&Tensor::ones([2])?).forward(&x, &t), &["weight"]);
    says(CrossEntropyLoss::new().forward(&x, &Tensor::new([0i64, 9])?), &[]);
    says(vector_to_parameters(&Tensor::ones([3])?, &[Tensor::ones([2])?]), &["2 elements"]);
    Ok(())
}
