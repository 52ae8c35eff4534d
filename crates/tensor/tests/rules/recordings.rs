//! The table of recordings: what tells one kind of calls from another.

use rushlight_core::{DType, Result};
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::no_grad;
use rushlight_tensor::internals::{Form, Placed, Recordings, Shaped, Tensors, replayed};

#[test]
fn kinds_are_told_apart() -> Result<()> {
    let x = Tensor::zeros([2, 3])?;
    let mut table = Recordings::<Shaped, char>::default();
    table.add("step", std::slice::from_ref(&x), 'a');
    let found = |key: &'static str, x: &Tensor| table.find(&key, std::slice::from_ref(x)).map(|at| table[at]);
    assert_eq!(found("step", &x), Some('a'));
    // A captured step's inputs are copied: their strides do not matter.
    assert_eq!(found("step", &Tensor::zeros([3, 2])?.transpose(0, 1)?), Some('a'));
    assert_eq!(found("other", &x), None);
    assert_eq!(found("step", &Tensor::zeros([3, 2])?), None);
    assert_eq!(found("step", &x.to_dtype(DType::F64)?), None);
    assert_eq!(no_grad(|| Ok(found("step", &x))).unwrap(), None);
    // A key of another type is another kind.
    assert_eq!(table.find(&0u64, std::slice::from_ref(&x)), None);
    assert_eq!(table.find(&"step", &[x.clone(), x.clone()]), None);

    let mut table = Recordings::<Placed, char>::default();
    table.add(1u64, std::slice::from_ref(&x), 'b');
    assert!(table.find(&1u64, std::slice::from_ref(&x)).is_some());
    assert!(table.find(&1u64, &[Tensor::zeros([3, 2])?.transpose(0, 1)?]).is_none());
    assert!(table.find(&1u64, &[x.detach().requires_grad_(true)?]).is_none());
    Ok(())
}

#[test]
fn a_form_of_another_type_is_an_error() -> Result<()> {
    let form: Form = Box::new(3u8);
    let error = replayed::<Tensor>(Tensors::from_iter([Tensor::zeros([1])?]), &form).map(drop).unwrap_err();
    assert!(error.to_string().contains("of another type"), "{error}");
    Ok(())
}
