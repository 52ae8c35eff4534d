//! Operator expressions: operands of every kind, one error at the end, gradients equal to the methods'.

use rushlight_core::{DType, ErrorKind, Result, Scalar};
use rushlight_tensor::{Expr, Tensor};

fn values(x: Expr) -> Vec<f64> {
    x.eval().unwrap().to_vec().unwrap()
}

#[test]
fn formulas_need_one_question_mark() -> Result<()> {
    let (a, b, c) = (Tensor::new([1.0, 2.0])?, Tensor::new([3.0, 4.0])?, Tensor::new([0.5, 0.25])?);
    let y = (&a * &b + &c - 2.0).eval()?;
    assert_eq!(y.to_vec::<f32>()?, [1.5, 6.25]);
    assert_eq!(values(&a * &b + &a * &c - (&b - 1) / 2), [1.0 * 3.0 + 0.5 - 1.0, 8.0 + 0.5 - 1.5]);
    assert_eq!(values(-(&a + &b) * 2.0), [-8.0, -12.0]);
    assert_eq!(values(a.exp() * &c + b.sqrt()?), values(a.exp()? * &c + b.sqrt()));
    assert_eq!(values(&b % 2 + &b % &a), [1.0, 0.0]);
    // The type of a literal needs no annotation.
    assert_eq!((&a * 2.0).sum(..)?.item::<f32>()?, 6.0);
    assert_eq!((2.0 * &a).sum(..)?.item::<f32>()?, 6.0);
    assert_eq!((1 - &a).sum(..)?.item::<f32>()?, -1.0);
    assert_eq!((1.0 / (1.0 + (-&a).exp()?)).eval()?.to_vec::<f32>()?, a.sigmoid()?.to_vec::<f32>()?);
    Ok(())
}

#[test]
fn numbers_of_every_kind_are_operands() -> Result<()> {
    let x = Tensor::new([2.0, 4.0])?;
    macro_rules! kinds {
        ($($t:ty)*) => { $(assert_eq!(values(&x * (3 as $t)), [6.0, 12.0], stringify!($t));)* };
    }
    kinds!(i8 i16 i32 i64 isize u8 u16 u32 u64 usize f32 f64);
    assert_eq!(values(&x * true), [2.0, 4.0]);
    assert_eq!(values(&x * Scalar::from(3u16)), [6.0, 12.0]);
    assert_eq!(values(Scalar::from(3usize) - &x), [1.0, -1.0]);
    assert_eq!(values(7 % Tensor::new([4, 5])?), [3.0, 2.0]);
    // Dtypes equal the methods': integers divide to floats, a number's width does not count.
    let n = Tensor::new([1, 2])?;
    assert_eq!((&n + 1u8).eval()?.dtype(), DType::I64);
    assert_eq!((&n * 0.5).eval()?.dtype(), DType::F32);
    assert_eq!((&n / 2).eval()?.dtype(), DType::F32);
    assert_eq!(Scalar::from(u64::MAX), Scalar::Unsigned(u64::MAX));
    Ok(())
}

#[test]
fn masks_combine() -> Result<()> {
    let x = Tensor::new([1, 2, 3, 4])?;
    let (low, even) = (x.lt(4)?, x.remainder(2)?.eq(0)?);
    assert_eq!((&low & &even).eval()?.to_vec::<bool>()?, [false, true, false, false]);
    assert_eq!((&low | !&even).eval()?.to_vec::<bool>()?, [true, true, true, false]);
    assert_eq!((low ^ even).eval()?.to_vec::<bool>()?, [true, false, true, true]);
    Ok(())
}

#[test]
fn the_first_error_comes_out() -> Result<()> {
    let (a, b) = (Tensor::ones([2])?, Tensor::ones([3])?);
    let error = (&a * &b + &a % Tensor::ones([4])?).eval().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Shape);
    assert!(error.to_string().starts_with("mul:"), "{error}");
    assert!((&a + (&a - &b)).sum(..).unwrap_err().to_string().starts_with("sub:"));
    assert_eq!((&a + a.matmul(&b)).eval().unwrap_err().to_string(), a.matmul(&b).unwrap_err().to_string());
    assert!((1.0 - (&a / &b)).eval().unwrap_err().to_string().starts_with("div:"));
    let mut sum = Expr::from(&a);
    sum += &b;
    sum *= 2.0;
    assert!(sum.eval().unwrap_err().to_string().starts_with("add:"));
    Ok(())
}

#[test]
fn assignment_replaces_the_value_alone() -> Result<()> {
    let x = Tensor::new([1.0, 2.0])?;
    let mut y = Expr::from(&x);
    y += &x;
    y -= 1;
    y *= 3.0f32;
    y /= 2u8;
    y %= 4;
    assert_eq!(values(y), [1.5, 0.5]);
    assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0]);
    let parts = [Tensor::new([1.0, 2.0])?, Tensor::new([3.0, 4.0])?];
    assert_eq!(values(parts.iter().sum()), [4.0, 6.0]);
    assert_eq!(std::iter::empty::<Tensor>().sum::<Expr>().item::<f32>()?, 0.0);
    Ok(())
}

#[test]
fn gradients_pass_formulas() -> Result<()> {
    let x = Tensor::new_with([0.5, -1.5], DType::F64)?.requires_grad_(true)?;
    let y = (&x * &x * 3.0 - 2.0 * &x + 1.0 / (&x + 4)).sum(..)?;
    y.backward()?;
    let wanted = [0.5f64, -1.5].map(|v| 6.0 * v - 2.0 - 1.0 / (v + 4.0).powi(2));
    for (got, want) in x.grad().unwrap().to_vec::<f64>()?.iter().zip(wanted) {
        assert!((got - want).abs() < 1e-12, "{got} and not {want}");
    }
    Ok(())
}

#[test]
fn literals_have_pytorchs_dtypes() -> Result<()> {
    assert_eq!(Tensor::new([[1.0, 2.0]])?.dtype(), DType::F32);
    assert_eq!(Tensor::new(vec![vec![1, 2]])?.dtype(), DType::I64);
    assert_eq!(Tensor::new(2.5)?.dtype(), DType::F32);
    assert_eq!(Tensor::new([true])?.dtype(), DType::Bool);
    assert_eq!(Tensor::new([1u8])?.dtype(), DType::U8);
    assert_eq!(Tensor::new([1u32, 2])?.to_vec::<i64>()?, [1, 2]);
    assert_eq!(Tensor::new(&[1usize][..])?.dtype(), DType::I64);
    assert!(Tensor::new([u64::MAX]).unwrap_err().to_string().contains("beyond the range of int64"));
    let exact = Tensor::new_with([0.1, 0.2], DType::F64)?;
    assert_eq!(exact.to_vec::<f64>()?, [0.1, 0.2]);
    assert_eq!(Tensor::new_with([1, 2], DType::I32)?.dtype(), DType::I32);
    Ok(())
}

#[test]
fn pytorchs_spellings() -> Result<()> {
    let x = Tensor::arange(0, 24, 1)?.to(DType::F32)?.view([2, 3, -1])?;
    assert_eq!(x.dim(), 3);
    assert_eq!(x.sum(1)?.shape(), [2, 4]);
    assert_eq!(x.mean_dims(-1, true)?.shape(), [2, 3, 1]);
    assert_eq!(x.amax([0, 1], false)?.shape(), [4]);
    assert_eq!(x.permute([2, 0, 1])?.shape(), [4, 2, 3]);
    assert_eq!(x.unsqueeze(0)?.squeeze(0)?.shape(), [2, 3, 4]);
    assert_eq!(Tensor::cat(&[&x, &x], -1)?.shape(), [2, 3, 8]);
    assert_eq!(Tensor::stack(&[&x, &x], 0)?.shape(), [2, 2, 3, 4]);
    assert_eq!(x.to(rushlight_core::Device::Cpu)?.dtype(), DType::F32);
    assert_eq!(x.to((DType::F64, x.device()))?.dtype(), DType::F64);
    assert_eq!(Tensor::new([1])?.to(&x)?.dtype(), DType::F32);
    Ok(())
}

#[test]
fn index_errors_name_their_call() -> Result<()> {
    let x = Tensor::ones([2, 3])?;
    let errors = [
        ("sum", x.sum(5)),
        ("mean", x.mean([0, 7])),
        ("any", x.gt(0)?.any(4)),
        ("transpose", x.transpose(0, 2)),
        ("permute", x.permute([0, 9])),
        ("squeeze", x.squeeze(6)),
        ("unsqueeze", x.unsqueeze(8)),
        ("select", x.select(3, 0)),
        ("narrow", x.narrow(2, 0, 1)),
        ("slice", x.slice(2, None, None, 1)),
        ("flatten", x.flatten(0, 4)),
        ("unflatten", x.unflatten(3, [1])),
        ("movedim", x.movedim(0, 5)),
        ("diagonal", x.diagonal(0, 0, 4)),
        ("unfold", x.unfold(2, 1, 1)),
        ("stack", Tensor::stack(&[&x, &x], 4)),
        ("cat", Tensor::cat(&[&x, &x], 2)),
        ("cumsum", x.cumsum(3)),
        ("softmax", x.softmax(2)),
        ("var", x.var_dims(3, 1.0, false)),
        ("norm", x.norm_dims(2.0, 3, false)),
        ("size", x.size(2).map(|_| x.clone())),
        ("split", x.split(1, 2).map(|_| x.clone())),
        ("unbind", x.unbind(2).map(|_| x.clone())),
    ];
    for (call, result) in errors {
        let error = result.expect_err(call);
        assert_eq!(error.kind(), ErrorKind::Index, "{call}: {error}");
        assert!(error.to_string().starts_with(&format!("{call}: Dimension out of range")), "{error}");
    }
    Ok(())
}

#[test]
fn errors_of_index_values_name_their_call() -> Result<()> {
    let x = Tensor::ones([2, 3])?;
    let (far, column) = (Tensor::new([7i64])?, Tensor::ones([2, 1])?);
    let (row, one, places) = (Tensor::ones([1, 3])?, Tensor::ones([1])?, Tensor::new([[7i64]])?);
    let assigned = || x.copy();
    let errors = [
        ("i", x.i(2)),
        ("i", x.i((0, -4))),
        ("i", x.i((0, 0, 0))),
        ("i", x.i(&far)),
        ("index_assign", assigned()?.index_assign(2, 0.0).cloned()),
        ("index_assign", assigned()?.index_assign(&far, 0.0).cloned()),
        ("index_put_", assigned()?.index_put_(&far, &row, false).cloned()),
        ("index_put", x.index_put(&far, &row, true)),
        ("select", x.select(0, 2)),
        ("narrow", x.narrow(0, 3, 1)),
        ("index_select", x.index_select(0, &far)),
        ("index_add", x.index_add(0, &far, &row, 1)),
        ("index_copy", x.index_copy(1, &far, &column)),
        ("index_fill", x.index_fill(1, &far, 0.0)),
        ("take", x.take(&far)),
        ("put", x.put(&far, &one, false)),
        ("gather", x.gather(0, &places)),
        ("take_along_dim", x.take_along_dim(&places, None)),
        ("scatter", x.scatter(1, &places, 1.0)),
        ("scatter_add", x.scatter_add(1, &places, &Tensor::ones([1, 1])?)),
        ("embedding", x.embedding(&far, None, false)),
        ("cross_entropy", x.cross_entropy(&Tensor::new([0i64, 7])?)),
    ];
    for (call, result) in errors {
        let error = result.expect_err(call);
        assert_eq!(error.kind(), ErrorKind::Index, "{call}: {error}");
        assert!(error.to_string().starts_with(&format!("{call}: ")), "{call}: {error}");
    }
    Ok(())
}

#[test]
fn copies_are_deep_where_they_say_so() -> Result<()> {
    let x = Tensor::new([1.0, 2.0])?.requires_grad_(true)?;
    (&x * 3.0).sum(..)?.backward()?;
    let copy = x.deepcopy()?;
    assert!(copy.requires_grad() && copy.is_leaf() && !copy.shares_storage(&x));
    assert_eq!(copy.grad().unwrap().to_vec::<f32>()?, [3.0, 3.0]);
    assert!(!copy.grad().unwrap().shares_storage(&x.grad().unwrap()));
    assert!((&x * 1.0).eval()?.deepcopy().is_err());
    // The error's advice works.
    let error = x.add_(1.0).unwrap_err().to_string();
    assert!(error.contains("x.copy()?"), "{error}");
    assert_eq!(x.copy()?.add_(1.0)?.to_vec::<f32>()?, [2.0, 3.0]);
    Ok(())
}

#[test]
fn constructors_default_to_f32_and_take_options() -> Result<()> {
    let plain = [
        Tensor::empty([2, 2])?,
        Tensor::zeros([2, 2])?,
        Tensor::rand([2, 2])?,
        Tensor::randn([2, 2])?,
        Tensor::eye(2, 2)?,
        Tensor::linspace(0.0, 1.0, 2)?,
        Tensor::logspace(0.0, 1.0, 2, 10.0)?,
    ];
    assert!(plain.iter().all(|t| t.dtype() == DType::F32));
    let double = [
        Tensor::empty_with([2, 2], DType::F64)?,
        Tensor::rand_with([2, 2], DType::F64)?,
        Tensor::randn_with([2, 2], DType::F64)?,
        Tensor::eye_with(2, 2, DType::F64)?,
        Tensor::linspace_with(0.0, 1.0, 2, DType::F64)?,
        Tensor::logspace_with(0.0, 1.0, 2, 10.0, DType::F64)?,
    ];
    assert!(double.iter().all(|t| t.dtype() == DType::F64));
    assert_eq!(Tensor::randint(0, 5, [3])?.dtype(), DType::I64);
    assert_eq!(Tensor::randint_with(0, 5, [3], DType::U8)?.dtype(), DType::U8);
    Ok(())
}

#[test]
fn numbers_added_to_halves_are_rounded_to_them() -> Result<()> {
    // PyTorch's answers: the sum of the exact numbers would be finite.
    let x = Tensor::new_with([-60000.0, 0.5], DType::F16)?;
    assert_eq!(x.add(70000.0)?.to_vec::<f32>()?, [f32::INFINITY; 2]);
    assert_eq!(x.sub(70000)?.to_vec::<f32>()?, [f32::NEG_INFINITY; 2]);
    assert_eq!(x.rsub(-70000.0)?.to_vec::<f32>()?, [f32::NEG_INFINITY; 2]);
    assert_eq!(x.mul(70000.0)?.to_vec::<f32>()?, [f32::NEG_INFINITY, 35008.0]);
    assert_eq!(x.copy()?.add_(70000.0)?.to_vec::<f32>()?, [f32::INFINITY; 2]);
    let small = Tensor::new_with([1.0, 3.0], DType::BF16)?;
    assert_eq!(small.add(0.00390626)?.to_vec::<f32>()?, [1.0, 3.0]);
    Ok(())
}
