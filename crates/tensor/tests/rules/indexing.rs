//! Indexing, gathering and scattering: forms, errors and gradients that PyTorch's recorded cases do not cover.

// Ranges that end before they start are tested on purpose.
#![allow(clippy::reversed_empty_ranges)]

use rushlight_core::{DType, ErrorKind, Result};
use rushlight_tensor::autograd::{self, no_grad};
use rushlight_tensor::{Ellipsis, IndexItem, NewAxis, PadMode, ScatterReduce, Tensor, slice};

fn cube() -> Result<Tensor> {
    Tensor::arange(0, 24, 1)?.reshape([2, 3, 4])
}

fn floats(values: &[f32]) -> Result<Tensor> {
    Tensor::from_slice(values, [values.len()])
}

fn index(values: &[i64]) -> Result<Tensor> {
    Tensor::from_slice(values, [values.len()])
}

fn leaf(values: &[f32]) -> Result<Tensor> {
    floats(values)?.requires_grad_(true)
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    match result {
        Ok(_) => panic!("expected an error"),
        Err(e) => e.kind(),
    }
}

fn message<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("expected an error"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn integers_and_ranges_are_views() -> Result<()> {
    let x = cube()?;
    assert_eq!(x.i(1)?.shape(), [3, 4]);
    assert_eq!(x.i((1, -1, 2))?.item::<i64>()?, 22);
    assert_eq!(x.i((.., 1..3, ..-2))?.shape(), [2, 2, 2]);
    assert_eq!(x.i((0, 1, 1..))?.to_vec::<i64>()?, [5, 6, 7]);
    assert_eq!(x.i((0, 0, 1..=2))?.to_vec::<i64>()?, [1, 2]);
    assert_eq!(x.i((0, 0, -3..=-1))?.to_vec::<i64>()?, [1, 2, 3]);
    assert_eq!(x.i((0, 0, ..=-2))?.to_vec::<i64>()?, [0, 1, 2]);
    assert_eq!(x.i((0usize, 0i64, slice(None, None, 3)))?.to_vec::<i64>()?, [0, 3]);
    assert_eq!(x.i((0, 0, slice(-3, -1, 1)))?.to_vec::<i64>()?, [1, 2]);
    assert_eq!(x.i((0, 0, 3..1))?.shape(), [0]);
    assert_eq!(x.i((0, 0, -100..100))?.shape(), [4]);
    for view in [x.i((0, 1..))?, x.i(..)?, x.i((NewAxis, Ellipsis))?] {
        assert!(view.shares_storage(&x) && !view.is_same(&x));
    }
    x.i((1, .., 0))?.fill_(-1)?;
    assert_eq!(x.i((.., 2, 0))?.to_vec::<i64>()?, [8, -1]);
    Ok(())
}

#[test]
fn new_axes_and_ellipsis() -> Result<()> {
    let x = cube()?;
    assert_eq!(x.i((Ellipsis, 0))?.shape(), [2, 3]);
    assert_eq!(x.i((0, Ellipsis, NewAxis))?.shape(), [3, 4, 1]);
    assert_eq!(x.i((NewAxis, 0, NewAxis, 1..))?.shape(), [1, 1, 2, 4]);
    assert_eq!(x.i((0, 0, 0, Ellipsis))?.shape(), [0usize; 0]);
    assert_eq!(Tensor::scalar(1)?.i((Ellipsis, NewAxis))?.shape(), [1]);
    let items: Vec<IndexItem> = vec![0.into(), Ellipsis, NewAxis];
    assert_eq!(x.i(&items[..])?.shape(), [3, 4, 1]);
    assert_eq!(x.index(items)?.shape(), [3, 4, 1]);
    Ok(())
}

#[test]
fn index_tensors_go_where_numpy_puts_them() -> Result<()> {
    let x = Tensor::arange(0, 120, 1)?.reshape([2, 3, 4, 5])?;
    let (a, b) = (index(&[0, 1, 0])?, index(&[2, -1, 0])?);
    assert_eq!(x.i((.., &a, &b))?.shape(), [2, 3, 5]);
    assert_eq!(x.i((&a, .., &b))?.shape(), [3, 3, 5]);
    assert_eq!(x.i((&a, .., &b))?.i((1, 2, 4))?.item::<i64>()?, 60 + 2 * 20 + 3 * 5 + 4);
    // An integer is a view made first, not an index tensor that separates the two.
    assert_eq!(x.i((&a, 0, &b))?.shape(), [3, 5]);
    assert_eq!(x.i((.., .., index(&[1])?.unsqueeze(0)?, ..))?.shape(), [2, 3, 1, 1, 5]);
    assert_eq!(x.i((.., &a, NewAxis, &b))?.shape(), [3, 2, 1, 5]);
    // A zero-dim integer tensor is an integer.
    assert_eq!(x.i(Tensor::scalar(1)?)?.shape(), [3, 4, 5]);
    // Index tensors broadcast against each other.
    assert_eq!(x.i((a.unsqueeze(1)?, &b))?.shape(), [3, 3, 4, 5]);
    Ok(())
}

#[test]
fn masks() -> Result<()> {
    let x = cube()?;
    let rows = x.select(2, 0)?.ge(8)?;
    assert_eq!(x.i(&rows)?.to_vec::<i64>()?, (8..24).collect::<Vec<_>>());
    assert_eq!(x.i((0, .., x.i((0, 0))?.gt(1)?))?.shape(), [3, 2]);
    assert_eq!(x.i((&rows, 1..3))?.shape(), [4, 2]);
    let last = Tensor::new([true, false, false, true])?;
    assert_eq!(x.i((Ellipsis, &last))?.shape(), [2, 3, 2]);
    assert_eq!(x.i((&rows, index(&[3, 0, 1, 2])?))?.to_vec::<i64>()?, [11, 12, 17, 22]);
    // A single `bool` adds a dimension of size one or zero.
    assert_eq!(x.i(Tensor::scalar(true)?)?.shape(), [1, 2, 3, 4]);
    assert_eq!(x.i(Tensor::scalar(false)?)?.shape(), [0, 2, 3, 4]);
    Ok(())
}

#[test]
fn wrong_indices_are_errors() -> Result<()> {
    let x = cube()?;
    assert!(message(x.i(2)).starts_with("i: index 2 is out of bounds for dimension 0 with size 2"));
    assert!(message(x.i((0, 0, -5))).starts_with("i: index -5 is out of bounds for dimension 2 with size 4"));
    assert!(message(x.i((0, 0, 0, 0))).contains("too many indices for tensor of dimension 3"));
    assert!(message(x.i((Ellipsis, Ellipsis))).contains("single ellipsis"));
    assert!(message(Tensor::scalar(1)?.i(0)).contains("0-dim tensor"));
    assert_eq!(kind(x.i(slice(None, None, 0))), ErrorKind::Value);
    assert_eq!(kind(x.i(index(&[0, 2])?)), ErrorKind::Index);
    assert_eq!(kind(x.i(index(&[-3])?)), ErrorKind::Index);
    assert_eq!(kind(x.i(floats(&[1.0])?)), ErrorKind::Index);
    assert!(message(x.i((index(&[0, 1])?, index(&[0, 1, 2])?))).contains("could not be broadcast together"));
    assert!(message(x.i(Tensor::new([true, false, true])?)).contains("The shape of the mask [3] at index 0"));
    assert!(message(x.i((.., Tensor::full([3, 5], true)?))).contains("at index 2"));
    let empty = Tensor::zeros([0, 2])?;
    assert_eq!(kind(empty.i(index(&[0])?)), ErrorKind::Index);
    assert_eq!(empty.i(index(&[])?)?.shape(), [0, 2]);
    Ok(())
}

#[test]
fn assignment() -> Result<()> {
    let x = Tensor::zeros([3, 4])?;
    x.index_assign((1, 1..3), 2)?;
    x.index_assign((.., 0), &Tensor::new([1i64, 2, 3])?)?;
    x.index_assign((index(&[0, 2])?, index(&[3, 3])?), 9.0)?;
    assert_eq!(x.to_vec::<f32>()?, [1.0, 0.0, 0.0, 9.0, 2.0, 2.0, 2.0, 0.0, 3.0, 0.0, 0.0, 9.0]);
    x.index_assign(&x.gt(2)?, -1.0)?;
    assert_eq!(x.i((.., 3))?.to_vec::<f32>()?, [-1.0, 0.0, -1.0]);
    // Leading sizes of one that the target lacks do not matter.
    x.index_assign((0, ..), &Tensor::ones([1, 1, 4])?)?;
    assert_eq!(x.i(0)?.to_vec::<f32>()?, [1.0; 4]);
    x.index_put_((index(&[1, 1])?, 0), &floats(&[10.0, 20.0])?, true)?;
    assert_eq!(x.i((1, 0))?.item::<f32>()?, 32.0);
    x.index_put_((2, ..2), &floats(&[5.0, 6.0])?, true)?;
    assert_eq!(x.i((2, ..2))?.to_vec::<f32>()?, [4.0, 6.0]);
    assert!(
        message(x.index_assign((index(&[0, 1])?, ..), &floats(&[1.0; 3])?))
            .contains("shape mismatch: value tensor of shape [3]")
    );
    assert_eq!(kind(x.index_put_(index(&[0])?, &index(&[1])?, false)), ErrorKind::DType);
    assert_eq!(kind(Tensor::zeros([1, 3])?.expand([2, 3])?.index_assign((.., 0), 1.0)), ErrorKind::Value);
    // Rows of a tensor moved within itself.
    let y = Tensor::arange(0, 4, 1)?;
    y.index_assign(index(&[3, 2, 1, 0])?, &y)?;
    assert_eq!(y.to_vec::<i64>()?, [3, 2, 1, 0]);
    Ok(())
}

#[test]
fn assignment_is_differentiated() -> Result<()> {
    let (x, v) = (leaf(&[1.0, 2.0, 3.0, 4.0])?, leaf(&[10.0, 20.0])?);
    let y = x.mul(1.0)?;
    y.index_assign(index(&[0, 2])?, &v)?;
    y.mul(&floats(&[1.0, 2.0, 3.0, 4.0])?)?.sum(..)?.backward()?;
    assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [0.0, 2.0, 0.0, 4.0]);
    assert_eq!(v.grad().unwrap().to_vec::<f32>()?, [1.0, 3.0]);

    // Through a view: part of a row, by index.
    let (x, v) = (Tensor::ones([2, 3])?.requires_grad_(true)?, leaf(&[5.0])?);
    let y = x.mul(2.0)?;
    y.index_assign((1, index(&[2, 0])?), &v)?;
    y.square()?.sum(..)?.backward()?;
    assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [8.0, 8.0, 8.0, 0.0, 8.0, 0.0]);
    assert_eq!(v.grad().unwrap().to_vec::<f32>()?, [20.0]);

    // A range, and a number.
    let x = Tensor::ones([2, 3])?.requires_grad_(true)?;
    let y = x.mul(2.0)?;
    y.index_assign((.., ..2), 0.0)?;
    y.sum(..)?.backward()?;
    assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [0.0, 0.0, 2.0, 0.0, 0.0, 2.0]);

    assert_eq!(kind(leaf(&[1.0])?.index_assign(0, 1.0)), ErrorKind::Autograd);
    assert_eq!(kind(leaf(&[1.0])?.index_assign(index(&[0])?, 1.0)), ErrorKind::Autograd);
    Ok(())
}

#[test]
fn a_changed_index_is_noticed() -> Result<()> {
    let (x, places) = (leaf(&[1.0, 2.0, 3.0])?, index(&[0, 1])?);
    for y in [x.i(&places)?, x.index_select(0, &places)?, x.gather(0, &places)?, x.take(&places)?] {
        places.fill_(2)?;
        assert_eq!(kind(y.sum(..)?.backward()), ErrorKind::Autograd);
    }
    Ok(())
}

#[test]
fn in_place_scatters_are_differentiated() -> Result<()> {
    let places = index(&[1, 0, 1])?;
    let weights = floats(&[1.0, 10.0, 100.0])?;

    let (x, v) = (leaf(&[1.0, 2.0, 3.0])?, leaf(&[4.0, 5.0, 6.0])?);
    let y = x.mul(1.0)?;
    y.scatter_add_(0, &places, &v)?;
    y.mul(&weights)?.sum(..)?.backward()?;
    assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [1.0, 10.0, 100.0]);
    assert_eq!(v.grad().unwrap().to_vec::<f32>()?, [10.0, 1.0, 10.0]);

    let (x, v) = (leaf(&[1.0, 2.0, 3.0])?, leaf(&[4.0, 5.0])?);
    let y = x.mul(1.0)?;
    y.scatter_(0, &index(&[2, 0])?, &v)?.index_fill_(0, &index(&[0])?, 7.0)?;
    y.mul(&weights)?.sum(..)?.backward()?;
    assert_eq!(y.to_vec::<f32>()?, [7.0, 2.0, 4.0]);
    assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [0.0, 10.0, 0.0]);
    assert_eq!(v.grad().unwrap().to_vec::<f32>()?, [100.0, 0.0]);

    let (x, v) = (leaf(&[1.0, 2.0, 3.0])?, leaf(&[4.0, 5.0])?);
    let y = x.mul(1.0)?;
    y.index_add_(0, &index(&[1, 1])?, &v, 2.0)?.index_copy_(0, &index(&[2])?, &v.narrow(0, 0, 1)?)?;
    y.mul(&weights)?.sum(..)?.backward()?;
    assert_eq!(y.to_vec::<f32>()?, [1.0, 20.0, 4.0]);
    assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [1.0, 10.0, 0.0]);
    assert_eq!(v.grad().unwrap().to_vec::<f32>()?, [120.0, 20.0]);

    let (x, v) = (leaf(&[1.0, 2.0, 3.0])?, leaf(&[4.0, 5.0, 6.0])?);
    let y = x.mul(1.0)?;
    y.scatter_reduce_(0, &places, &v, ScatterReduce::Prod, true)?;
    y.sum(..)?.backward()?;
    assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [5.0, 24.0, 1.0]);
    assert_eq!(v.grad().unwrap().to_vec::<f32>()?, [12.0, 1.0, 8.0]);

    let x = leaf(&[1.0, 2.0])?;
    let y = x.mul(1.0)?;
    y.put_(&index(&[-1])?, &floats(&[9.0])?, true)?.masked_scatter_(&Tensor::new([true, false])?, &floats(&[8.0])?)?;
    assert_eq!(y.to_vec::<f32>()?, [8.0, 11.0]);
    y.sum(..)?.backward()?;
    assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [0.0, 1.0]);
    Ok(())
}

#[test]
fn segments_are_reduced() -> Result<()> {
    let offsets = index(&[0, 1, 3, 6, 6])?;
    let cases = [
        (ScatterReduce::Sum, 0.5, [2.5, 4.5, 15.5, 0.5], [1.0; 6]),
        (ScatterReduce::Mean, 0.0, [2.0, 2.0, 5.0, 0.0], [1.0, 0.5, 0.5, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0]),
        (ScatterReduce::Amax, 3.0, [3.0, 4.0, 6.0, 3.0], [0.0, 0.0, 1.0, 0.0, 0.5, 0.5]),
        (ScatterReduce::Amin, 2.0, [2.0, 0.0, 2.0, 2.0], [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]),
        (ScatterReduce::Prod, 2.0, [4.0, 0.0, 216.0, 2.0], [2.0, 8.0, 0.0, 72.0, 36.0, 36.0]),
    ];
    for (reduce, initial, expected, gradient) in cases {
        let x = leaf(&[2.0, 0.0, 4.0, 3.0, 6.0, 6.0])?;
        let y = x.segment_reduce(reduce, &offsets, 0, Some(initial.into()))?;
        y.sum(..)?.backward()?;
        assert_eq!(y.to_vec::<f32>()?, expected, "{reduce:?}");
        assert_eq!(x.grad().unwrap().to_vec::<f32>()?, gradient, "{reduce:?}");
    }
    let rows = Tensor::new([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]])?;
    let each = Tensor::new([[0i64, 1, 3], [1, 1, 2]])?;
    let y = rows.segment_reduce(ScatterReduce::Mean, &each, -1, None)?;
    assert_eq!(y.nan_to_num(Some(-1.0), None, None)?.to_vec::<f32>()?, [1.0, 2.5, -1.0, 5.0]);
    assert!(rows.segment_reduce(ScatterReduce::Sum, &offsets, 1, None).is_err());
    assert!(index(&[1])?.segment_reduce(ScatterReduce::Sum, &offsets, 0, None).is_err());
    Ok(())
}

#[test]
fn wrong_scatters_are_errors() -> Result<()> {
    let x = Tensor::zeros([2, 3])?;
    let at = |rows: usize, columns: usize| Tensor::zeros_with([rows, columns], DType::I64);
    assert_eq!(kind(x.gather(0, &index(&[0])?)), ErrorKind::Shape);
    assert_eq!(kind(x.gather(0, &at(1, 4)?)), ErrorKind::Shape);
    assert_eq!(kind(x.gather(2, &at(1, 1)?)), ErrorKind::Index);
    assert_eq!(kind(x.gather(0, &at(1, 1)?.add(2)?)), ErrorKind::Index);
    assert_eq!(kind(x.gather(0, &at(1, 1)?.sub(1)?)), ErrorKind::Index);
    assert_eq!(kind(x.gather(0, &at(1, 1)?.to_dtype(DType::F32)?)), ErrorKind::Index);
    assert_eq!(kind(x.scatter(0, &at(2, 3)?, &Tensor::zeros([2, 2])?)), ErrorKind::Shape);
    assert_eq!(kind(x.scatter(0, &at(1, 1)?, &Tensor::zeros_with([1, 1], DType::F64)?)), ErrorKind::DType);
    assert_eq!(kind(x.scatter_add(1, &at(3, 1)?, &Tensor::zeros([3, 1])?)), ErrorKind::Shape);
    assert_eq!(kind(x.index_select(0, &at(1, 1)?)), ErrorKind::Index);
    assert_eq!(kind(x.index_select(0, &index(&[2])?)), ErrorKind::Index);
    assert_eq!(kind(x.index_add(1, &index(&[0])?, &Tensor::zeros([2, 2])?, 1)), ErrorKind::Shape);
    assert_eq!(
        kind(Tensor::zeros_with([2], DType::I64)?.index_add(0, &index(&[0])?, &index(&[1])?, 0.5)),
        ErrorKind::DType
    );
    assert_eq!(kind(x.index_fill(0, &index(&[0])?, &floats(&[1.0])?)), ErrorKind::Shape);
    assert_eq!(kind(x.put(&index(&[0])?, &floats(&[1.0, 2.0])?, false)), ErrorKind::Index);
    assert_eq!(kind(x.take(&index(&[6])?)), ErrorKind::Index);
    assert_eq!(kind(x.masked_select(&at(2, 3)?)), ErrorKind::DType);
    assert_eq!(kind(x.masked_scatter(&Tensor::full([2, 3], true)?, &floats(&[1.0])?)), ErrorKind::Shape);
    assert_eq!(kind(index(&[-1])?.one_hot(None)), ErrorKind::Value);
    assert_eq!(kind(index(&[3])?.one_hot(Some(3))), ErrorKind::Value);
    assert_eq!(kind(x.embedding(&index(&[-1])?, None, false)), ErrorKind::Index);
    assert_eq!(kind(x.embedding(&index(&[2])?, None, false)), ErrorKind::Index);
    assert_eq!(kind(x.embedding(&index(&[0])?, Some(2), false)), ErrorKind::Value);
    assert_eq!(kind(x.pad(&[1], PadMode::Reflect)), ErrorKind::Value);
    assert_eq!(kind(x.pad(&[3, 0], PadMode::Reflect)), ErrorKind::Value);
    assert_eq!(kind(x.pad(&[4, 0], PadMode::Circular)), ErrorKind::Value);
    assert_eq!(kind(x.pad(&[-2, -2], PadMode::default())), ErrorKind::Value);
    Ok(())
}

#[test]
fn second_derivatives() -> Result<()> {
    // The sum of x[i]^3 differentiated twice, with repeated indices.
    let x = leaf(&[1.0, 2.0, 3.0])?;
    for read in [
        |x: &Tensor| x.i(index(&[0, 2, 2])?),
        |x: &Tensor| x.index_select(0, &index(&[0, 2, 2])?),
        |x: &Tensor| x.gather(0, &index(&[0, 2, 2])?),
        |x: &Tensor| x.take(&index(&[0, 2, 2])?),
        |x: &Tensor| x.unsqueeze(1)?.embedding(&index(&[0, 2, 2])?, Some(1), false),
        |x: &Tensor| {
            Tensor::zeros([3])?
                .index_put(index(&[1, 0, 0])?, &x.mul(1.0)?, true)?
                .masked_fill(&Tensor::new([true, false, true])?, 0.0)
        },
    ] {
        let t = read(&x)?;
        let y = t.mul(&t.square()?)?.sum(..)?;
        let first = autograd::grad(&[&y], &[&x], autograd::Backward::default().create_graph(true))?.remove(0).unwrap();
        let second = autograd::grad(&[&first.sum(..)?], &[&x], autograd::Backward::default())?.remove(0).unwrap();
        let counts = no_grad(|| first.div(&x.square()?)?.div(3.0)?.to_vec::<f32>())?;
        let want: Vec<f32> = counts.iter().zip([1.0, 2.0, 3.0]).map(|(c, v)| 6.0 * c * v).collect();
        assert_eq!(second.to_vec::<f32>()?, want);
    }
    Ok(())
}

#[test]
fn padding_row_of_an_embedding_gets_no_gradient() -> Result<()> {
    let table = Tensor::ones([3, 2])?.requires_grad_(true)?;
    table.embedding(&index(&[0, 2, 2, 0])?, Some(-1), false)?.sum(..)?.backward()?;
    assert_eq!(table.grad().unwrap().to_vec::<f32>()?, [2.0, 2.0, 0.0, 0.0, 0.0, 0.0]);
    Ok(())
}

#[test]
fn sizes_of_zero_and_no_dimensions() -> Result<()> {
    let (number, none) = (Tensor::scalar(3.0)?, Tensor::zeros([0, 3])?);
    assert_eq!(number.index_select(0, &index(&[0])?)?.item::<f32>()?, 3.0);
    assert_eq!(number.index_fill(0, &index(&[0])?, 4.0)?.item::<f32>()?, 4.0);
    assert_eq!(number.scatter(0, &index(&[0])?, 5.0)?.item::<f32>()?, 5.0);
    assert_eq!(number.masked_select(&Tensor::scalar(true)?)?.to_vec::<f32>()?, [3.0]);
    assert_eq!(number.nonzero()?.shape(), [1, 0]);
    assert_eq!(number.take(&Tensor::scalar(0)?)?.shape(), [0usize; 0]);
    assert_eq!(none.flip([0, 1])?.shape(), [0, 3]);
    assert_eq!(none.roll([1], [1])?.shape(), [0, 3]);
    assert_eq!(none.repeat(&[2, 2])?.shape(), [0, 6]);
    assert_eq!(none.repeat_interleave(&index(&[])?, Some(0))?.shape(), [0, 3]);
    assert_eq!(none.tril(0)?.shape(), [0, 3]);
    assert_eq!(none.gather(1, &Tensor::zeros_with([0, 7], DType::I64)?)?.shape(), [0, 7]);
    assert_eq!(none.pad(&[1, 1], PadMode::Replicate)?.shape(), [0, 5]);
    assert_eq!(index(&[])?.unique()?.shape(), [0]);
    Ok(())
}
