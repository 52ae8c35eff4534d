//! Which instruction set the kernels run with, chosen once at run time.
//!
//! A kernel is written once as an `#[inline(always)]` function generic over [`Isa`] and compiled three times by
//! [`multiversion!`](crate::multiversion): the compiler vectorises it for each level. Parallel loops stay outside: a closure does
//! not inherit the features of the function it is written in, so kernels are called *from* the closure.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// A level of the x86-64 ladder. `Portable` is whatever the build targets (SSE2, NEON, …).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// No run-time feature is assumed.
    Portable = 1,
    /// x86-64-v3: AVX2, FMA, F16C, BMI.
    Avx2 = 2,
    /// x86-64-v4: AVX-512 F, BW, DQ, VL, CD.
    Avx512 = 3,
}

impl Level {
    /// All levels, lowest first.
    pub const ALL: [Level; 3] = [Level::Portable, Level::Avx2, Level::Avx512];

    /// The name `RUSHLIGHT_CPU_ISA` takes.
    pub fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        }
    }
}

static LEVEL: AtomicU8 = AtomicU8::new(0);

/// What this machine can do.
pub fn detected() -> Level {
    #[cfg(target_arch = "x86_64")]
    {
        let v3 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("bmi2");
        let v4 = v3
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512cd");
        if v4 {
            return Level::Avx512;
        }
        if v3 {
            return Level::Avx2;
        }
    }
    Level::Portable
}

/// The level in use: the highest the machine has, or a lower one named by `RUSHLIGHT_CPU_ISA`.
#[inline(always)]
pub fn level() -> Level {
    match LEVEL.load(Relaxed) {
        3 => Level::Avx512,
        2 => Level::Avx2,
        1 => Level::Portable,
        _ => init(),
    }
}

#[cold]
fn init() -> Level {
    let best = detected();
    let level = match std::env::var("RUSHLIGHT_CPU_ISA").ok().as_deref() {
        None | Some("") => best,
        Some(name) => match Level::ALL.into_iter().find(|l| l.name() == name) {
            Some(wanted) if wanted <= best => wanted,
            Some(wanted) => {
                eprintln!("rushlight: this machine has no {}; using {}", wanted.name(), best.name());
                best
            }
            None => {
                eprintln!(
                    "rushlight: RUSHLIGHT_CPU_ISA={name} is unknown (portable, avx2, avx512); using {}",
                    best.name()
                );
                best
            }
        },
    };
    LEVEL.store(level as u8, Relaxed);
    level
}

/// Forces a level for the whole process; a level the machine lacks is clamped to what it has. For tests.
pub fn force(level: Level) {
    LEVEL.store(level.min(detected()) as u8, Relaxed);
}

/// The instruction set a kernel is being compiled for.
pub trait Isa: Copy + Send + Sync + 'static {
    /// Whether `mul_add` is one instruction; where it is not, it would be a library call per element.
    const FMA: bool;
    /// How many `f32` fit a vector register.
    const LANES: usize;
}

/// No feature assumed.
#[derive(Clone, Copy)]
pub struct Portable;
/// AVX2 and FMA.
#[derive(Clone, Copy)]
pub struct Avx2;
/// AVX-512.
#[derive(Clone, Copy)]
pub struct Avx512;

impl Isa for Portable {
    const FMA: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));
    const LANES: usize = 4;
}
impl Isa for Avx2 {
    const FMA: bool = true;
    const LANES: usize = 8;
}
impl Isa for Avx512 {
    const FMA: bool = true;
    const LANES: usize = 16;
}

/// Calls `$kernel::<…, I>($args)`, an `#[inline(always)]` function whose last generic parameter is the [`Isa`], compiled for the
/// level in use.
///
/// With `wide when CONDITION` (a constant of the generic parameters) the AVX-512 version exists only where the condition holds, and AVX2
/// serves the rest: kernels of many ops and dtypes would take minutes to compile otherwise.
///
/// The call is `unsafe` exactly as far as the kernel is: the feature check is made here.
#[macro_export]
macro_rules! multiversion {
    (
        $(#[$meta:meta])*
        $vis:vis unsafe fn $name:ident $(<$($g:ident $(: $bound:path)?),*>)? ($($arg:ident : $ty:ty),* $(,)?) $(-> $ret:ty)? = $kernel:ident
        $(, wide when $wide:expr)?;
    ) => {
        $(#[$meta])*
        #[inline]
        $vis unsafe fn $name $(<$($g $(: $bound)?),*>)? ($($arg: $ty),*) $(-> $ret)? {
            // Apart from the dispatch, which is inlined wherever the kernel is called.
            unsafe fn v1 $(<$($g $(: $bound)?),*>)? ($($arg: $ty),*) $(-> $ret)? {
                unsafe { $kernel::<$($($g,)*)? $crate::isa::Portable>($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
                unsafe fn v4 $(<$($g $(: $bound)?),*>)? ($($arg: $ty),*) $(-> $ret)? {
                    unsafe { $kernel::<$($($g,)*)? $crate::isa::Avx512>($($arg),*) }
                }
                #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
                unsafe fn v3 $(<$($g $(: $bound)?),*>)? ($($arg: $ty),*) $(-> $ret)? {
                    unsafe { $kernel::<$($($g,)*)? $crate::isa::Avx2>($($arg),*) }
                }
                // SAFETY: `level()` never exceeds what the machine was found to have.
                match $crate::isa::level() {
                    $crate::isa::Level::Portable => {}
                    $crate::isa::Level::Avx2 => return unsafe { v3 $(::<$($g),*>)? ($($arg),*) },
                    $crate::isa::Level::Avx512 => {
                        // The condition is a constant and all of it: rustc then instantiates one branch only.
                        return if const { true $(&& $wide)? } {
                            unsafe { v4 $(::<$($g),*>)? ($($arg),*) }
                        } else {
                            unsafe { v3 $(::<$($g),*>)? ($($arg),*) }
                        };
                    }
                }
            }
            unsafe { v1 $(::<$($g),*>)? ($($arg),*) }
        }
    };
}
