//! Transforms: randomness and rejected arguments.

use rushlight_core::DType;
use rushlight_data::transform::*;
use rushlight_data::vision::Cifar10;
use rushlight_data::{DataLoader, Dataset, SampleRng};
use rushlight_tensor::{PadMode, Tensor};

fn image() -> Tensor {
    Tensor::arange(0, 60, 1).unwrap().reshape([3, 4, 5]).unwrap().to_dtype(DType::U8).unwrap()
}

fn augment() -> Compose {
    Compose::new()
        .then(RandomCrop::new(32).padding(4))
        .then(RandomHorizontalFlip::default())
        .then(RandomVerticalFlip::new(0.2).unwrap())
        .then(ColorJitter::new(0.4, 0.4, 0.4, 0.1).unwrap())
        .then(RandomResizedCrop::new([24, 20]))
        .then(ToTensor::default())
        .then(RandomErasing::new(0.5).unwrap())
        .then(Lambda::new(|x, rng| x.mul(1.0 + 0.1 * rng.uniform())))
        .then(Normalize::new([0.5], [0.5]).unwrap())
}

#[test]
fn batches_do_not_depend_on_workers() {
    let batches = |workers| -> Vec<Vec<f32>> {
        let data = Cifar10::synthetic(12, 1).unwrap().transform(augment());
        let loader = DataLoader::builder(data).batch_size(5).shuffle(true).seed(2).workers(workers).build().unwrap();
        loader.epoch(0).map(|batch| batch.unwrap().0.to_vec().unwrap()).collect()
    };
    let alone = batches(0);
    assert_eq!(alone[0].len(), 5 * 3 * 24 * 20);
    assert_eq!(alone, batches(3));
}

#[test]
fn flips_and_crops() {
    let mut rng = SampleRng::new(0);
    let row = |t: &Tensor| t.to_vec::<u8>().unwrap()[..5].to_vec();
    assert_eq!(row(&RandomHorizontalFlip::new(1.0).unwrap().apply(&image(), &mut rng).unwrap()), [4, 3, 2, 1, 0]);
    assert_eq!(row(&RandomVerticalFlip::new(1.0).unwrap().apply(&image(), &mut rng).unwrap()), [15, 16, 17, 18, 19]);
    assert_eq!(row(&RandomHorizontalFlip::new(0.0).unwrap().apply(&image(), &mut rng).unwrap()), [0, 1, 2, 3, 4]);
    assert_eq!(crop(&image(), 1, 2, [2, 2]).unwrap().to_vec::<u8>().unwrap()[..4], [7, 8, 12, 13]);
    let padded = Pad::sides(1, 0, 0, 1).mode(PadMode::Constant(9.into())).apply(&image(), &mut rng).unwrap();
    assert_eq!((padded.shape(), row(&padded)), (&[3, 5, 6][..], vec![9, 0, 1, 2, 3]));
    // Every position of a random crop occurs.
    let places: std::collections::BTreeSet<u8> = (0..200)
        .map(|_| RandomCrop::new([3, 3]).apply(&image(), &mut rng).unwrap().to_vec::<u8>().unwrap()[0])
        .collect();
    assert_eq!(places.into_iter().collect::<Vec<_>>(), [0, 1, 2, 5, 6, 7]);
    let large = RandomCrop::new(8).pad_if_needed(true).apply(&image(), &mut rng).unwrap();
    assert_eq!(large.shape(), [3, 8, 8]);
}

#[test]
fn sizes() {
    let mut rng = SampleRng::new(0);
    let shape = |r: Resize, rng: &mut SampleRng| r.apply(&image(), rng).unwrap().shape().to_vec();
    assert_eq!(shape(Resize::new(8), &mut rng), [3, 8, 10]);
    assert_eq!(shape(Resize::new(8).max_size(9), &mut rng), [3, 7, 9]);
    assert_eq!(shape(Resize::exactly([2, 7]).antialias(false), &mut rng), [3, 2, 7]);
    let tall = image().transpose(1, 2).unwrap();
    assert_eq!(Resize::new(2).apply(&tall, &mut rng).unwrap().shape(), [3, 2, 2]);
    let grey = Grayscale::new(3).unwrap().apply(&image(), &mut rng).unwrap();
    assert_eq!(grey.shape(), [3, 4, 5]);
    let hwc = ToTensor::hwc().apply(&image().permute([1, 2, 0]).unwrap(), &mut rng).unwrap();
    assert!(hwc.equal(&ToTensor::default().apply(&image(), &mut rng).unwrap()).unwrap());
}

#[test]
fn random_areas_stay_within_bounds() {
    let mut rng = SampleRng::new(3);
    let erase = RandomErasing::new(1.0).unwrap().value(255);
    let big = Tensor::zeros_with([3, 40, 30], DType::U8).unwrap();
    for _ in 0..50 {
        let erased = erase.apply(&big, &mut rng).unwrap().to_dtype(DType::F32).unwrap();
        let part = erased.mean(..).unwrap().item::<f64>().unwrap() / 255.0;
        assert!((0.01..0.36).contains(&part), "{part}");
        assert_eq!(RandomResizedCrop::new(7).apply(&big, &mut rng).unwrap().shape(), [3, 7, 7]);
    }
    assert_eq!(big.sum(..).unwrap().item::<i64>().unwrap(), 0, "the image given stays as it is");
    // No crop of this shape fits, so the centre is used.
    let flat = Tensor::zeros_with([1, 2, 300], DType::U8).unwrap();
    let narrow = RandomResizedCrop::new(5).ranges((0.9, 1.0), (0.1, 0.2)).unwrap();
    assert_eq!(narrow.apply(&flat, &mut rng).unwrap().shape(), [1, 5, 5]);
}

#[test]
fn jitter_of_nothing_changes_nothing() {
    let jitter = ColorJitter::new(0.0, 0.0, 0.0, 0.0).unwrap();
    assert!(jitter.apply(&image(), &mut SampleRng::new(0)).unwrap().equal(&image()).unwrap());
    let bytes = adjust_hue(&image(), 0.25).unwrap();
    assert_eq!((bytes.dtype(), bytes.shape()), (DType::U8, &[3, 4, 5][..]));
    let grey = Tensor::zeros([1, 2, 2]).unwrap();
    assert!(adjust_hue(&grey, 0.1).unwrap().equal(&grey).unwrap());
    assert!(adjust_saturation(&grey, 0.1).unwrap().equal(&grey).unwrap());
}

#[test]
fn what_is_refused() {
    let rng = &mut SampleRng::new(0);
    let flat = Tensor::zeros([4, 4]).unwrap();
    let two = Tensor::zeros([2, 4, 4]).unwrap();
    let empty = Tensor::zeros([3, 0, 4]).unwrap();
    let wide = Tensor::zeros_with([3, 4, 4], DType::F64).unwrap();
    for image in [&flat, &wide] {
        assert!(ToTensor::default().apply(image, rng).is_err());
        assert!(resize(image, 2, true).is_err() && center_crop(image, 2).is_err() && hflip(image).is_err());
        assert!(adjust_brightness(image, 1.0).is_err() && adjust_hue(image, 0.1).is_err());
        assert!(RandomCrop::new(2).padding(1).apply(image, rng).is_err());
        assert!(
            RandomResizedCrop::new(2).apply(image, rng).is_err() && RandomErasing::default().apply(image, rng).is_err()
        );
    }
    assert!(
        adjust_hue(&two, 0.1).is_err() && adjust_contrast(&two, 0.5).is_err() && adjust_saturation(&two, 2.0).is_err()
    );
    assert!(resize(&empty, 2, true).is_err() && resize(&image(), 0, true).is_err());
    assert!(RandomResizedCrop::new(2).apply(&empty, rng).is_err());
    assert!(crop(&image(), 3, 0, 2).is_err() && crop(&image(), usize::MAX, 0, 2).is_err());
    assert!(RandomCrop::new(6).apply(&image(), rng).is_err());
    assert!(Pad::new(usize::MAX).apply(&image(), rng).is_err());
    assert!(center_crop(&image(), usize::MAX).is_err());
    assert!(Normalize::new([0.5], [0.0]).is_err() && Normalize::new([0.5], [0.5, 0.5]).is_err());
    assert!(Normalize::new([0.5], [0.5]).unwrap().apply(&image(), rng).is_err());
    assert!(Normalize::new([0.5; 2], [0.5; 2]).unwrap().apply(&Tensor::zeros([3, 2, 2]).unwrap(), rng).is_err());
    assert!(adjust_hue(&image(), 0.6).is_err() && adjust_brightness(&image(), -1.0).is_err());
    assert!(adjust_contrast(&image(), f64::NAN).is_err() && adjust_saturation(&image(), f64::INFINITY).is_err());
    assert!(ColorJitter::new(-0.1, 0.0, 0.0, 0.0).is_err() && ColorJitter::new(0.0, 0.0, 0.0, 0.6).is_err());
    assert!(RandomHorizontalFlip::new(1.5).is_err() && RandomErasing::new(f64::NAN).is_err());
    assert!(Grayscale::new(2).is_err());
    assert!(Resize::new(8).max_size(8).apply(&image(), rng).is_err());
    assert!(Resize::exactly(8).max_size(9).apply(&image(), rng).is_err());
    assert!(RandomErasing::default().ranges((0.5, 1.5), (0.3, 3.3)).is_err());
    assert!(RandomResizedCrop::new(2).ranges((0.5, 0.2), (0.0, 1.0)).is_err());
}
