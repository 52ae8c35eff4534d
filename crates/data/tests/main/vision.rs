//! Image datasets in small files of the official formats, intact and damaged.

use crate::TempDir;
use flate2::{Compression, write::GzEncoder};
use rushlight_data::vision::{Cifar10, Cifar100, DecodeLimits, FashionMnist, ImageFolder, Mnist};
use rushlight_data::{DataLoader, Dataset};
use std::io::Write;
use std::path::Path;

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

/// Records of label bytes and 3072 pixels that count up.
fn cifar_records(labels: &[&[u8]]) -> Vec<u8> {
    labels.iter().flat_map(|l| l.iter().copied().chain((0..3072u32).map(|i| (i % 251) as u8))).collect()
}

fn idx(sizes: &[u32], bytes: &[u8]) -> Vec<u8> {
    let header = [0x0800 + sizes.len() as u32].into_iter().chain(sizes.iter().copied());
    header.flat_map(u32::to_be_bytes).chain(bytes.iter().copied()).collect()
}

#[test]
fn cifar10() {
    let folder = TempDir::new();
    for batch in 1..=5u8 {
        folder.write(&format!("cifar-10-batches-bin/data_batch_{batch}.bin"), &cifar_records(&[&[batch], &[9]]));
    }
    folder.write("cifar-10-batches-bin/test_batch.bin", &cifar_records(&[&[3]]));
    let train = Cifar10::train(folder.path()).unwrap();
    assert_eq!(train.labels().to_vec::<i64>().unwrap(), [1, 9, 2, 9, 3, 9, 4, 9, 5, 9]);
    assert_eq!(train.images().shape(), [10, 3, 32, 32]);
    let (image, label) = train.get(2).unwrap();
    assert_eq!((label, &train.classes()[2][..]), (2, "bird"));
    assert_eq!(image.to_vec::<u8>().unwrap()[1024..1027], [20, 21, 22]);
    let (x, y) = DataLoader::new(train, 4).unwrap().iter().next().unwrap().unwrap();
    assert_eq!((x.shape(), y.to_vec::<i64>().unwrap()), (&[4, 3, 32, 32][..], vec![1, 9, 2, 9]));
    assert_eq!(Cifar10::test(folder.path()).unwrap().len(), 1);
    assert_eq!(Cifar10::test(folder.path().join("cifar-10-batches-bin")).unwrap().len(), 1);
}

#[test]
fn cifar100() {
    let folder = TempDir::new();
    folder.write("cifar-100-binary/train.bin", &cifar_records(&[&[1, 99], &[2, 7]]));
    let names: String = (0..100).map(|i| format!("class{i}\n")).collect();
    folder.write("cifar-100-binary/fine_label_names.txt", names.as_bytes());
    let train = Cifar100::train(folder.path()).unwrap();
    assert_eq!(train.labels().to_vec::<i64>().unwrap(), [99, 7]);
    assert_eq!(train.classes()[99], "class99");
}

/// Files as Python 2 pickled them, written by tests/fixtures/make_io.py.
#[test]
fn cifar_for_python() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/cifar");
    let train = Cifar10::train(&root).unwrap();
    assert_eq!(train.labels().to_vec::<i64>().unwrap(), [1, 9, 2, 9, 3, 9, 4, 9, 5, 9]);
    assert_eq!((train.images().shape(), &train.classes()[0][..]), (&[10, 3, 32, 32][..], "plane"));
    assert_eq!(train.get(3).unwrap().0.to_vec::<u8>().unwrap()[..3], [9, 10, 11]);
    assert_eq!(Cifar10::test(root.join("cifar-10-batches-py")).unwrap().labels().to_vec::<i64>().unwrap(), [3]);
    let hundred = Cifar100::test(&root).unwrap();
    assert_eq!((hundred.labels().to_vec::<i64>().unwrap(), &hundred.classes()[99][..]), (vec![7], "class99"));

    let folder = TempDir::new();
    folder.write("data_batch_1", b"");
    for (bytes, what) in [
        (&b"\x80\x02}."[..], "labels"),
        (b"\x80\x02}(U\x06labels](K\x01eU\x04data](K\x01eu.", "tensor"),
        (b"\x80\x02cos\nsystem\nU\x02ls\x85R.", "os.system"),
    ] {
        folder.write("test_batch", bytes);
        let error = Cifar10::test(folder.path()).err().unwrap().to_string();
        assert!(error.contains(what) && error.contains("CIFAR-10"), "{error}");
    }
}

#[test]
fn what_is_not_there() {
    let folder = TempDir::new();
    let missing = Cifar10::train(folder.path()).err().unwrap().to_string();
    assert!(missing.contains("cifar-10-binary.tar.gz") && missing.contains("c32a1d4ab5d03f1284b67883e8d87530"));
    folder.write("cifar-10-binary.tar.gz", b"not the archive");
    let wrong = Cifar10::train(folder.path()).err().unwrap().to_string();
    assert!(wrong.contains("damaged") && wrong.contains("MD5"), "{wrong}");
    let mnist = Mnist::test(folder.path()).err().unwrap().to_string();
    assert!(mnist.contains("t10k-images-idx3-ubyte"), "{mnist}");
}

#[test]
fn mnist() {
    let folder = TempDir::new();
    let pixels: Vec<u8> = (0..3 * 28 * 28).map(|i| (i % 256) as u8).collect();
    folder.write("MNIST/raw/train-images-idx3-ubyte.gz", &gz(&idx(&[3, 28, 28], &pixels)));
    folder.write("MNIST/raw/train-labels-idx1-ubyte", &idx(&[3], &[7, 0, 9]));
    let train = Mnist::train(folder.path()).unwrap();
    assert_eq!((train.len(), train.get(2).unwrap().1), (3, 9));
    assert_eq!(train.get(1).unwrap().0.to_vec::<u8>().unwrap()[..3], [16, 17, 18]);
    folder.write("t10k-images-idx3-ubyte", &idx(&[1, 2, 2], &[1, 2, 3, 4]));
    folder.write("t10k-labels-idx1-ubyte.gz", &gz(&idx(&[2], &[1, 2])));
    let counts = FashionMnist::test(folder.path()).err().unwrap().to_string();
    assert!(counts.contains("1 images but [2] labels"), "{counts}");
    folder.write("t10k-labels-idx1-ubyte.gz", &gz(&idx(&[1], &[10])));
    assert!(FashionMnist::test(folder.path()).err().unwrap().to_string().contains("label 10"));
}

#[test]
fn damaged_files_are_errors() {
    let folder = TempDir::new();
    let whole = cifar_records(&[&[1], &[2]]);
    let test = |bytes: &[u8]| {
        folder.write("data_batch_1.bin", &whole);
        folder.write("test_batch.bin", bytes);
        Cifar10::test(folder.path())
    };
    assert!(test(&whole).is_ok());
    assert!(test(&[]).is_err() && test(&whole[..whole.len() - 1]).is_err());
    assert!(test(&cifar_records(&[&[10]])).err().unwrap().to_string().contains("label 10"));
    let images = |bytes: &[u8]| {
        folder.write("train-images-idx3-ubyte", bytes);
        folder.write("train-labels-idx1-ubyte", &idx(&[1], &[1]));
        Mnist::train(folder.path())
    };
    let good = idx(&[1, 2, 2], &[1, 2, 3, 4]);
    assert!(images(&good).is_ok());
    assert!(images(&good[..good.len() - 1]).is_err() && images(&[]).is_err() && images(&good[..7]).is_err());
    assert!(images(&[&good[..], &[0]].concat()).is_err());
    // Headers that claim more than memory has, without data behind them.
    assert!(images(&idx(&[u32::MAX; 3], &[])).is_err());
    assert!(images(&idx(&[1, 1 << 14, 1 << 14], &[])).is_err());
    assert!(images(&idx(&[1, 4], &[1, 2, 3, 4])).is_err());
}

fn png_bytes(width: u32, height: u32, color: png::ColorType, pixels: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(color);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(pixels).unwrap();
    writer.finish().unwrap();
    out
}

/// A grey JPEG of 8 x 8 pixels of the value 128 + `above`, up to 31: one coefficient, in tables with just the codes it
/// needs.
fn grey_jpeg(above: u8) -> Vec<u8> {
    let mut out = vec![0xFF, 0xD8];
    let mut segment = |marker: u8, body: &[u8]| {
        out.extend([0xFF, marker, 0, body.len() as u8 + 2]);
        out.extend(body);
    };
    segment(0xDB, &[&[0u8][..], &[8; 64]].concat());
    segment(0xC0, &[8, 0, 8, 0, 8, 1, 1, 0x11, 0]);
    let mut lengths = [0u8; 16];
    lengths[0] = 1;
    // One code, `0`: five bits follow for the first coefficient, and the end of the block for the others.
    segment(0xC4, &[&[0x00][..], &lengths, &[5]].concat());
    segment(0xC4, &[&[0x10][..], &lengths, &[0]].concat());
    segment(0xDA, &[1, 1, 0x00, 0, 63, 0]);
    // Code 0, the five bits of a number from 16 on, code 0, ones to fill the byte.
    out.push((above & 31) << 2 | 1);
    out.extend([0xFF, 0xD9]);
    out
}

#[test]
fn folders_of_images() {
    let folder = TempDir::new();
    folder.write("dog/b.png", &png_bytes(2, 1, png::ColorType::Rgb, &[1, 2, 3, 4, 5, 6]));
    folder.write("dog/a.PNG", &png_bytes(1, 1, png::ColorType::Grayscale, &[7]));
    folder.write("dog/notes.txt", b"no image");
    folder.write("cat/deep/er/c.png", &png_bytes(1, 1, png::ColorType::Rgba, &[9, 8, 7, 0]));
    folder.write("cat/d.jpeg", &grey_jpeg(20));
    let data = ImageFolder::new(folder.path()).unwrap();
    assert_eq!(data.classes(), ["cat", "dog"]);
    let labels: Vec<i64> = data.samples().iter().map(|s| s.1).collect();
    assert_eq!(labels, [0, 0, 1, 1]);
    let pixels = |i| data.get(i).unwrap().0.to_vec::<u8>().unwrap();
    assert_eq!(data.get(0).unwrap().0.shape(), [3, 8, 8]);
    assert!(pixels(0).iter().all(|&p| p.abs_diff(148) <= 1), "{:?}", pixels(0));
    assert_eq!(pixels(1), [9, 8, 7]);
    assert_eq!(pixels(2), [7, 7, 7]);
    assert_eq!(pixels(3), [1, 4, 2, 5, 3, 6]);
    assert!(data.get(4).is_err());
    let small = ImageFolder::new(folder.path()).unwrap().limits(DecodeLimits { file_bytes: 1 << 20, pixels: 1 });
    assert!(small.get(1).is_ok() && small.get(0).is_err() && small.get(3).is_err());
    folder.write("cat/e.png", b"\x89PNG\r\n\x1a\nrest");
    folder.write("cat/f.png", b"GIF89a");
    let data = ImageFolder::new(folder.path()).unwrap();
    let error = data.get(1).err().unwrap().to_string();
    assert!(error.contains("e.png"), "{error}");
    assert!(data.get(2).err().unwrap().to_string().contains("only PNG and JPEG"));
    std::fs::create_dir(folder.path().join("empty")).unwrap();
    assert!(ImageFolder::new(folder.path()).err().unwrap().to_string().contains("'empty'"));
    assert!(ImageFolder::new(folder.path().join("empty")).is_err() && ImageFolder::new("absent").is_err());
}

#[test]
fn synthetic_images_can_be_told_apart() {
    let data = Cifar10::synthetic(40, 7).unwrap();
    assert_eq!((data.len(), data.images().shape()), (40, &[40, 3, 32, 32][..]));
    assert!(data.images().equal(Cifar10::synthetic(40, 7).unwrap().images()).unwrap());
    assert!(!data.images().equal(Cifar10::synthetic(40, 8).unwrap().images()).unwrap());
    // The mean colours already determine an image's class.
    let colour = |i: usize| -> Vec<f64> {
        let pixels = data.get(i).unwrap().0.to_vec::<f64>().unwrap();
        pixels.chunks(1024).map(|c| c.iter().sum::<f64>() / 1024.0).collect()
    };
    let distance = |a: usize, b: usize| -> f64 { colour(a).iter().zip(colour(b)).map(|(x, y)| (x - y).abs()).sum() };
    for i in 10..20 {
        let nearest = (0..10).min_by(|&a, &b| distance(i, a).total_cmp(&distance(i, b))).unwrap();
        assert_eq!(nearest as i64, data.get(i).unwrap().1);
    }
    assert_eq!(Mnist::synthetic(3, 0).unwrap().images().shape(), [3, 1, 28, 28]);
    assert!(Cifar100::synthetic(usize::MAX, 0).is_err());
}
