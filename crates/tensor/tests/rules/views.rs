//! In-place changes of views and of tensors that keep their gradients, and the order of results in memory.

use rushlight_core::DType;
use rushlight_tensor::autograd::{inference_mode, no_grad};
use rushlight_tensor::{InterpolateMode, InterpolateOptions, Tensor};

fn leaf(shape: &[usize]) -> Tensor {
    Tensor::ones(shape).unwrap().requires_grad_(true).unwrap()
}

fn message<T>(result: rushlight_core::Result<T>) -> String {
    result.err().map(|e| e.to_string()).unwrap_or_default()
}

fn grad(t: &Tensor) -> Vec<f32> {
    t.grad().unwrap().to_vec().unwrap()
}

#[test]
fn a_kept_gradient_is_that_of_the_present_value() {
    let x = leaf(&[2]);
    let y = x.mul(2.0).unwrap();
    y.retain_grad().unwrap();
    y.mul_(2.0).unwrap();
    y.sum(..).unwrap().backward().unwrap();
    assert_eq!((grad(&y), grad(&x)), (vec![1.0; 2], vec![4.0; 2]));
}

#[test]
fn a_kept_gradient_is_taken_after_hooks() {
    let x = leaf(&[2]);
    let y = x.mul(2.0).unwrap();
    y.retain_grad().unwrap();
    y.register_hook(|g| g.mul(3.0).map(Some)).unwrap();
    y.sum(..).unwrap().backward().unwrap();
    assert_eq!((grad(&y), grad(&x)), (vec![3.0; 2], vec![6.0; 2]));
}

#[test]
fn a_graph_without_saved_values_runs_again() {
    let x = leaf(&[2]);
    let y = x.add(1.0).unwrap().sum(..).unwrap();
    y.backward().unwrap();
    y.backward().unwrap();
    assert_eq!(grad(&x), [2.0; 2]);
    let z = x.mul(&x).unwrap().sum(..).unwrap();
    z.backward().unwrap();
    assert!(message(z.backward()).contains("second time"));
}

#[test]
fn one_of_several_views_is_not_changed_while_recorded() {
    let x = leaf(&[2, 2]).mul(1.0).unwrap();
    for views in [x.unbind(0).unwrap(), x.split(1, 0).unwrap(), x.chunk(2, 1).unwrap()] {
        assert!(message(views[0].mul_(2.0)).contains("multiple views"));
        no_grad(|| views[0].mul_(2.0).map(drop)).unwrap();
    }
    // Without gradients such views are tensors like others.
    let plain = Tensor::ones([2, 2]).unwrap();
    plain.unbind(0).unwrap()[0].mul_(2.0).unwrap();
    assert_eq!(plain.to_vec::<f32>().unwrap(), [2.0, 2.0, 1.0, 1.0]);
}

#[test]
fn gradients_of_unbound_parts_are_stacked() {
    let x = leaf(&[3, 2]);
    let parts = x.unbind(0).unwrap();
    parts[1].mul(3.0).unwrap().sum(..).unwrap().backward().unwrap();
    assert_eq!(grad(&x), [0.0, 0.0, 3.0, 3.0, 0.0, 0.0]);
}

#[test]
fn a_view_made_without_recording_is_not_changed_while_recording() {
    let x = leaf(&[2]).mul(1.0).unwrap();
    let view = no_grad(|| x.narrow(0, 0, 1)).unwrap();
    assert!(message(view.mul_(2.0)).contains("no_grad mode"));
}

#[test]
fn an_inference_tensor_is_not_changed_outside_of_its_mode() {
    let x = inference_mode(|| Tensor::ones([2])).unwrap();
    assert!(message(x.add_(1.0)).contains("outside InferenceMode"));
    inference_mode(|| x.add_(1.0).map(drop)).unwrap();
    let leaf = inference_mode(|| Tensor::ones([2])?.requires_grad_(true)).unwrap();
    assert!(leaf.requires_grad());
}

#[test]
fn elements_that_were_just_written_are_not_read() {
    let x = Tensor::arange(0, 5, 1).unwrap();
    let (front, back) = (x.narrow(0, 0, 4).unwrap(), x.narrow(0, 1, 4).unwrap());
    assert!(message(back.copy_(&front)).contains("single memory location"));
    assert!(message(back.add_(&front)).contains("single memory location"));
    x.copy_(&x).unwrap();
    assert_eq!(x.to_vec::<i64>().unwrap(), [0, 1, 2, 3, 4]);
}

#[test]
fn indices_do_not_count_from_the_end_where_pytorch_refuses_it() {
    let (x, last, one) = (Tensor::zeros([3]).unwrap(), Tensor::new([-1]).unwrap(), Tensor::ones([1]).unwrap());
    for refused in [x.index_copy(0, &last, &one), x.index_add(0, &last, &one, 1), x.index_select(0, &last)] {
        assert!(message(refused).contains("must not be negative"));
    }
    assert_eq!(x.index_fill(0, &last, 1.0).unwrap().to_vec::<f32>().unwrap(), [0.0, 0.0, 1.0]);
    let around = Tensor::new([-1i64, 3, -4, 300]).unwrap();
    let counted = Tensor::arange(0.0, 3.0, 1.0).unwrap().take_along_dim(&around, Some(0)).unwrap();
    assert_eq!(counted.to_vec::<f32>().unwrap(), [2.0, 0.0, 2.0, 0.0]);
}

#[test]
fn results_lie_as_pytorchs() {
    let x = Tensor::ones([2, 3, 4]).unwrap().permute([2, 0, 1]).unwrap();
    assert_eq!(x.repeat(&[1, 1, 1]).unwrap().strides(), [6, 3, 1]);
    assert_eq!(x.tril(0).unwrap().strides(), [6, 3, 1]);
    assert_eq!(x.dropout(0.5, true).unwrap().strides(), [1, 12, 4]);
    let columns = Tensor::new([0i64, 1]).unwrap();
    assert_eq!(x.i((.., &columns)).unwrap().strides(), [1, 4, 8]);
    assert_eq!(Tensor::ones([5]).unwrap().expand([1, 1, 5]).unwrap().strides(), [5, 5, 1]);
}

#[test]
fn antialiasing_averages_what_an_output_covers() {
    let x = Tensor::arange(0.0, 16.0, 1.0).unwrap().reshape([1, 1, 4, 4]).unwrap();
    let options = InterpolateOptions::size([2, 3]).mode(InterpolateMode::Bilinear).antialias(true);
    let found = x.interpolate(&options).unwrap().to_vec::<f32>().unwrap();
    // PyTorch's answer.
    let expected = [3.157143, 4.357143, 5.557143, 9.442858, 10.642858, 11.842857];
    assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-4), "{found:?}");
    assert!(x.interpolate(&options.clone().mode(InterpolateMode::Nearest)).is_err());
    let lanczos = options.mode(InterpolateMode::Lanczos);
    let found = x.interpolate(&lanczos).unwrap().to_vec::<f32>().unwrap();
    let expected = [2.311902, 3.652509, 4.993116, 10.006885, 11.347491, 12.6881];
    assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-4), "{found:?}");
    assert!(x.interpolate(&lanczos.clone().antialias(false)).is_err());
    assert!(x.interpolate(&lanczos.align_corners(true)).is_err());
}

#[test]
fn bytes_of_bools_are_true_unless_zero() {
    let bytes = Tensor::new([2u8, 0, 4]).unwrap();
    // SAFETY: the storage is a tensor's, and one byte is one bool.
    let x = unsafe { Tensor::from_storage(bytes.storage().clone(), bytes.layout().clone(), DType::Bool) }.unwrap();
    assert_eq!(x.to_vec::<bool>().unwrap(), [true, false, true]);
    assert_eq!(x.sum(..).unwrap().item::<i64>().unwrap(), 2);
    assert_eq!(x.cumsum(0).unwrap().to_vec::<i64>().unwrap(), [1, 1, 2]);
    assert_eq!(x.narrow(0, 2, 1).unwrap().prod(..).unwrap().item::<i64>().unwrap(), 1);
}
