//! The numbers PyTorch 2 gives, printed with `repr` of each float64 from
//! `torch.linalg.{lu_factor,det,slogdet,inv,solve,cholesky,qr,svdvals,eigvalsh,lstsq}` for the matrices below:
//! `TALL` is the first three columns of `A`, `WIDE` its transpose, `CHOLESKY` that of `A Aᵀ`, `EIGENVALUES` those of
//! `(A + Aᵀ) / 2`, and `LSTSQ_DEFICIENT` has the sum of the first two columns of `TALL` as its third.

use crate::support::{assert_close, columns, matmul, transposed};
use rushlight_linalg::*;

const A: [f64; 16] = [2.0, -1.0, 0.5, 3.0, 1.0, 4.0, -2.0, 0.25, -3.0, 0.5, 1.0, 2.0, 0.75, -2.0, 5.0, -1.0];
const B: [f64; 8] = [1.0, 2.0, 0.0, -1.0, 3.0, 0.5, -2.0, 4.0];
const LU: [f64; 16] = [
    -3.0,
    0.5,
    1.0,
    2.0,
    -0.3333333333333333,
    4.166666666666667,
    -1.6666666666666667,
    0.9166666666666666,
    -0.25,
    -0.44999999999999996,
    4.5,
    -0.08750000000000006,
    -0.6666666666666666,
    -0.16,
    0.19999999999999996,
    4.4975,
];
const DET: [f64; 1] = [-252.984375];
const LOGABSDET: [f64; 1] = [5.533327727927081];
const INV: [f64; 16] = [
    0.14180717682663208,
    0.08992650237786423,
    -0.1936878512753999,
    0.060527453523562466,
    -0.047186708665307886,
    0.2766969303934284,
    0.0853560620097585,
    0.09832623062195045,
    0.004323389537397322,
    0.10030263726761779,
    0.09165585819282317,
    0.22135754431474275,
    0.22234574763757645,
    0.015564202334630359,
    0.14230127848804894,
    -0.04446914952751528,
];
const SOLVE: [f64; 8] = [
    -0.5603112840466925,
    0.3389537397319498,
    0.012229016120066712,
    0.06491260576863687,
    -0.16342412451361865,
    0.8396022481625594,
    0.7381878821567538,
    0.3224013340744859,
];
const CHOLESKY: [f64; 16] = [
    3.774917217635375,
    0.0,
    0.0,
    0.0,
    -0.5960395606792698,
    4.550520502327757,
    0.0,
    0.0,
    0.0,
    -0.5493877016313099,
    3.7347253116255104,
    0.0,
    0.7947194142390264,
    -3.7416193995311313,
    -0.6173411669957691,
    3.9433609022274614,
];
const QR_TALL_Q: [f64; 12] = [
    -0.5240974256643347,
    0.18744053635769078,
    0.051637667410047286,
    -0.26204871283216735,
    -0.8840479028213477,
    -0.38264986912771043,
    0.786146138496502,
    -0.06387898875871555,
    -0.31029812027660414,
    -0.1965365346241255,
    0.4233731517730927,
    -0.8686931020295955,
];
const QR_TALL_R: [f64; 9] = [
    -3.8160843806184372,
    0.26204871283216713,
    0.0655121782080419,
    0.0,
    -4.6023179455686245,
    3.914802843928289,
    0.0,
    0.0,
    -3.862645058464138,
];
const QR_WIDE_Q: [f64; 9] = [
    -0.8728715609439694,
    -0.4879500364742666,
    -2.599131411407065e-17,
    0.4364357804719848,
    -0.7807200583588264,
    0.44721359549995787,
    -0.2182178902359924,
    0.3903600291794132,
    0.8944271909999159,
];
const QR_WIDE_R: [f64; 12] = [
    -2.29128784747792,
    1.3093073414159544,
    2.6186146828319083,
    -2.6186146828319083,
    0.0,
    -4.3915503282684,
    1.4638501094227994,
    3.147277735259018,
    0.0,
    0.0,
    1.118033988749895,
    3.5777087639996634,
];
const QR_SQUARE_Q: [f64; 16] = [
    -0.5240974256643347,
    0.18744053635769078,
    0.051637667410047286,
    -0.8291691534580911,
    -0.26204871283216735,
    -0.8840479028213477,
    -0.38264986912771043,
    -0.058041840742066184,
    0.786146138496502,
    -0.06387898875871555,
    -0.31029812027660414,
    -0.5306682582131784,
    -0.1965365346241255,
    0.4233731517730927,
    -0.8686931020295955,
    0.16583383069161847,
];
const QR_SQUARE_R: [f64; 16] = [
    -3.8160843806184372,
    0.26204871283216713,
    0.0655121782080419,
    0.13102435641608334,
    0.0,
    -4.6023179455686245,
    3.914802843928289,
    -0.20982149592278831,
    0.0,
    0.0,
    -3.862645058464138,
    0.3073473964246012,
    0.0,
    0.0,
    0.0,
    -3.729188267677765,
];
const QR_COMPLETE_Q: [f64; 16] = [
    -0.5240974256643347,
    0.18744053635769078,
    0.051637667410047286,
    -0.8291691534580911,
    -0.26204871283216735,
    -0.8840479028213477,
    -0.38264986912771043,
    -0.058041840742066184,
    0.786146138496502,
    -0.06387898875871555,
    -0.31029812027660414,
    -0.5306682582131784,
    -0.1965365346241255,
    0.4233731517730927,
    -0.8686931020295955,
    0.16583383069161847,
];
const SVDVALS: [f64; 3] = [6.656565465031764, 3.830829055351227, 2.660335497343012];
const EIGENVALUES: [f64; 4] = [-4.4345849008301865, 2.669075869292067, 2.793850134787499, 4.971658896750622];
const EIGENVALUES_UPPER: [f64; 4] = [-3.607185824170699, 0.4574227313297573, 3.243549028375549, 5.9062140644653915];
const LSTSQ_TALL: [f64; 6] = [
    -0.5877850349490087,
    0.3269546617776248,
    -0.004079294144608681,
    0.057790000381956474,
    -0.22216110920132914,
    0.8139490470188305,
];
const LSTSQ_WIDE: [f64; 8] = [
    0.09342653069019527,
    0.3124785149535923,
    0.3865398571483138,
    -0.04812650395324852,
    0.04201520186394702,
    -0.4400137504297009,
    0.7368702494175164,
    0.1375042970092815,
];
const LSTSQ_DEFICIENT: [f64; 6] = [
    -0.4422943788730731,
    0.38848082670584067,
    0.313594380561606,
    -0.511524238893673,
    -0.12869999831146678,
    -0.12304341218783263,
];

const TOLERANCE: f64 = 1e-13;

fn tall() -> Vec<f64> {
    columns(&A, 4, 0..3)
}

#[test]
fn lu_det_inv_and_solve() {
    let factors = lu_factor(1, 4, 4, &A).unwrap();
    assert_close(&factors.lu, &LU, TOLERANCE);
    assert_eq!((factors.pivots, factors.infos), (vec![3, 2, 4, 4], vec![0]));
    assert_eq!(factors.signs, [1.0]);
    let mut one = [0.0];
    det(1, 4, &A, &mut one).unwrap();
    assert_close(&one, &DET, TOLERANCE * 253.0);
    let mut sign = [0.0];
    slogdet(1, 4, &A, &mut sign, &mut one).unwrap();
    assert_close(&one, &LOGABSDET, TOLERANCE);
    assert_eq!(sign, [-1.0]);
    let mut inverse = [0.0; 16];
    inv(1, 4, &A, &mut inverse).unwrap();
    assert_close(&inverse, &INV, TOLERANCE);
    let mut x = [0.0; 8];
    solve(1, 4, 2, &A, &B, &mut x).unwrap();
    assert_close(&x, &SOLVE, TOLERANCE);
}

#[test]
fn cholesky_factor() {
    let product = matmul(&A, &transposed(&A, 4, 4), 4, 4, 4);
    let mut l = [0.0; 16];
    cholesky(1, 4, &product, &mut l).unwrap();
    assert_close(&l, &CHOLESKY, TOLERANCE);
}

#[test]
fn qr_has_the_same_signs() {
    let wide = transposed(&tall(), 4, 3);
    for (a, m, n, complete, q_expected, r_expected) in [
        (&tall()[..], 4, 3, false, &QR_TALL_Q[..], &QR_TALL_R[..]),
        (&wide, 3, 4, false, &QR_WIDE_Q, &QR_WIDE_R),
        (&A, 4, 4, false, &QR_SQUARE_Q, &QR_SQUARE_R),
        (&tall(), 4, 3, true, &QR_COMPLETE_Q, &[&QR_TALL_R[..], &[0.0; 3]].concat()),
    ] {
        let (mut q, mut r) = (vec![0.0; q_expected.len()], vec![0.0; r_expected.len()]);
        qr(1, m, n, a, &mut q, &mut r, complete).unwrap();
        assert_close(&q, q_expected, TOLERANCE);
        assert_close(&r, r_expected, TOLERANCE);
    }
}

#[test]
fn singular_and_eigenvalues() {
    let mut s = [0.0; 3];
    svdvals(1, 4, 3, &tall(), &mut s).unwrap();
    assert_close(&s, &SVDVALS, TOLERANCE);
    let turned = transposed(&A, 4, 4);
    let symmetric: Vec<f64> = A.iter().zip(&turned).map(|(x, y)| (x + y) / 2.0).collect();
    let mut values = [0.0; 4];
    eigvalsh(1, 4, &symmetric, &mut values, true).unwrap();
    assert_close(&values, &EIGENVALUES, TOLERANCE);
    // Of a matrix that is not symmetric, only the named triangle counts.
    eigvalsh(1, 4, &A, &mut values, false).unwrap();
    assert_close(&values, &EIGENVALUES_UPPER, TOLERANCE);
    eigvalsh(1, 4, &turned, &mut values, true).unwrap();
    assert_close(&values, &EIGENVALUES_UPPER, TOLERANCE);
}

#[test]
fn least_squares() {
    let wide = transposed(&tall(), 4, 3);
    let mut deficient = tall();
    deficient.chunks_exact_mut(3).for_each(|row| row[2] = row[0] + row[1]);
    for (a, m, n, b, expected, rank_expected) in [
        (&tall(), 4, 3, &B[..], &LSTSQ_TALL[..], 3),
        (&wide, 3, 4, &B[..6], &LSTSQ_WIDE, 3),
        (&deficient, 4, 3, &B, &LSTSQ_DEFICIENT, 2),
    ] {
        let (mut x, mut rank) = (vec![0.0; n * 2], [0]);
        lstsq(1, m, n, 2, a, b, None, &mut x, &mut rank).unwrap();
        assert_close(&x, expected, TOLERANCE);
        assert_eq!(rank, [rank_expected]);
    }
}
