//! The reductions: how each accumulates an element, a lane and a partial result.
//!
//! Elements are accumulated into lanes of the element's wide type, a tile at a time; lanes are
//! then absorbed into 8-byte words (`f64` for floats, `i64` for integers and counts), in which partial results are
//! joined.

use super::item::{Item, Wide};
use crate::isa::Isa;
use crate::lane;

/// A word holding a partial result: `f64` or `i64`.
pub trait Word: Copy + 'static {}
impl Word for f64 {}
impl Word for i64 {}

/// Additional argument of the steps, derived from the reduction's parameter if it is the same for all.
pub trait Param: Copy + 'static {
    fn from_param(param: f64) -> Self;
}
impl Param for () {
    #[inline(always)]
    fn from_param(_: f64) {}
}
impl Param for f32 {
    #[inline(always)]
    fn from_param(param: f64) -> f32 {
        param as f32
    }
}
impl Param for f64 {
    #[inline(always)]
    fn from_param(param: f64) -> f64 {
        param
    }
}

/// A reduction of elements of type `T`.
pub trait Fold<T: Item>: 'static {
    /// The accumulator of elements.
    type Lane: Copy;
    /// The accumulator of lanes.
    type Word: Word;
    /// A value each step is given: a shift or an exponent.
    type Aux: Param;
    /// The empty lane.
    const LANE: Self::Lane;
    /// The empty word.
    const WORD: Self::Word;
    /// Whether a version for 512-bit vectors pays: the reductions of training steps.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "only levels of x86-64 ask"))]
    const HOT: bool;
    fn step<I: Isa>(lane: Self::Lane, x: T, aux: Self::Aux) -> Self::Lane;
    fn merge(a: Self::Lane, b: Self::Lane) -> Self::Lane;
    fn absorb(word: Self::Word, lane: Self::Lane) -> Self::Word;
    fn join(a: Self::Word, b: Self::Word) -> Self::Word;
}

/// Wide types and their words.
pub trait Absorbed: Wide {
    type Word: Word + Wide;
    fn word(self) -> Self::Word;
}
impl Absorbed for f32 {
    type Word = f64;
    #[inline(always)]
    fn word(self) -> f64 {
        self as f64
    }
}
impl Absorbed for f64 {
    type Word = f64;
    #[inline(always)]
    fn word(self) -> f64 {
        self
    }
}
impl Absorbed for i64 {
    type Word = i64;
    #[inline(always)]
    fn word(self) -> i64 {
        self
    }
}

/// Operations of float folds beyond [`Wide`].
pub trait Float: Absorbed<Word = f64> + Param {
    fn sub(self, b: Self) -> Self;
    fn abs(self) -> Self;
    fn fma<I: Isa>(self, b: Self, c: Self) -> Self;
    fn exp<I: Isa>(self) -> Self;
}
impl Float for f32 {
    #[inline(always)]
    fn sub(self, b: f32) -> f32 {
        self - b
    }
    #[inline(always)]
    fn abs(self) -> f32 {
        f32::abs(self)
    }
    #[inline(always)]
    fn fma<I: Isa>(self, b: f32, c: f32) -> f32 {
        lane::fma::<I>(self, b, c)
    }
    #[inline(always)]
    fn exp<I: Isa>(self) -> f32 {
        lane::exp::<I>(self)
    }
}
impl Float for f64 {
    #[inline(always)]
    fn sub(self, b: f64) -> f64 {
        self - b
    }
    #[inline(always)]
    fn abs(self) -> f64 {
        f64::abs(self)
    }
    #[inline(always)]
    fn fma<I: Isa>(self, b: f64, c: f64) -> f64 {
        lane::fma64::<I>(self, b, c)
    }
    #[inline(always)]
    fn exp<I: Isa>(self) -> f64 {
        f64::exp(self)
    }
}

/// An element of a floating type.
pub trait FloatItem: Item<Wide: Float> {}
impl<T: Item<Wide: Float>> FloatItem for T {}

/// A reduction whose lanes and words combine by one operation of [`Wide`], applied to a term per element.
macro_rules! folds {
    ($($(#[$doc:meta])* $name:ident: $bound:path, $aux:ty, $hot:literal, $empty:ident, $combine:ident,
        |$lane:ident, $x:ident, $p:ident| $step:expr;)*) => {$(
        $(#[$doc])*
        pub struct $name;
        impl<T: Item<Wide: $bound>> Fold<T> for $name {
            type Lane = T::Wide;
            type Word = <T::Wide as Absorbed>::Word;
            type Aux = $aux;
            const LANE: T::Wide = <T::Wide as Wide>::$empty;
            const WORD: Self::Word = <Self::Word as Wide>::$empty;
            const HOT: bool = $hot;
            #[inline(always)]
            fn step<I: Isa>($lane: T::Wide, x: T, $p: $aux) -> T::Wide {
                let $x = x.widen();
                $step
            }
            #[inline(always)]
            fn merge(a: T::Wide, b: T::Wide) -> T::Wide {
                a.$combine(b)
            }
            #[inline(always)]
            fn absorb(word: Self::Word, lane: T::Wide) -> Self::Word {
                word.$combine(lane.word())
            }
            #[inline(always)]
            fn join(a: Self::Word, b: Self::Word) -> Self::Word {
                a.$combine(b)
            }
        }
    )*};
}

folds! {
    Sum: Absorbed, (), true, ZERO, add, |lane, x, _p| lane.add(x);
    Prod: Absorbed, (), false, ONE, mul, |lane, x, _p| lane.mul(x);
    Max: Absorbed, (), true, LOWEST, larger, |lane, x, _p| lane.larger(x);
    Min: Absorbed, (), true, HIGHEST, smaller, |lane, x, _p| lane.smaller(x);
    SumSquares: Float, (), true, ZERO, add, |lane, x, _p| x.fma::<I>(x, lane);
    SumAbs: Float, (), false, ZERO, add, |lane, x, _p| lane.add(x.abs());
    MaxAbs: Float, (), false, ZERO, larger, |lane, x, _p| lane.larger(x.abs());
    MinAbs: Float, (), false, HIGHEST, smaller, |lane, x, _p| lane.smaller(x.abs());
    /// The sum of magnitudes to a power.
    SumPowers: Float, f64, false, ZERO, add, |lane, x, p| lane.add(T::Wide::from_param(x.abs().word().powf(p)));
    /// The sum of squared distances from a centre.
    SumSquaredDistance: Float, T::Wide, true, ZERO, add, |lane, x, p| {
        let d = x.sub(p);
        d.fma::<I>(d, lane)
    };
    /// The sum of exponentials of the elements minus a shift.
    SumExp: Float, T::Wide, true, ZERO, add, |lane, x, p| lane.add(x.sub(p).exp::<I>());
}

/// Number of nonzero elements. NaN is nonzero.
pub struct Count;
impl<T: Item> Fold<T> for Count {
    type Lane = u32;
    type Word = i64;
    type Aux = ();
    const LANE: u32 = 0;
    const WORD: i64 = 0;
    const HOT: bool = false;
    #[inline(always)]
    fn step<I: Isa>(lane: u32, x: T, _: ()) -> u32 {
        lane + (x.widen() != T::Wide::ZERO) as u32
    }
    #[inline(always)]
    fn merge(a: u32, b: u32) -> u32 {
        a + b
    }
    #[inline(always)]
    fn absorb(word: i64, lane: u32) -> i64 {
        word + lane as i64
    }
    #[inline(always)]
    fn join(a: i64, b: i64) -> i64 {
        a + b
    }
}
