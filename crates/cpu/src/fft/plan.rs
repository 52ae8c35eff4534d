//! What transforms of one size share: their factors and tables.

use crate::simd::Real;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::f64::consts::TAU;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

/// Plans kept; a program that needs more sizes makes them again.
const MAX_PLANS: usize = 256;

/// `exp(-2 pi i k / n)`.
pub(super) fn root(k: usize, n: usize) -> [f64; 2] {
    let angle = -TAU * (k % n) as f64 / n as f64;
    [angle.cos(), angle.sin()]
}

fn lit<T: Real>([re, im]: [f64; 2]) -> [T; 2] {
    [T::lit(re), T::lit(im)]
}

/// A transform as passes over tiles.
pub(super) struct Passes<T> {
    pub n: usize,
    pub list: Vec<Pass<T>>,
    /// The start of each block of the last pass, by the first of its numbers' places in the result.
    pub blocks: Vec<u32>,
}

/// One pass.
pub(super) struct Pass<T> {
    pub radix: usize,
    /// Powers of the root of unity by block, `[m][radix - 1]`: real and imaginary part, and the latter negated.
    pub twiddles: Vec<[T; 3]>,
    /// Of an odd radix: cosines and sines of `j k` parts of a turn, `[half][half]`.
    pub roots: Vec<[T; 2]>,
}

/// The radices of a size; `None` if it has a prime factor above 13.
fn radices(mut n: usize) -> Option<Vec<usize>> {
    let twos = n.trailing_zeros() as usize;
    n >>= twos;
    // Eights, and for the rest sixes if there are threes, or fours rather than a two.
    let threes = usize::from(n.is_multiple_of(3)) + usize::from(n.is_multiple_of(9));
    let (eights, sixes, fours, single) = match twos % 3 {
        0 => (twos / 3, 0, 0, 0),
        rest if threes >= rest => (twos / 3, rest, 0, 0),
        1 if twos >= 4 => (twos / 3 - 1, 0, 2, 0),
        1 => (twos / 3, 0, 0, 1),
        _ => (twos / 3, 0, 1, 0),
    };
    n /= 3usize.pow(sixes as u32);
    let mut twos = vec![8; eights];
    twos.extend(std::iter::repeat_n(6, sixes));
    twos.extend(std::iter::repeat_n(4, fours));
    let mut found = vec![2; single];
    for radix in [3, 7, 11, 13, 5] {
        while n.is_multiple_of(radix) {
            found.push(radix);
            n /= radix;
        }
    }
    // A first and a last pass of radix 4, 5, 6 or 8 save copies; the others go between them.
    let front = if found.last() == Some(&5) { twos.len() } else { twos.len().div_ceil(2) };
    found.extend_from_slice(&twos[front..]);
    found.splice(..0, twos[..front].iter().copied());
    if found.len() > 2 && twos.is_empty() && n == 1 {
        let middle = found.iter().position(|&radix| radix == 5);
        if let Some(at) = middle.filter(|&at| at > 0 && found.len() - at > 1) {
            found.swap(0, at);
        }
    }
    (n == 1).then_some(found)
}

/// What the passes of a size cost for each element, in vector instructions, roughly.
fn cost(radices: &[usize]) -> f64 {
    let pass = |radix: &usize| match radix {
        2 => 6.0,
        4 => 8.0,
        6 | 8 => 10.0,
        odd => 6.0 + *odd as f64,
    };
    radices.iter().map(pass).sum()
}

impl<T: Real> Passes<T> {
    fn new(n: usize, radices: &[usize]) -> Self {
        let mut left = n;
        let pass = |&radix: &usize| {
            let size = left;
            left /= radix;
            let factor = |p: usize, k: usize| {
                let [re, im] = lit(root(p * k, size));
                [re, im, T::ZERO - im]
            };
            let twiddles = (0..left).flat_map(|p| (1..radix).map(move |k| factor(p, k))).collect();
            let half = radix / 2;
            let turn = |i: usize| {
                let [cos, sin] = root((i / half + 1) * (i % half + 1), radix);
                lit([cos, -sin])
            };
            let roots = if radix % 2 == 1 { (0..half * half).map(turn).collect() } else { Vec::new() };
            Pass { radix, twiddles, roots }
        };
        let list = radices.iter().map(pass).collect();
        // The passes in place leave the first digit of a number's place as the highest one, and so on.
        let last = radices.last().copied().unwrap_or(1);
        let block = |mut q: usize| {
            let mut size = n;
            let mut at = 0;
            for radix in &radices[..radices.len().saturating_sub(1)] {
                size /= radix;
                at += q % radix * size;
                q /= radix;
            }
            at as u32
        };
        Self { n, list, blocks: (0..n / last).map(block).collect() }
    }
}

/// A size as a product: transforms of columns of `first.n`, and of rows of `second.n`.
pub(super) struct Split<T> {
    pub first: Passes<T>,
    pub second: Passes<T>,
    /// Powers of the root of unity, by row and lane: a tile of `first.n` elements.
    pub lanes: Vec<T>,
    /// By row and block of columns.
    pub blocks: Vec<[T; 3]>,
    /// Its cost for one transform.
    cost: f64,
}

/// A transform as a convolution of a size without large prime factors.
pub(super) struct Bluestein<T> {
    pub inner: Arc<Plan<T>>,
    /// `exp(-i pi k^2 / n)`.
    pub chirp: Vec<[T; 2]>,
    /// The transform of the conjugate chirp, divided by the size.
    pub filter: Vec<[T; 2]>,
}

pub(super) enum Kind<T> {
    /// Passes over tiles of whole transforms (their tables are made when they are needed), or two steps.
    Tile {
        radices: Vec<usize>,
        whole: OnceLock<Passes<T>>,
        split: Option<Box<Split<T>>>,
    },
    Bluestein(Box<Bluestein<T>>),
}

/// Everything that transforms of one size share.
pub(super) struct Plan<T> {
    pub n: usize,
    pub kind: Kind<T>,
    /// The cost of a tile of whole transforms.
    cost: f64,
}

impl<T: Real> Split<T> {
    /// The cheapest product, if the size has factors.
    fn best(n: usize, width: usize) -> Option<Self> {
        let step = |lanes: usize, n: usize| {
            let spill = if n > 192 { 1.3 } else { 1.0 };
            Some(lanes.div_ceil(width) as f64 * n as f64 * (cost(&radices(n)?) * spill + 12.0))
        };
        let price = |a: usize| Some((step(n / a, a)? + step(a, n / a)?, a));
        let divisors = (2..n).take_while(|a| a * a <= n).filter(|&a| n.is_multiple_of(a)).flat_map(|a| [a, n / a]);
        let (cost, a) = divisors.filter_map(price).min_by(|x, y| x.0.total_cmp(&y.0))?;
        let b = n / a;
        let mut lanes = vec![T::ZERO; a * 2 * width];
        for k in 0..a {
            for lane in 0..width {
                [lanes[2 * k * width + lane], lanes[(2 * k + 1) * width + lane]] = lit(root(k * lane, n));
            }
        }
        let blocks = b.div_ceil(width);
        let block = |i: usize| {
            let [re, im] = lit(root((i / blocks) * (i % blocks * width), n));
            [re, im, T::ZERO - im]
        };
        Some(Self {
            first: Passes::new(a, &radices(a)?),
            second: Passes::new(b, &radices(b)?),
            lanes,
            blocks: (0..a * blocks).map(block).collect(),
            cost,
        })
    }
}

type Plans = HashMap<(TypeId, usize, usize), Arc<dyn Any + Send + Sync>>;
static PLANS: LazyLock<Mutex<Plans>> = LazyLock::new(Mutex::default);

/// What is kept for a key, made on its first use.
fn kept<P: Any + Send + Sync>(key: (TypeId, usize, usize), make: impl FnOnce() -> P) -> Arc<P> {
    let lock = || PLANS.lock().unwrap_or_else(|e| e.into_inner());
    let known = lock().get(&key).cloned();
    if let Some(plan) = known.and_then(|plan| plan.downcast::<P>().ok()) {
        return plan;
    }
    let plan = Arc::new(make());
    let mut plans = lock();
    if plans.len() >= MAX_PLANS {
        plans.clear();
    }
    plans.insert(key, plan.clone());
    plan
}

impl<T: Real> Plan<T> {
    /// The plan of a size for vectors of `width` numbers, made on its first use.
    pub(super) fn of(n: usize, width: usize) -> Arc<Self> {
        kept((TypeId::of::<T>(), n, width), || Self::new(n, width))
    }

    fn new(n: usize, width: usize) -> Self {
        match radices(n) {
            Some(radices) => {
                // Two tiles of 1,024 numbers fill a part of the second-level cache that others need as well.
                let spill = if n > 4096 {
                    4.0
                } else if n > 1024 {
                    2.0
                } else if n > 192 {
                    1.3
                } else {
                    1.0
                };
                let cost = n as f64 * (cost(&radices) * spill + 16.0);
                let split = Split::best(n, width).map(Box::new);
                Self { n, kind: Kind::Tile { radices, whole: OnceLock::new(), split }, cost }
            }
            None => Self { n, kind: Kind::Bluestein(Box::new(Bluestein::new(n, width))), cost: 0.0 },
        }
    }

    /// The passes over tiles of whole transforms, unless the size has a large prime factor.
    pub(super) fn whole(&self) -> Option<&Passes<T>> {
        match &self.kind {
            Kind::Tile { radices, whole, .. } => Some(whole.get_or_init(|| Passes::new(self.n, radices))),
            Kind::Bluestein(_) => None,
        }
    }

    /// The two steps, if they take less than tiles of whole transforms.
    pub(super) fn split(&self, rows: usize, width: usize) -> Option<&Split<T>> {
        let Kind::Tile { split: Some(split), .. } = &self.kind else { return None };
        (split.cost * (rows as f64) < self.cost * rows.div_ceil(width) as f64).then_some(split)
    }
}

impl<T: Real> Bluestein<T> {
    fn new(n: usize, width: usize) -> Self {
        let least = 2 * n - 1;
        let size = [1, 3, 5, 9, 15].map(|odd| odd * least.div_ceil(odd).next_power_of_two()).into_iter().min();
        let size = size.unwrap_or(least.next_power_of_two());
        // k^2 modulo 2n, so that the angle stays exact.
        let chirp: Vec<[f64; 2]> =
            (0..n).map(|k| root((k as u128 * k as u128 % (2 * n as u128)) as usize, 2 * n)).collect();
        let mut filter = vec![[0.0; 2]; size];
        for (k, &[re, im]) in chirp.iter().enumerate() {
            for at in [k, (size - k) % size] {
                filter[at] = [re / size as f64, -im / size as f64];
            }
        }
        let filter = super::transformed(filter);
        Self {
            inner: Plan::of(size, width),
            chirp: chirp.into_iter().map(lit).collect(),
            filter: filter.into_iter().map(lit).collect(),
        }
    }
}

/// `exp(-2 pi i k / n)` for `k` from 0 to `n / 2`: real parts, then imaginary ones.
pub(super) fn halves<T: Real>(n: usize) -> Arc<Vec<T>> {
    // No plan is for vectors of no numbers.
    kept((TypeId::of::<T>(), n, 0), || {
        let numbers: Vec<[f64; 2]> = (0..=n / 2).map(|k| root(k, n)).collect();
        (0..2).flat_map(|part| numbers.iter().map(move |number| T::lit(number[part]))).collect()
    })
}
