//! Products of matrices, and linear algebra.

use crate::rows;
use crate::value::{Out, dims, size};
use rushlight_core::{DType, Error, Result, Scalar};
use rushlight_tensor::{MatrixNorm, RankTolerance, SolveTriangular, Tensor};

/// A product added to a tensor, each with its factor. With a factor of 0 the tensor's NaN and infinities do not count.
fn added(input: &Tensor, product: Tensor, beta: Scalar, alpha: Scalar) -> Result<Tensor> {
    let kept = if beta.to_f64() == 0.0 {
        input.masked_fill(&Tensor::ones_like(&input.detach())?.to_dtype(DType::Bool)?, 0)?
    } else {
        input.mul(beta)?
    };
    product.mul(alpha)?.add(&kept)
}

fn chain(tensors: &[Tensor]) -> Result<Tensor> {
    let Some((first, rest)) = tensors.split_first() else {
        return Err(Error::value("chain_matmul(): Expected one or more matrices"));
    };
    rest.iter().try_fold(first.clone(), |product, t| product.matmul(t))
}

fn grouped_mm(
    a: &Tensor,
    b: &Tensor,
    offs: Option<&Tensor>,
    bias: Option<&Tensor>,
    out_dtype: Option<DType>,
) -> Result<Tensor> {
    for (name, matrix) in [("mat_a", a), ("mat_b", b)] {
        if !matches!(matrix.dtype(), DType::F32 | DType::BF16 | DType::F16) {
            return Err(Error::dtype(format!(
                "grouped_mm: Expected {name} to be Float32, BFloat16 or Float16 matrix, got {}",
                matrix.dtype()
            )));
        }
    }
    if bias.is_some() {
        return Err(Error::value("grouped_mm: Bias not supported yet; add it to the result"));
    }
    if out_dtype.is_some_and(|dtype| dtype != a.dtype()) {
        return Err(Error::dtype("grouped_mm: output dtype must match `mat_a` dtype; convert the result"));
    }
    a.grouped_mm(b, offs)
}

fn norm_order(ord: f64) -> MatrixNorm {
    MatrixNorm::Ord(ord)
}

fn word(ord: &str) -> Result<MatrixNorm> {
    match ord {
        "fro" => Ok(MatrixNorm::Fro),
        "nuc" => Ok(MatrixNorm::Nuc),
        "inf" => Ok(MatrixNorm::Ord(f64::INFINITY)),
        "-inf" => Ok(MatrixNorm::Ord(f64::NEG_INFINITY)),
        other => Err(Error::value(format!("linalg.matrix_norm: ord must be 'fro', 'nuc' or a number, not '{other}'"))),
    }
}

fn plane(dim: &[i64]) -> Result<[isize; 2]> {
    match dim {
        &[a, b] => Ok([a as isize, b as isize]),
        _ => Err(Error::value(format!("linalg.matrix_norm: dim must be a 2-tuple, got {dim:?}"))),
    }
}

fn converted(input: &Tensor, dtype: Option<DType>) -> Result<Tensor> {
    dtype.map_or(Ok(input.clone()), |d| input.to_dtype(d))
}

/// `torch.linalg.norm`: of vectors or matrices, depending on the arguments.
fn norm(input: &Tensor, ord: Option<f64>, dim: Option<&[i64]>, keepdim: bool, dtype: Option<DType>) -> Result<Tensor> {
    let x = converted(input, dtype)?;
    let matrix = ord.is_some()
        && match dim {
            Some(d) => d.len() == 2,
            None => x.rank() == 2,
        };
    if matrix {
        let pair = dim.map_or(Ok([-2, -1]), plane)?;
        return x.matrix_norm(norm_order(ord.unwrap_or(2.0)), pair, keepdim);
    }
    x.vector_norm(ord.unwrap_or(2.0), dims(dim.unwrap_or(&[])), keepdim)
}

fn square_check(call: &str, input: &Tensor) -> Result<()> {
    match input.shape() {
        [.., a, b] if a == b => Ok(()),
        shape => Err(Error::shape(format!(
            "{call}: The input tensor must be batches of square matrices, but they are {shape:?}"
        ))),
    }
}

fn eigh(input: &Tensor, lower: bool) -> Result<Out> {
    input.eigh(!lower).map(|(values, vectors)| Out::Named("eigenvalues eigenvectors", vec![values, vectors]))
}

fn is_lower(uplo: &str) -> Result<bool> {
    match uplo {
        "L" | "l" => Ok(true),
        "U" | "u" => Ok(false),
        other => Err(Error::value(format!("Expected UPLO argument to be 'L' or 'U', but got {other}"))),
    }
}

/// exp of matrices by scaling, a Taylor series and squaring; made of recorded ops, so it has derivatives.
fn matrix_exp(input: &Tensor) -> Result<Tensor> {
    square_check("linalg.matrix_exp", input)?;
    // Squarings multiply rounding errors.
    if input.dtype() == DType::C64 {
        return matrix_exp(&input.to_dtype(DType::C128)?)?.to_dtype(input.dtype());
    }
    if input.dtype().is_float() && input.dtype() != DType::F64 {
        return matrix_exp(&input.to_dtype(DType::F64)?)?.to_dtype(input.dtype());
    }
    let n = input.size(-1)?;
    let norm = if input.numel() == 0 { 0.0 } else { input.detach().abs()?.sum(-2)?.max(..)?.item::<f64>()? };
    if !norm.is_finite() {
        return input.mul(f64::NAN);
    }
    let squarings = if norm > 0.5 { (norm / 0.5).log2().ceil() as i32 } else { 0 };
    let scaled = input.mul(0.5f64.powi(squarings))?;
    let identity = Tensor::eye_with(n, n, (input.dtype(), input.device()))?;
    let mut term = identity.expand(input.shape())?;
    let mut sum = term.clone();
    for k in 1..=18 {
        term = term.matmul(&scaled)?.div(k as f64)?;
        sum = sum.add(&term)?;
    }
    for _ in 0..squarings {
        sum = sum.matmul(&sum)?;
    }
    Ok(sum)
}

fn svd(input: &Tensor, full_matrices: bool, names: &'static str) -> Result<Out> {
    input.svd(full_matrices).map(|(u, s, vh)| Out::Named(names, vec![u, s, vh]))
}

fn qr(input: &Tensor, mode: &str) -> Result<Out> {
    let complete = match mode {
        "reduced" => false,
        "complete" => true,
        "r" => {
            let nothing = Tensor::empty_with([0usize], (input.dtype(), input.device()))?;
            return Ok(Out::Named("Q R", vec![nothing, input.qr(false)?.1]));
        }
        other => {
            return Err(Error::value(format!(
                "qr received unrecognized mode '{other}' but expected one of 'reduced' (default), 'r', or 'complete'"
            )));
        }
    };
    input.qr(complete).map(|(q, r)| Out::Named("Q R", vec![q, r]))
}

/// PyTorch has a `RuntimeError` here for the dtypes that other decompositions do not implement.
fn single_or_double(name: &str, a: &Tensor) -> Result<()> {
    match a.dtype() {
        DType::F32 | DType::F64 => Ok(()),
        other => Err(Error::value(format!("{name}: expected matrices of float or double, got {other}"))),
    }
}

fn cross(input: &Tensor, other: &Tensor, dim: Option<i64>) -> Result<Tensor> {
    let dim = match dim {
        Some(dim) => dim as isize,
        None => match input.shape().iter().position(|&d| d == 3) {
            Some(dim) => dim as isize,
            None => return Err(Error::shape("torch.cross: no dimension of size 3 in input")),
        },
    };
    if input.rank() == 0 && other.rank() == 0 {
        return Err(Error::index(format!("Dimension specified as {dim} but tensor has no dimensions")));
    }
    input.cross(other, dim)
}

fn tensordot(a: &Tensor, b: &Tensor, dims_a: &[i64], dims_b: &[i64]) -> Result<Tensor> {
    a.tensordot_dims(b, dims(dims_a), dims(dims_b))
}

fn cdist(x1: &Tensor, x2: &Tensor, p: f64) -> Result<Tensor> {
    x1.cdist(x2, p)
}

fn pdist(input: &Tensor, p: f64) -> Result<Tensor> {
    let n = input.size(0)?;
    let upper = rushlight_tensor::triu_indices(n, n, 1)?.to(input.device())?;
    let (rows, columns) = (upper.select(0, 0)?, upper.select(0, 1)?);
    let differences = input.index_select(0, &rows)?.sub(&input.index_select(0, &columns)?)?;
    let distances = differences.norm_dims(p, [-1], false)?;
    match p == 0.0 {
        true => distances.masked_fill(&differences.detach().isnan()?.any(-1)?, f64::NAN),
        false => Ok(distances),
    }
}

fn cholesky_solve(b: &Tensor, l: &Tensor, upper: bool) -> Result<Tensor> {
    if l.requires_grad() && rushlight_tensor::autograd::is_grad_enabled() {
        // The gradient is that of the product of the factors: also of the triangle that is not read, as in PyTorch.
        let read = if upper { l.detach().triu(0)? } else { l.detach().tril(0)? };
        let l = l.sub(&l.detach())?.add(&read)?;
        let lt = l.transpose(-2, -1)?;
        let product = if upper { lt.matmul(&l)? } else { l.matmul(&lt)? };
        return product.solve(b, true);
    }
    let (first, second) = if upper { (l.transpose(-2, -1)?, l.clone()) } else { (l.clone(), l.transpose(-2, -1)?) };
    let y = first.solve_triangular(b, SolveTriangular::new(false))?;
    second.solve_triangular(&y, SolveTriangular::new(true))
}

rows! { ROWS:
    /// Matrix product, batched and broadcast.
    matmul [Torch Method Linalg] "matmul(Tensor input, Tensor other)" |input: &Tensor, other: &Tensor| input.matmul(other);
    /// Product of two matrices.
    mm [Torch Method] "mm(Tensor input, Tensor mat2)" |input: &Tensor, mat2: &Tensor| input.mm(mat2);
    /// Products of two batches of matrices.
    bmm [Torch Method] "bmm(Tensor input, Tensor mat2)" |input: &Tensor, mat2: &Tensor| input.bmm(mat2);
    /// Product of a matrix and a vector.
    mv [Torch Method] "mv(Tensor input, Tensor vec)" |input: &Tensor, vec: &Tensor| input.mv(vec);
    /// Product of two vectors.
    dot [Torch Method] "dot(Tensor input, Tensor tensor)" |input: &Tensor, other: &Tensor| input.dot(other);
    /// Product of two vectors.
    vdot [Torch Method] "vdot(Tensor input, Tensor other)" |input: &Tensor, other: &Tensor| input.conj()?.dot(other);
    /// Products of vectors along a dimension.
    vecdot [Linalg] "vecdot(Tensor x, Tensor y, *, int dim=-1)" |x: &Tensor, y: &Tensor, dim: isize| x.conj()?.mul(y)?.sum(dim);
    /// All products of two vectors' elements.
    outer [Torch Method] "outer(Tensor input, Tensor vec2)" |input: &Tensor, vec2: &Tensor| input.outer(vec2);
    /// All products of two vectors' elements.
    ger [Torch Method] "ger(Tensor input, Tensor vec2)" |input: &Tensor, vec2: &Tensor| input.outer(vec2);
    /// Products along the last dimensions.
    inner [Torch Method] "inner(Tensor input, Tensor other)" |input: &Tensor, other: &Tensor| input.inner(other);
    /// Kronecker product.
    kron [Torch Method] "kron(Tensor input, Tensor other)" |input: &Tensor, other: &Tensor| input.kron(other);
    /// `beta * input + alpha * (mat1 @ mat2)`.
    addmm [Torch Method Inplace] "addmm(Tensor input, Tensor mat1, Tensor mat2, *, Number beta=1, Number alpha=1)"
        |input: &Tensor, mat1: &Tensor, mat2: &Tensor, beta: Scalar, alpha: Scalar| input.addmm(mat1, mat2, beta, alpha);
    /// `beta * input + alpha * (mat @ vec)`.
    addmv [Torch Method Inplace] "addmv(Tensor input, Tensor mat, Tensor vec, *, Number beta=1, Number alpha=1)"
        |input: &Tensor, mat: &Tensor, vec: &Tensor, beta: Scalar, alpha: Scalar| input.addmv(mat, vec, beta, alpha);
    /// `beta * input + alpha * outer(vec1, vec2)`.
    addr [Torch Method Inplace] "addr(Tensor input, Tensor vec1, Tensor vec2, *, Number beta=1, Number alpha=1)"
        |input: &Tensor, vec1: &Tensor, vec2: &Tensor, beta: Scalar, alpha: Scalar| {
            if [input, vec1, vec2].iter().all(|t| t.dtype() == DType::Bool) {
                let products = if alpha.to_f64() != 0.0 { vec1.outer(vec2)? } else { vec1.outer(vec2)?.zeros_like()? };
                let kept = if beta.to_f64() != 0.0 { input.clone() } else { input.zeros_like()? };
                kept.logical_or(&products)
            } else {
                added(input, vec1.outer(vec2)?, beta, alpha)
            }
        };
    /// `beta * input + alpha * (batch1 @ batch2)`.
    baddbmm [Torch Method Inplace] "baddbmm(Tensor input, Tensor batch1, Tensor batch2, *, Number beta=1, Number alpha=1)"
        |input: &Tensor, batch1: &Tensor, batch2: &Tensor, beta: Scalar, alpha: Scalar| input.baddbmm(batch1, batch2, beta, alpha);
    /// `beta * input + alpha * sum(batch1 @ batch2)`.
    addbmm [Torch Method Inplace] "addbmm(Tensor input, Tensor batch1, Tensor batch2, *, Number beta=1, Number alpha=1)"
        |input: &Tensor, batch1: &Tensor, batch2: &Tensor, beta: Scalar, alpha: Scalar| input.addbmm(batch1, batch2, beta, alpha);
    /// Product of several matrices.
    _chain_matmul [Torch] "chain_matmul(Tensor[] matrices)" |matrices: &[Tensor]| chain(matrices);
    /// Product of several matrices.
    multi_dot [Linalg] "multi_dot(Tensor[] tensors)" |tensors: &[Tensor]| chain(tensors);
    /// Sums of products by Einstein's notation.
    _einsum [Torch] "einsum(str equation, Tensor[] operands)" |equation: &str, operands: &[Tensor]|
        rushlight_tensor::einsum(equation, &operands.iter().collect::<Vec<_>>());
    /// Products summed over some dimensions of each tensor.
    _tensordot [Torch]
        "tensordot(Tensor a, Tensor b, int dims)" |a: &Tensor, b: &Tensor, n: i64| a.tensordot(b, size(n, "tensordot: dims")?),
        "tensordot(Tensor a, Tensor b, int[] dims_a, int[] dims_b)" |a: &Tensor, b: &Tensor, dims_a: &[i64], dims_b: &[i64]| tensordot(a, b, dims_a, dims_b);
    /// Cross product of vectors of three.
    cross [Torch Method] "cross(Tensor input, Tensor other, int? dim=None)" |input: &Tensor, other: &Tensor, dim: Option<i64>| cross(input, other, dim);
    /// Distances between two sets of vectors.
    cdist [Torch] "cdist(Tensor x1, Tensor x2, float p=2.0, str? compute_mode=None)" |x1: &Tensor, x2: &Tensor, p: f64, mode: Option<&str>| {
        // The engine chooses the algorithm.
        one_of("cdist", "compute_mode", mode, &["use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"])?;
        cdist(x1, x2, p)
    };
    /// Products of groups that end at `offs` (int32): rows with matrices of a batch (2D, 3D), matrices with columns
    /// (3D, 2D), or summands (2D, 2D).
    grouped_mm [Functional] "grouped_mm(Tensor mat_a, Tensor mat_b, *, Tensor? offs=None, Tensor? bias=None, dtype? out_dtype=None)"
        |a: &Tensor, b: &Tensor, offs: Option<&Tensor>, bias: Option<&Tensor>, out_dtype: Option<DType>| grouped_mm(a, b, offs, bias, out_dtype);
    /// Distances between vectors of one set.
    pdist [Torch Functional] "pdist(Tensor input, float p=2.0)" |input: &Tensor, p: f64| pdist(input, p);
    /// Determinant.
    det [Torch Method Linalg] "det(Tensor A)" |a: &Tensor| a.det();
    /// Logarithm of the determinant.
    logdet [Torch Method] "logdet(Tensor input)" |input: &Tensor| input.logdet();
    /// Sign and logarithm of the determinant.
    slogdet [Torch Method Linalg] "slogdet(Tensor A)" |a: &Tensor| a.slogdet().map(|(sign, log)| Out::Named("sign logabsdet", vec![sign, log]));
    /// Inverse.
    inverse [Torch Method] "inverse(Tensor input)" |input: &Tensor| input.inv();
    /// Inverse.
    inv [Linalg] "inv(Tensor A)" |a: &Tensor| a.inv();
    /// Pseudo-inverse.
    pinverse [Torch Method] "pinverse(Tensor input, float rcond=1e-15)" |input: &Tensor, rcond: f64| input.pinv(Some(rcond));
    /// Pseudo-inverse.
    pinv [Linalg]
        "pinv(Tensor A, *, float? atol=None, float? rtol=None, bool hermitian=False)" |a: &Tensor, atol: Option<f64>, rtol: Option<f64>, hermitian: bool|
            pinv(a, RankTolerance { atol, rtol }, hermitian),
        "pinv(Tensor A, float rcond, bool hermitian=False)" |a: &Tensor, rcond: f64, hermitian: bool|
            pinv(a, RankTolerance::from(Some(rcond)), hermitian);
    /// Solution of a linear system.
    solve [Linalg] "solve(Tensor A, Tensor B, *, bool left=True)" |a: &Tensor, b: &Tensor, left: bool| a.solve(b, left);
    /// Solution of a triangular system.
    solve_triangular [Linalg] "solve_triangular(Tensor A, Tensor B, *, bool upper, bool left=True, bool unitriangular=False)"
        |a: &Tensor, b: &Tensor, upper: bool, left: bool, unitriangular: bool|
        a.solve_triangular(b, SolveTriangular::new(upper).left(left).unitriangular(unitriangular));
    /// Solution of a triangular system, and the matrix.
    triangular_solve [Torch Method] "triangular_solve(Tensor b, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False)"
        |b: &Tensor, a: &Tensor, upper: bool, transpose: bool, unitriangular: bool|
        triangular_solve(b, a, upper, transpose, unitriangular);
    /// Cholesky factor.
    cholesky [Torch Method Linalg] "cholesky(Tensor input, bool upper=False)" |input: &Tensor, upper: bool| input.cholesky(upper);
    /// Solution of a system whose Cholesky factor is known.
    cholesky_solve [Torch Method] "cholesky_solve(Tensor B, Tensor L, bool upper=False)" |b: &Tensor, l: &Tensor, upper: bool| cholesky_solve(b, l, upper);
    /// Inverse of a matrix whose Cholesky factor is known.
    cholesky_inverse [Torch Method] "cholesky_inverse(Tensor L, bool upper=False)" |l: &Tensor, upper: bool|
        cholesky_solve(&Tensor::eye_with(l.size(-1)?, l.size(-1)?, (l.dtype(), l.device()))?.expand(l.shape())?, l, upper);
    /// Orthogonal and triangular factors.
    qr [Linalg] "qr(Tensor A, str mode='reduced')" |a: &Tensor, mode: &str| qr(a, mode);
    /// Packed factors of symmetric matrices, and pivots.
    ldl_factor [Linalg] "ldl_factor(Tensor A, *, bool hermitian=False)" |a: &Tensor, _hermitian: bool|
        ldl_factor("torch.linalg.ldl_factor", a, true).map(|(ld, pivots, _)| Out::Named("LD pivots", vec![ld, pivots]));
    /// Packed factors of symmetric matrices, pivots and the place of the first zero block.
    ldl_factor_ex [Linalg] "ldl_factor_ex(Tensor A, *, bool hermitian=False, bool check_errors=False)"
        |a: &Tensor, _hermitian: bool, check: bool| ldl_factor("torch.linalg.ldl_factor_ex", a, check)
            .map(|(ld, pivots, info)| Out::Named("LD pivots info", vec![ld, pivots, info]));
    /// Solution of a system whose symmetric matrix is factored.
    ldl_solve [Linalg] "ldl_solve(Tensor LD, Tensor pivots, Tensor B, *, bool hermitian=False)"
        |ld: &Tensor, pivots: &Tensor, b: &Tensor, _hermitian: bool| ld.ldl_solve(pivots, b);
    /// Permutation, lower and upper triangle, `A = P L U`.
    lu [Linalg] "lu(Tensor A, *, bool pivot=True)" |a: &Tensor, pivot: bool|
        pivoted("linalg.lu", pivot).and_then(|()| a.lu()).map(|(p, l, u)| Out::Named("P L U", vec![p, l, u]));
    /// Packed LU factors and pivots.
    lu_factor [Linalg] "lu_factor(Tensor A, *, bool pivot=True)" |a: &Tensor, pivot: bool| lu_factor(a, pivot);
    /// Packed LU factors, pivots and the place of the first zero pivot.
    lu_factor_ex [Linalg] "lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False)" |a: &Tensor, pivot: bool, check: bool| lu_factor_ex(a, pivot, check);
    /// Solution of a system whose LU factors are known.
    lu_solve [Linalg] "lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False)"
        |lu: &Tensor, pivots: &Tensor, b: &Tensor, left: bool, adjoint: bool| lu.lu_solve(pivots, b, left, adjoint);
    /// Permutation, lower and upper triangle of packed LU factors.
    lu_unpack [Torch] "lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True)"
        |lu: &Tensor, pivots: &Tensor, data: bool, permutation: bool| lu_unpack(lu, pivots, data, permutation);
    /// Singular value decomposition, `A = U diag(S) Vh`.
    svd [Linalg] "svd(Tensor A, bool full_matrices=True)" |a: &Tensor, full: bool| svd(a, full, "U S Vh");
    /// Singular values.
    svdvals [Linalg] "svdvals(Tensor A)" |a: &Tensor| a.svdvals();
    /// Eigenvalues and eigenvectors of symmetric matrices.
    eigh [Linalg] "eigh(Tensor A, str UPLO='L')" |a: &Tensor, uplo: &str| eigh(a, is_lower(uplo)?);
    /// Eigenvalues of symmetric matrices.
    eigvalsh [Linalg] "eigvalsh(Tensor A, str UPLO='L')" |a: &Tensor, uplo: &str| a.eigvalsh(!is_lower(uplo)?);
    /// Least squares.
    lstsq [Linalg] "lstsq(Tensor A, Tensor B, float? rcond=None, *, str? driver=None)" |a: &Tensor, b: &Tensor, rcond: Option<f64>, driver: Option<&str>| {
        one_of("torch.linalg.lstsq", "driver", driver, &["gels", "gelsy", "gelsd", "gelss"])?;
        lstsq(a, b, rcond, driver.unwrap_or("gelsy"))
    };
    /// Rank.
    matrix_rank [Linalg]
        "matrix_rank(Tensor A, *, float? atol=None, float? rtol=None, bool hermitian=False)" |a: &Tensor, atol: Option<f64>, rtol: Option<f64>, hermitian: bool|
            symmetric_if("linalg.matrix_rank", a, hermitian)?.matrix_rank(RankTolerance { atol, rtol }),
        "matrix_rank(Tensor A, float tol, bool hermitian=False)" |a: &Tensor, tol: f64, hermitian: bool|
            symmetric_if("linalg.matrix_rank", a, hermitian)?.matrix_rank(RankTolerance { atol: Some(tol), rtol: Some(0.0) });
    /// Power of square matrices.
    matrix_power [Torch Method Linalg] "matrix_power(Tensor input, int n)" |input: &Tensor, n: i64| input.matrix_power(n);
    /// Exponential of square matrices.
    matrix_exp [Torch Method Linalg] "matrix_exp(Tensor A)" |a: &Tensor| matrix_exp(a);
    /// Norm of vectors or matrices.
    norm [Linalg]
        "norm(Tensor A, float? ord=None, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None)"
            |a: &Tensor, ord: Option<f64>, dim: Option<&[i64]>, keepdim: bool, dtype: Option<DType>| norm(a, ord, dim, keepdim, dtype),
        "norm(Tensor A, str ord, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None)"
            |a: &Tensor, ord: &str, dim: Option<&[i64]>, keepdim: bool, dtype: Option<DType>|
            converted(a, dtype)?.matrix_norm(word(ord)?, dim.map_or(Ok([-2, -1]), plane)?, keepdim);
    /// Norm of vectors.
    vector_norm [Linalg] "vector_norm(Tensor x, float ord=2, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None)"
        |x: &Tensor, ord: f64, dim: Option<&[i64]>, keepdim: bool, dtype: Option<DType>|
        converted(x, dtype)?.vector_norm(ord, dims(dim.unwrap_or(&[])), keepdim);
    /// Norm of matrices.
    matrix_norm [Linalg]
        "matrix_norm(Tensor A, str ord='fro', int[] dim=(-2,-1), bool keepdim=False, *, dtype? dtype=None)"
            |a: &Tensor, ord: &str, dim: &[i64], keepdim: bool, dtype: Option<DType>| converted(a, dtype)?.matrix_norm(word(ord)?, plane(dim)?, keepdim),
        "matrix_norm(Tensor A, float ord, int[] dim=(-2,-1), bool keepdim=False, *, dtype? dtype=None)"
            |a: &Tensor, ord: f64, dim: &[i64], keepdim: bool, dtype: Option<DType>| converted(a, dtype)?.matrix_norm(norm_order(ord), plane(dim)?, keepdim);
    /// The last two dimensions transposed.
    matrix_transpose [Linalg] "matrix_transpose(Tensor input)" |input: &Tensor| input.transpose(-2, -1);
}

rows! { TORCH:
    /// Householder reflectors of a QR factorisation in LAPACK's packing, and their factors.
    geqrf [Torch Method] "geqrf(Tensor input)" |input: &Tensor| input.geqrf().map(|(a, tau)| Out::Named("a tau", vec![a, tau]));
    /// Solution of a system whose LU factors are known.
    lu_solve [Torch Method] "lu_solve(Tensor b, Tensor LU_data, Tensor LU_pivots)" |b: &Tensor, lu: &Tensor, pivots: &Tensor| lu.lu_solve(pivots, b, true, false);
    /// Orthogonal and triangular factors.
    qr [Torch Method] "qr(Tensor input, bool some=True)" |input: &Tensor, some: bool| qr(input, if some { "reduced" } else { "complete" });
    /// Singular value decomposition, `A = U diag(S) V^T`.
    svd [Torch Method] "svd(Tensor input, bool some=True, bool compute_uv=True)" |input: &Tensor, some: bool, compute_uv: bool|
        if compute_uv { Ok(()) } else { Err(Error::unsupported("svd: compute_uv=False is not supported; use torch.linalg.svdvals")) }
        .and_then(|()| input.svd(!some)).and_then(|(u, s, vh)| Ok(Out::Named("U S V", vec![u, s, vh.transpose(-2, -1)?])));
    /// Cross product of vectors of three.
    cross [Linalg] "cross(Tensor input, Tensor other, *, int dim=-1)" |input: &Tensor, other: &Tensor, dim: isize| input.cross(other, dim);
    /// Diagonals of the last two dimensions.
    diagonal [Linalg] "diagonal(Tensor A, *, int offset=0, int dim1=-2, int dim2=-1)" |a: &Tensor, offset: isize, dim1: isize, dim2: isize| a.diagonal(offset, dim1, dim2);
}

fn pivoted(call: &str, pivot: bool) -> Result<()> {
    match pivot {
        true => Ok(()),
        false => Err(Error::unsupported(format!(
            "{call}: pivot=False is not supported; use pivot=True, which is as accurate or more"
        ))),
    }
}

fn lu_factor_ex(a: &Tensor, pivot: bool, check: bool) -> Result<Out> {
    pivoted("linalg.lu_factor_ex", pivot)?;
    let (lu, pivots, info) = a.lu_factor()?;
    if check && info.ne(0)?.any(..)?.item::<bool>()? {
        return Err(Error::numerical(format!(
            "linalg.lu_factor_ex: U has a zero on its diagonal: info is {:?}; a system with this matrix has no unique solution",
            info.to_vec::<i32>()?
        )));
    }
    Ok(Out::Named("LU pivots info", vec![lu, pivots, info]))
}

/// For real matrices, symmetric and Hermitian are the same.
fn ldl_factor(call: &str, a: &Tensor, check: bool) -> Result<(Tensor, Tensor, Tensor)> {
    let (ld, pivots, info) = a.ldl_factor()?;
    if check && info.ne(0)?.any(..)?.item::<bool>()? {
        return Err(Error::value(format!(
            "{call}: D has a zero block: info is {:?}; a system with this matrix has no unique solution",
            info.to_vec::<i32>()?
        )));
    }
    Ok((ld, pivots, info))
}

fn lu_factor(a: &Tensor, pivot: bool) -> Result<Out> {
    pivoted("linalg.lu_factor", pivot)?;
    let (lu, pivots, _) = a.lu_factor()?;
    Ok(Out::Named("LU pivots", vec![lu, pivots]))
}

/// `P`, `L`, `U`; parts not requested are empty.
fn lu_unpack(lu: &Tensor, pivots: &Tensor, data: bool, permutation: bool) -> Result<Out> {
    let (p, l, u) = rushlight_tensor::lu_unpack(lu, pivots)?;
    let kept = |t: Tensor, wanted: bool| if wanted { Ok(t) } else { Tensor::zeros_with([0], (t.dtype(), t.device())) };
    Ok(Out::Named("P L U", vec![kept(p, permutation)?, kept(l, data)?, kept(u, data)?]))
}

/// The symmetric matrix whose lower triangle `a` has, if `hermitian`.
fn symmetric_if(call: &str, a: &Tensor, hermitian: bool) -> Result<Tensor> {
    single_or_double(call, a)?;
    if !hermitian || a.rank() < 2 || a.shape()[a.rank() - 1] != a.shape()[a.rank() - 2] {
        return Ok(a.clone());
    }
    a.tril(0)?.add(&a.tril(-1)?.transpose(-2, -1)?)
}

fn pinv(a: &Tensor, tolerance: RankTolerance, hermitian: bool) -> Result<Tensor> {
    if hermitian { a.pinv_symmetric(tolerance) } else { a.pinv(tolerance) }
}

/// An error unless an option is one of the known ones.
fn one_of(call: &str, name: &str, given: Option<&str>, known: &[&str]) -> Result<()> {
    match given {
        Some(given) if !known.contains(&given) => Err(Error::value(format!(
            "{call}: parameter `{name}` should be one of ({}), not '{given}'",
            known.join(", ")
        ))),
        _ => Ok(()),
    }
}

fn precision(dtype: DType) -> f64 {
    if dtype == DType::F64 { f64::EPSILON } else { f32::EPSILON.into() }
}

/// The results besides the solution depend on LAPACK's driver, which the caller may choose. Singular values up to
/// `rcond` of the largest count as zero; a negative number is the dtype's precision. "gels" takes full ranks for
/// granted.
fn lstsq(a: &Tensor, b: &Tensor, rcond: Option<f64>, driver: &str) -> Result<Out> {
    let rcond = rcond.filter(|_| driver != "gels").map(|r| if r < 0.0 { precision(a.dtype()) } else { r });
    let vector = b.rank() + 1 == a.rank();
    let solution = match rcond {
        None => a.lstsq(b)?,
        Some(_) if vector => a.pinv(rcond)?.matmul(&b.unsqueeze(-1)?)?.squeeze(-1)?,
        Some(_) => a.pinv(rcond)?.matmul(b)?,
    };
    let (m, n) = (a.size(-2)?, a.size(-1)?);
    let nothing = |dtype: DType| Tensor::empty_with([0usize], (dtype, a.device()));
    let by_values = matches!(driver, "gelsd" | "gelss");
    let ranks = if driver == "gels" { nothing(DType::I64)? } else { a.detach().matrix_rank(rcond)? };
    let is_full = |ranks: &Tensor| -> Result<bool> { Ok(!ranks.lt(n as i64)?.any(..)?.item::<bool>()?) };
    let residuals = if m > n && driver != "gelsy" && (!by_values || is_full(&ranks)?) {
        let wide = if b.rank() + 1 == a.rank() { b.unsqueeze(-1)? } else { b.clone() };
        let x = if solution.rank() + 1 == a.rank() { solution.unsqueeze(-1)? } else { solution.clone() };
        a.matmul(&x)?.sub(&wide)?.square()?.sum(-2)?
    } else {
        nothing(a.dtype())?
    };
    Ok(Out::Named(
        "solution residuals rank singular_values",
        vec![solution, residuals, ranks, if by_values { a.svdvals()? } else { nothing(a.dtype())? }],
    ))
}

fn triangular_solve(b: &Tensor, a: &Tensor, upper: bool, transpose: bool, unitriangular: bool) -> Result<Out> {
    let (matrix, upper) = if transpose { (a.transpose(-2, -1)?, !upper) } else { (a.clone(), upper) };
    let solution = matrix.solve_triangular(b, SolveTriangular::new(upper).unitriangular(unitriangular))?;
    Ok(Out::Named("solution cloned_coefficient", vec![solution, a.mt()?.contiguous()?.copy()?.mt()?]))
}
