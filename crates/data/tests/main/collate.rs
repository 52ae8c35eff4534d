//! Collating and combining datasets.

use rushlight_core::{DType, Generator};
use rushlight_data::{Collate, ConcatDataset, Dataset, Subset, TensorDataset, VecDataset, random_split};
use rushlight_tensor::Tensor;
use std::collections::BTreeMap;

#[test]
fn nested_samples() {
    let sample = |i: i64| (Tensor::full([2], i as f32).unwrap(), i, [i as f64, 0.5], vec![i as u8], format!("s{i}"));
    let (x, label, [a, b], list, names) = Collate::collate((0..3).map(sample).collect()).unwrap();
    assert_eq!(x.to_vec::<f32>().unwrap(), [0., 0., 1., 1., 2., 2.]);
    assert_eq!((label.dtype(), label.to_vec::<i64>().unwrap()), (DType::I64, vec![0, 1, 2]));
    assert_eq!((a.dtype(), b.to_vec::<f64>().unwrap()), (DType::F64, vec![0.5; 3]));
    assert_eq!((list.len(), list[0].dtype()), (1, DType::I64));
    assert_eq!(names, ["s0", "s1", "s2"]);
    let maps = (0..2).map(|i| BTreeMap::from([("x", i as f32), ("y", 1.0)])).collect();
    assert_eq!(BTreeMap::collate(maps).unwrap()["x"].to_vec::<f32>().unwrap(), [0.0, 1.0]);
}

#[test]
fn samples_that_do_not_fit() {
    let error = |e: rushlight_core::Error| e.to_string();
    let shapes = vec![Tensor::zeros([2]).unwrap(), Tensor::zeros([3]).unwrap()];
    assert!(error(Tensor::collate(shapes).unwrap_err()).starts_with("collate"));
    assert!(error(Vec::collate(vec![vec![1i64], vec![1, 2]]).unwrap_err()).contains("equally many parts"));
    assert!(error(Vec::collate(vec![vec![1i64, 2], vec![1]]).unwrap_err()).contains("equally many parts"));
    let maps = vec![BTreeMap::from([("a", 1i64)]), BTreeMap::from([("b", 1i64)])];
    assert!(error(BTreeMap::collate(maps).unwrap_err()).contains("same keys"));
    assert!(Tensor::collate(vec![]).is_err());
    assert!(<[i64; 2]>::collate(vec![]).is_err());
    assert!(usize::collate(vec![usize::MAX]).is_err());
}

#[test]
fn tensor_rows() {
    let x = Tensor::arange(0, 12, 1).unwrap().reshape([4, 3]).unwrap();
    let data = TensorDataset::new((x.clone(), Tensor::arange(10, 14, 1).unwrap())).unwrap();
    let (rows, labels) = data.get_batch(&[3, 0, 3]).unwrap().unwrap();
    assert_eq!(rows.to_vec::<i64>().unwrap(), [9, 10, 11, 0, 1, 2, 9, 10, 11]);
    assert_eq!(labels.to_vec::<i64>().unwrap(), [13, 10, 13]);
    let one_by_one = Collate::collate([3, 0, 3].iter().map(|&i| data.get(i).unwrap()).collect()).unwrap();
    assert!(one_by_one.0.equal(&rows).unwrap() && one_by_one.1.equal(&labels).unwrap());
    assert!(data.get(4).is_err() && data.get_batch(&[0, 4]).is_err());
    assert!(TensorDataset::new((x.clone(), Tensor::zeros([3]).unwrap())).is_err());
    assert!(TensorDataset::new(Tensor::zeros([0usize; 0]).unwrap()).is_err());
    assert!(TensorDataset::new(Vec::<Tensor>::new()).is_err());
    assert_eq!(TensorDataset::new([x.clone(), x]).unwrap().get(1).unwrap().len(), 2);
}

#[test]
fn parts_of_datasets() {
    let data = VecDataset::new((0..10i64).collect());
    let odd = Subset::new(data.clone(), vec![1, 3, 5]).unwrap();
    assert_eq!((odd.len(), odd.get(2).unwrap()), (3, 5));
    assert!(odd.get(3).is_err() && Subset::new(data.clone(), vec![10]).is_err());
    let boxed: Vec<Box<dyn Dataset<Item = i64>>> = vec![Box::new(odd), Box::new(data.clone().map(|x| Ok(-x)))];
    let both = ConcatDataset::new(boxed).unwrap();
    let all: Vec<i64> = (0..both.len()).map(|i| both.get(i).unwrap()).collect();
    assert_eq!(all, [1, 3, 5, 0, -1, -2, -3, -4, -5, -6, -7, -8, -9]);
    assert!(both.get(13).is_err());
    assert!(ConcatDataset::<VecDataset<i64>>::new(vec![]).is_err());
}

#[test]
fn random_parts() {
    let data = || VecDataset::new((0..10i64).collect());
    let split = |seed| random_split(data(), [7usize, 3], &Generator::new(seed)).unwrap();
    let [a, b] = split(0);
    let mut all: Vec<usize> = a.indices().iter().chain(b.indices()).copied().collect();
    assert_eq!(a.indices(), split(0)[0].indices());
    assert_ne!(a.indices(), split(1)[0].indices());
    all.sort();
    assert_eq!(all, (0..10).collect::<Vec<_>>());
    assert!(random_split(data(), [7usize, 4], None).is_err());
    assert!(random_split(data(), [usize::MAX, 11], None).is_err());
    for bad in [[0.5, 0.4], [0.9, 0.2], [1.5, -0.5], [f64::NAN, 1.0]] {
        assert!(random_split(data(), bad, None).is_err(), "{bad:?}");
    }
}
