use crate::{Folder, fixture};
use rushlight_core::{DType, ErrorKind};
use rushlight_io::{LoadOptions, npy, npz, pickle};
use rushlight_tensor::Tensor;
use rushlight_tensor::state::StateDict;

#[track_caller]
fn assert_range(tensor: &Tensor, dtype: DType) {
    assert_eq!((tensor.shape(), tensor.dtype()), (&[2, 3, 4][..], dtype));
    let expected = (0..24).map(|i| f64::from(if dtype == DType::Bool { i % 2 } else { i })).collect::<Vec<_>>();
    assert_eq!(tensor.to_vec::<f64>().unwrap(), expected);
}

#[test]
fn arrays_of_numpy() {
    for (name, dtype) in [
        ("little_f4", DType::F32),
        ("little_f8", DType::F64),
        ("little_f2", DType::F16),
        ("little_i8", DType::I64),
        ("little_i4", DType::I32),
        ("little_i2", DType::I16),
        ("little_i1", DType::I8),
        ("little_u1", DType::U8),
        ("little_b1", DType::Bool),
        ("big_f4", DType::F32),
        ("big_i8", DType::I64),
        ("fortran", DType::F32),
        ("fortran_big", DType::I16),
        ("version2", DType::F32),
        ("version3", DType::F32),
    ] {
        let path = fixture(&format!("{name}.npy"));
        assert_range(&npy::load(&path).unwrap(), dtype);
        assert_range(&npy::load_with(&path, &LoadOptions::default().mmap(true)).unwrap(), dtype);
    }
    assert_eq!(npy::load(fixture("fortran.npy")).unwrap().strides(), [1, 2, 6]);
    assert_eq!(npy::load(fixture("scalar.npy")).unwrap().item::<f64>().unwrap(), 2.5);
    assert_eq!(npy::load(fixture("empty.npy")).unwrap().shape(), [0, 3]);
}

#[test]
fn archives_of_numpy() {
    for name in ["stored.npz", "deflated.npz"] {
        let arrays = npz::load_with(fixture(name), &LoadOptions::default().verify(true)).unwrap();
        assert_eq!(arrays.keys().collect::<Vec<_>>(), ["x", "y", "mask", "zeros"]);
        assert_range(&arrays["x"], DType::F32);
        assert_range(&arrays["y"], DType::I64);
        assert_range(&arrays["mask"], DType::Bool);
        assert_eq!(arrays["zeros"].to_vec::<f32>().unwrap(), [0.0; 256]);
    }
    assert_range(&npz::load(fixture("zip64.npz")).unwrap()["x"], DType::F32);
    let error = npz::load_with(fixture("deflated.npz"), &LoadOptions::default().max_inflated(1000)).unwrap_err();
    assert!(error.to_string().contains("max_inflated"), "{error}");
}

#[test]
fn other_dtypes_are_named() {
    let complex = npy::load(fixture("complex.npy")).unwrap();
    assert_eq!((complex.dtype(), complex.shape()), (DType::C64, &[2][..]));
    for (name, words) in [("structured", "structures"), ("objects", "'|O'")] {
        let error = npy::load(fixture(&format!("{name}.npy"))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DType);
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn what_is_written_is_read() {
    let folder = Folder::new("npy");
    let mut state = StateDict::new();
    for dtype in DType::ALL.into_iter().filter(|&d| !matches!(d, DType::BF16 | DType::C32) && !d.is_float8()) {
        state.insert(
            dtype.name().into(),
            Tensor::arange(0, 6, 1).unwrap().reshape([2, 3]).unwrap().to_dtype(dtype).unwrap(),
        );
    }
    state.insert("transposed".into(), state["int64"].t().unwrap());
    state.insert("scalar".into(), Tensor::scalar(2.5).unwrap());
    state.insert("vector".into(), Tensor::zeros([3]).unwrap());
    state.insert("empty".into(), Tensor::zeros([0, 2]).unwrap());
    npz::save(&state, folder.path("x.npz")).unwrap();
    let back = npz::load_with(folder.path("x.npz"), &LoadOptions::default().verify(true)).unwrap();
    assert_eq!(back.len(), state.len());
    for (name, t) in &state {
        npy::save(t, folder.path("x.npy")).unwrap();
        for b in [&npy::load(folder.path("x.npy")).unwrap(), &back[name]] {
            assert_eq!((b.shape(), b.dtype()), (t.shape(), t.dtype()), "{name}");
            assert_eq!(b.to_vec::<f64>().unwrap(), t.to_vec::<f64>().unwrap(), "{name}");
        }
    }
    let half = Tensor::zeros([2]).unwrap().to_dtype(DType::BF16).unwrap();
    assert!(npy::save(&half, folder.path("y.npy")).unwrap_err().to_string().contains("bfloat16"));
    assert_eq!(folder.names(), ["x.npy", "x.npz"]);
}

#[test]
fn arrays_in_pickles() {
    let old = pickle::load(fixture("python2.pkl")).unwrap();
    for (name, dtype) in [("bytes", DType::U8), ("big", DType::I16), ("floats", DType::F32)] {
        let tensor = old.get(name).unwrap().as_tensor().unwrap();
        assert_eq!((tensor.shape(), tensor.dtype()), (&[2, 3, 4][..], dtype));
        assert_eq!(tensor.to_vec::<f64>().unwrap(), (0..24).map(f64::from).collect::<Vec<_>>());
    }
    assert_eq!(old.get("text").unwrap().as_str().unwrap(), "plain");
    assert_eq!(old.get("latin").unwrap().as_bytes().unwrap(), [0xe9, 0xff]);
    assert_eq!(old.get("numbers").unwrap().as_list().unwrap()[2].as_int().unwrap(), 300);
    for name in ["python3.pkl", "python3_protocol4.pkl"] {
        let new = pickle::from_bytes(&std::fs::read(fixture(name)).unwrap()).unwrap();
        let fortran = new.get("fortran").unwrap().as_tensor().unwrap();
        assert_eq!((fortran.strides(), fortran.dtype()), (&[1, 2, 6][..], DType::F64));
        assert_eq!(fortran.to_vec::<f64>().unwrap(), (0..24).map(f64::from).collect::<Vec<_>>());
        assert!(new.get("bools").unwrap().as_tensor().unwrap().to_vec::<bool>().unwrap()[22]);
        assert_eq!(new.get("text").unwrap().as_str().unwrap(), "käse");
    }
}
