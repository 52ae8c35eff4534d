//! Random calls against models too simple to be wrong.

use crate::model::{self, Model, index_all};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rushlight_core::{DType, Result};
use rushlight_tensor::{IndexItem, PrintOptions, Tensor, cat};

/// Runs a property over the same cases every time.
fn check<S: Strategy>(strategy: S, property: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = Config { cases: 200, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    if let Err(e) = runner.run(&strategy, property) {
        panic!("{e}");
    }
}

fn shapes(max_rank: usize) -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![8 => 1usize..5, 1 => Just(0usize)], 0..=max_rank)
}

fn numbered(shape: &[usize]) -> (Tensor, Model) {
    let model = Model::numbered(shape);
    (Tensor::from_slice(&model.data, shape).unwrap(), model)
}

fn same(tensor: &Tensor, model: &Model) -> Result<(), TestCaseError> {
    prop_assert_eq!(tensor.shape(), &model.shape[..]);
    prop_assert_eq!(tensor.to_vec::<i64>().unwrap(), &model.data[..]);
    Ok(())
}

/// A step of a chain of views; numbers are clamped to the shape.
#[derive(Clone, Debug)]
enum Step {
    Permute(u64),
    Transpose(usize, usize),
    Narrow(usize, usize, usize),
    Slice(usize, isize, isize, usize),
    Select(usize, isize),
    Unsqueeze(usize),
    Squeeze,
    Expand(usize),
    Flatten(usize, usize),
    Reshape(usize),
    Diagonal(isize),
    Unfold(usize, usize, usize),
    Flip(usize),
    Contiguous,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let n = 0usize..6;
    let step = prop_oneof![
        any::<u64>().prop_map(Step::Permute),
        (n.clone(), n.clone()).prop_map(|(a, b)| Step::Transpose(a, b)),
        (n.clone(), n.clone(), n.clone()).prop_map(|(d, s, l)| Step::Narrow(d, s, l)),
        (n.clone(), -6isize..6, -6isize..6, 1usize..4).prop_map(|(d, s, e, k)| Step::Slice(d, s, e, k)),
        (n.clone(), -6isize..6).prop_map(|(d, i)| Step::Select(d, i)),
        n.clone().prop_map(Step::Unsqueeze),
        Just(Step::Squeeze),
        n.clone().prop_map(Step::Expand),
        (n.clone(), n.clone()).prop_map(|(a, b)| Step::Flatten(a, b)),
        n.clone().prop_map(Step::Reshape),
        (-3isize..4).prop_map(Step::Diagonal),
        (n.clone(), n.clone(), 1usize..4).prop_map(|(d, s, k)| Step::Unfold(d, s, k)),
        n.prop_map(Step::Flip),
        Just(Step::Contiguous),
    ];
    prop::collection::vec(step, 0..8)
}

/// Applies a step to both; `None` if the shape does not allow it.
fn apply(step: &Step, t: &Tensor, m: &Model) -> Option<(Result<Tensor>, Model)> {
    let rank = m.shape.len();
    let dim = |d: usize| (rank > 0).then(|| d % rank);
    Some(match *step {
        Step::Permute(seed) => {
            let mut order: Vec<usize> = (0..rank).collect();
            let mut seed = seed;
            for i in (1..rank).rev() {
                order.swap(i, (seed % (i as u64 + 1)) as usize);
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407) >> 3;
            }
            let dims: Vec<isize> = order.iter().map(|&d| d as isize).collect();
            (t.permute(&dims), m.permute(&order))
        }
        Step::Transpose(a, b) => {
            let (a, b) = (dim(a)?, dim(b)?);
            let mut order: Vec<usize> = (0..rank).collect();
            order.swap(a, b);
            (t.transpose(a as isize - rank as isize, b as isize), m.permute(&order))
        }
        Step::Narrow(d, start, length) => {
            let d = dim(d)?;
            let start = start.min(m.shape[d]);
            let length = length.min(m.shape[d] - start);
            (t.narrow(d as isize, start as isize, length), m.take(d, &(start..start + length).collect::<Vec<_>>()))
        }
        Step::Slice(d, start, end, step) => {
            let d = dim(d)?;
            let size = m.shape[d] as isize;
            let clamp = |v: isize| if v < 0 { (v + size).max(0) } else { v.min(size) };
            let kept: Vec<usize> =
                (clamp(start)..clamp(end).max(clamp(start))).step_by(step).map(|i| i as usize).collect();
            (t.slice(d as isize, Some(start), Some(end), step), m.take(d, &kept))
        }
        Step::Select(d, i) => {
            let d = dim(d)?;
            let size = m.shape[d] as isize;
            if size == 0 {
                return None;
            }
            let i = i.rem_euclid(size) - if i < 0 { size } else { 0 };
            (t.select(d as isize, i), m.take(d, &[i.rem_euclid(size) as usize]).drop_dim(d))
        }
        Step::Unsqueeze(d) => {
            let d = d % (rank + 1);
            (t.unsqueeze(d as isize), m.add_dim(d))
        }
        Step::Squeeze => {
            let mut out = m.clone();
            for d in (0..rank).rev().filter(|&d| m.shape[d] == 1) {
                out = out.drop_dim(d);
            }
            (t.squeeze(..), out)
        }
        Step::Expand(size) => {
            let d = m.shape.iter().position(|&s| s == 1)?;
            let mut shape: Vec<isize> = vec![-1; rank];
            shape[d] = size as isize;
            (t.expand(&shape), m.take(d, &vec![0; size]))
        }
        Step::Flatten(a, b) => {
            let (a, b) = (dim(a)?.min(dim(b)?), dim(a)?.max(dim(b)?));
            let mut shape = m.shape[..a].to_vec();
            shape.push(m.shape[a..=b].iter().product());
            shape.extend(&m.shape[b + 1..]);
            (t.flatten(a as isize, b as isize), Model { shape, data: m.data.clone() })
        }
        Step::Reshape(d) => {
            let n = m.data.len();
            let divisor = (1..=d.max(1)).rev().find(|d| n.is_multiple_of(*d))?;
            let shape = vec![divisor, n / divisor];
            (t.reshape(&shape), Model { shape, data: m.data.clone() })
        }
        Step::Diagonal(offset) => {
            if rank < 2 {
                return None;
            }
            (t.diagonal(offset, 0, 1), m.diagonal(offset))
        }
        Step::Unfold(d, size, step) => {
            let d = dim(d)?;
            let size = size.min(m.shape[d]);
            (t.unfold(d as isize, size, step), m.unfold(d, size, step))
        }
        Step::Flip(d) => {
            let d = dim(d)?;
            (t.flip([d as isize]), m.take(d, &(0..m.shape[d]).rev().collect::<Vec<_>>()))
        }
        Step::Contiguous => (t.contiguous(), m.clone()),
    })
}

#[test]
fn chains_of_views() {
    check((shapes(4), steps()), |(shape, steps)| {
        let (mut t, mut m) = numbered(&shape);
        for step in &steps {
            if m.data.len() > 4096 {
                break;
            }
            if let Some((next, model)) = apply(step, &t, &m) {
                t = next.map_err(|e| TestCaseError::fail(format!("{step:?} on {:?}: {e}", m.shape)))?;
                m = model;
                same(&t, &m)?;
            }
        }
        Ok(())
    });
}

#[test]
fn gradients_through_chains_of_views_count_uses() {
    check((shapes(3), steps()), |(shape, steps)| {
        let (t, mut m) = numbered(&shape);
        let leaf = t.to_dtype(DType::F64).unwrap().requires_grad_(true).unwrap();
        let mut y = leaf.clone();
        for step in &steps {
            if m.data.len() > 1024 {
                break;
            }
            if let Some((next, model)) = apply(step, &y, &m) {
                (y, m) = (next.map_err(|e| TestCaseError::fail(e.to_string()))?, model);
            }
        }
        y.sum(..).unwrap().backward().unwrap();
        let mut uses = vec![0i64; t.numel()];
        m.data.iter().for_each(|&i| uses[i as usize] += 1);
        match leaf.grad() {
            Some(g) => prop_assert_eq!(g.to_vec::<i64>().unwrap(), uses),
            None => prop_assert!(uses.is_empty()),
        }
        Ok(())
    });
}

/// Two shapes that broadcast, and a view chain for each.
fn pairs() -> impl Strategy<Value = (Vec<usize>, Vec<usize>)> {
    (shapes(4), prop::collection::vec(any::<(bool, bool)>(), 4), 0usize..4, 0usize..4).prop_map(
        |(shape, ones, cut_a, cut_b)| {
            let shrink = |pick: fn(&(bool, bool)) -> bool, cut: usize| -> Vec<usize> {
                let own: Vec<usize> = shape.iter().zip(&ones).map(|(&d, one)| if pick(one) { 1 } else { d }).collect();
                own[cut.min(own.len())..].to_vec()
            };
            (shrink(|o| o.0, cut_a), shrink(|o| o.1, cut_b))
        },
    )
}

#[test]
fn broadcasting_of_two() {
    check((pairs(), any::<bool>()), |((a, b), turned)| {
        let (mut x, mut mx) = numbered(&a);
        let (y, my) = numbered(&b);
        if turned && a.len() == 2 && b.len() < 2 {
            (x, mx) = (x.t().unwrap(), mx.permute(&[1, 0]));
        }
        let Some(shape) = Model::broadcast(&mx.shape, &my.shape) else {
            prop_assert!(x.add(&y).is_err());
            return Ok(());
        };
        let (wide_x, wide_y) = (mx.stretch(&shape), my.stretch(&shape));
        let zip = |f: fn(i64, i64) -> i64| Model {
            shape: shape.clone(),
            data: wide_x.data.iter().zip(&wide_y.data).map(|(&a, &b)| f(a, b)).collect(),
        };
        same(&x.add(&y).unwrap(), &zip(|a, b| a + b))?;
        same(&x.sub(&y).unwrap(), &zip(|a, b| a - b))?;
        same(&x.mul(&y).unwrap(), &zip(|a, b| a * b))?;
        same(&x.maximum(&y).unwrap(), &zip(i64::max))?;
        same(&x.le(&y).unwrap().to_dtype(DType::I64).unwrap(), &zip(|a, b| i64::from(a <= b)))?;
        let (fx, fy) = (x.to_dtype(DType::F32).unwrap(), y.to_dtype(DType::F64).unwrap());
        same(&fx.mul(&fy).unwrap().to_dtype(DType::I64).unwrap(), &zip(|a, b| a * b))
    });
}

#[test]
fn sums_over_any_dimensions() {
    check((shapes(4), prop::collection::vec(any::<bool>(), 4), any::<bool>()), |(shape, reduced, keepdim)| {
        let (t, m) = numbered(&shape);
        let dims: Vec<usize> = (0..shape.len()).filter(|&d| reduced[d]).collect();
        if dims.is_empty() {
            return Ok(());
        }
        let names: Vec<isize> =
            dims.iter().map(|&d| d as isize - if d % 2 == 0 { 0 } else { shape.len() as isize }).collect();
        let mut expected = m;
        for &d in dims.iter().rev() {
            expected = expected.sum(d);
            if keepdim {
                expected = expected.add_dim(d);
            }
        }
        same(&t.sum_dims(&names, keepdim).unwrap(), &expected)
    });
}

/// One component of an index; numbers are clamped to the dimension.
#[derive(Clone, Debug)]
enum Place {
    Int(isize),
    Range(isize, isize, usize),
    All,
    NewAxis,
    List(Vec<isize>),
    Mask(Vec<bool>),
}

fn places() -> impl Strategy<Value = Vec<Place>> {
    let place = prop_oneof![
        (-6isize..6).prop_map(Place::Int),
        (-6isize..6, -6isize..6, 1usize..3).prop_map(|(s, e, k)| Place::Range(s, e, k)),
        Just(Place::All),
        Just(Place::NewAxis),
        prop::collection::vec(-6isize..6, 3).prop_map(Place::List),
        prop::collection::vec(any::<bool>(), 4).prop_map(Place::Mask),
    ];
    prop::collection::vec(place, 0..4)
}

/// The index for a tensor of a shape, and its equivalent for the model.
fn index_for(shape: &[usize], places: &[Place]) -> Option<(Vec<IndexItem>, Vec<model::Pick>)> {
    let (mut items, mut picks) = (Vec::new(), Vec::new());
    let mut dim = 0;
    let mut lists = 0;
    for place in places {
        if matches!(place, Place::NewAxis) {
            items.push(IndexItem::NewAxis);
            picks.push(model::Pick::NewAxis);
            continue;
        }
        let size = *shape.get(dim)?;
        dim += 1;
        let wrap = |i: isize| i.rem_euclid(size.max(1) as isize) as usize;
        match place {
            Place::Int(i) => {
                if size == 0 {
                    return None;
                }
                items.push(IndexItem::Int(wrap(*i) as isize - if *i < 0 { size as isize } else { 0 }));
                picks.push(model::Pick::One(wrap(*i)));
            }
            Place::Range(start, end, step) => {
                let clamp = |v: isize| if v < 0 { (v + size as isize).max(0) } else { v.min(size as isize) };
                items.push(IndexItem::Range { start: Some(*start), end: Some(*end), step: *step });
                let kept = (clamp(*start)..clamp(*end).max(clamp(*start))).step_by(*step).map(|i| i as usize);
                picks.push(model::Pick::Many(kept.collect()));
            }
            Place::All => {
                items.push((..).into());
                picks.push(model::Pick::Many((0..size).collect()));
            }
            Place::List(list) => {
                if size == 0 {
                    return None;
                }
                lists += 1;
                let values: Vec<i64> =
                    list.iter().map(|&i| wrap(i) as i64 - if i < 0 { size as i64 } else { 0 }).collect();
                items.push((&Tensor::new(values).unwrap()).into());
                picks.push(model::Pick::List(list.iter().map(|&i| wrap(i)).collect()));
            }
            Place::Mask(mask) => {
                // With other lists a mask must have as many true elements as they have: tested only without them.
                lists += 2;
                let mask: Vec<bool> = (0..size).map(|i| mask[i % mask.len()]).collect();
                picks.push(model::Pick::List((0..size).filter(|&i| mask[i]).collect()));
                items.push((&Tensor::new(mask).unwrap()).into());
            }
            Place::NewAxis => {}
        }
    }
    // An integer next to lists is itself a list, which the model does not support.
    let ints = places.iter().any(|p| matches!(p, Place::Int(_)));
    let masks = places.iter().filter(|p| matches!(p, Place::Mask(_))).count();
    if ints && lists > 0 || masks > 0 && lists > 2 {
        return None;
    }
    picks.extend(shape[dim..].iter().map(|&size| model::Pick::Many((0..size).collect())));
    Some((items, picks))
}

#[test]
fn reading_by_index() {
    check((shapes(4), places()), |(shape, places)| {
        let (t, m) = numbered(&shape);
        if let Some((items, picks)) = index_for(&shape, &places) {
            let got = t.index(items).map_err(|e| TestCaseError::fail(e.to_string()))?;
            same(&got, &index_all(&m, &picks))?;
        }
        Ok(())
    });
}

#[test]
fn assigning_by_index() {
    check((shapes(4), places()), |(shape, places)| {
        let (t, m) = numbered(&shape);
        let Some((items, picks)) = index_for(&shape, &places) else { return Ok(()) };
        let places = index_all(&m, &picks);
        // A number everywhere.
        let filled = t.copy().unwrap();
        filled.index_assign(items.clone(), -7).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let mut expected = m.clone();
        places.data.iter().for_each(|&i| expected.data[i as usize] = -7);
        same(&filled, &expected)?;
        // Distinct values, where no position is written twice.
        let mut targets = places.data.clone();
        targets.sort_unstable();
        if targets.windows(2).all(|w| w[0] != w[1]) {
            let values =
                Model { shape: places.shape.clone(), data: (0..places.data.len() as i64).map(|i| -1 - i).collect() };
            let written = t.copy().unwrap();
            let source = Tensor::from_slice(&values.data, &values.shape).unwrap();
            written.index_assign(items, &source).map_err(|e| TestCaseError::fail(e.to_string()))?;
            let mut expected = m.clone();
            places.data.iter().zip(&values.data).for_each(|(&i, &v)| expected.data[i as usize] = v);
            same(&written, &expected)?;
        }
        Ok(())
    });
}

#[test]
fn split_and_joined_again() {
    check((shapes(3), 0usize..3, 1usize..5, any::<bool>()), |(shape, dim, size, turned)| {
        let (mut t, mut m) = numbered(&shape);
        if shape.is_empty() {
            prop_assert!(t.split(size, 0).is_err());
            return Ok(());
        }
        if turned {
            let order: Vec<usize> = (0..shape.len()).rev().collect();
            t = t.permute(order.iter().map(|&d| d as isize).collect::<Vec<_>>()).unwrap();
            m = m.permute(&order);
        }
        let dim = dim % shape.len();
        let parts = t.split(size, dim as isize).unwrap();
        same(&cat(&parts.iter().collect::<Vec<_>>(), dim as isize).unwrap(), &m)?;
        let parts = t.chunk(size, dim as isize - shape.len() as isize).unwrap();
        prop_assert!(parts.len() <= size);
        same(&cat(&parts.iter().collect::<Vec<_>>(), dim as isize).unwrap(), &m)?;
        let slices = t.unbind(dim as isize).unwrap();
        prop_assert_eq!(slices.len(), m.shape[dim]);
        if !slices.is_empty() {
            same(&rushlight_tensor::stack(&slices.iter().collect::<Vec<_>>(), dim as isize).unwrap(), &m)?;
        }
        Ok(())
    });
}

#[test]
fn text_of_anything() {
    let value = prop_oneof![
        any::<f64>(),
        Just(0.0),
        Just(f64::NAN),
        Just(f64::INFINITY),
        -10.0..10.0f64,
        (-100i32..100).prop_map(f64::from)
    ];
    let options = (0usize..12, 0usize..30, 0usize..5, 0usize..100, any::<Option<bool>>());
    check((shapes(4), prop::collection::vec(value, 1..20), 0usize..10, options), |(shape, values, dtype, options)| {
        let count: usize = shape.iter().product();
        let data: Vec<f64> = (0..count).map(|i| values[i % values.len()]).collect();
        let t = Tensor::from_slice(&data, &shape).unwrap().to_dtype(DType::COMPUTED[dtype]).unwrap();
        let (precision, threshold, edgeitems, linewidth, sci_mode) = options;
        let text = t.display(PrintOptions { precision, threshold, edgeitems, linewidth, sci_mode }).to_string();
        prop_assert!(text.starts_with("tensor(") && text.ends_with(')'), "{}", text);
        prop_assert_eq!(text.matches('[').count(), text.matches(']').count());
        Ok(())
    });
}
