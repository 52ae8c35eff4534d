//! Instruction set of the kernels, chosen once at run time.
//!
//! A kernel is written once as an `#[inline(always)]` function generic over [`Isa`] and compiled by
//! [`multiversion!`](crate::multiversion) for each level of the architecture: three times for x86-64, and twice for
//! ARM, where every machine has NEON and the levels above it differ only in dedicated kernels (`gemm/arm`). Parallel
//! loops stay outside: a closure does not inherit the features of the function that contains it, so kernels are called
//! *from* the closure.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// A level of the architecture's ladder. `Portable` is whatever the build targets (SSE2, NEON, …), without intrinsics
/// of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// No run-time feature is assumed.
    Portable = 1,
    /// x86-64-v3: AVX2, FMA, F16C, BMI.
    #[cfg(target_arch = "x86_64")]
    Avx2 = 2,
    /// x86-64-v4: AVX-512 F, BW, DQ, VL, CD.
    #[cfg(target_arch = "x86_64")]
    Avx512 = 3,
    /// ARMv8.0: NEON intrinsics. Every 64-bit ARM has them.
    #[cfg(target_arch = "aarch64")]
    Neon = 2,
    /// ARMv8.2 with dot products of bytes (Neoverse N1, Apple M1).
    #[cfg(target_arch = "aarch64")]
    DotProd = 3,
    /// ARMv8.6: matrix products of bf16 and of bytes (Neoverse V1, N2 and V2, which is Grace; Apple M2).
    #[cfg(target_arch = "aarch64")]
    Bf16 = 4,
}

impl Level {
    /// All levels of this architecture, lowest first.
    #[cfg(target_arch = "x86_64")]
    pub const ALL: [Level; 3] = [Level::Portable, Level::Avx2, Level::Avx512];
    /// All levels of this architecture, lowest first.
    #[cfg(target_arch = "aarch64")]
    pub const ALL: [Level; 4] = [Level::Portable, Level::Neon, Level::DotProd, Level::Bf16];
    /// All levels of this architecture, lowest first.
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub const ALL: [Level; 1] = [Level::Portable];

    /// The name used by `RUSHLIGHT_CPU_ISA`.
    pub fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
            #[cfg(target_arch = "aarch64")]
            Level::Neon => "neon",
            #[cfg(target_arch = "aarch64")]
            Level::DotProd => "dotprod",
            #[cfg(target_arch = "aarch64")]
            Level::Bf16 => "bf16",
        }
    }
}

static LEVEL: AtomicU8 = AtomicU8::new(0);

/// The best level of this machine.
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
        Level::Portable
    }
    #[cfg(target_arch = "aarch64")]
    {
        use std::arch::is_aarch64_feature_detected as has;
        if !has!("dotprod") {
            Level::Neon
        } else if !(has!("bf16") && has!("i8mm")) {
            Level::DotProd
        } else {
            Level::Bf16
        }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        Level::Portable
    }
}

/// The level in use: the highest of the machine, or a lower one named by `RUSHLIGHT_CPU_ISA`.
#[inline(always)]
pub fn level() -> Level {
    match LEVEL.load(Relaxed) {
        #[cfg(target_arch = "x86_64")]
        3 => Level::Avx512,
        #[cfg(target_arch = "x86_64")]
        2 => Level::Avx2,
        #[cfg(target_arch = "aarch64")]
        4 => Level::Bf16,
        #[cfg(target_arch = "aarch64")]
        3 => Level::DotProd,
        #[cfg(target_arch = "aarch64")]
        2 => Level::Neon,
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
                rushlight_core::warn!("this machine has no {}; using {}", wanted.name(), best.name());
                best
            }
            None => {
                let known = Level::ALL.iter().map(|l| l.name()).collect::<Vec<_>>().join(", ");
                rushlight_core::warn!("RUSHLIGHT_CPU_ISA={name} is unknown ({known}); using {}", best.name());
                best
            }
        },
    };
    LEVEL.store(level as u8, Relaxed);
    level
}

/// Forces a level for the whole process; a level the machine lacks is lowered to the best it has. For tests.
pub fn force(level: Level) {
    LEVEL.store(level.min(detected()) as u8, Relaxed);
}

/// The instruction set a kernel is being compiled for.
pub trait Isa: Copy + Send + Sync + 'static {
    /// Whether `mul_add` is one instruction; otherwise it would be a library call per element.
    const FMA: bool;
    /// `f32` lanes of a vector register.
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

/// NEON, as pairs of registers: 16 of them, as AVX2 has, so that kernels fit both register files.
#[derive(Clone, Copy)]
pub struct Neon;

impl Isa for Neon {
    const FMA: bool = true;
    const LANES: usize = 8;
}
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

/// Calls `$kernel::<…, I>($args)`, an `#[inline(always)]` function whose last generic parameter is the [`Isa`],
/// compiled for the level in use.
///
/// With `wide when CONDITION` (a constant of the generic parameters) the AVX-512 version exists only where the
/// condition holds, and AVX2 serves the rest: kernels of many ops and dtypes would take minutes to compile otherwise.
///
/// The call is `unsafe` only if the kernel is: the feature check happens here.
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
            // Separate from the dispatch, which is inlined at every call of the kernel.
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
                // SAFETY: `level()` never exceeds the detected level.
                match $crate::isa::level() {
                    $crate::isa::Level::Portable => {}
                    $crate::isa::Level::Avx2 => return unsafe { v3 $(::<$($g),*>)? ($($arg),*) },
                    $crate::isa::Level::Avx512 => {
                        // The condition is a constant, so rustc instantiates only one branch.
                        return if const { true $(&& $wide)? } {
                            unsafe { v4 $(::<$($g),*>)? ($($arg),*) }
                        } else {
                            unsafe { v3 $(::<$($g),*>)? ($($arg),*) }
                        };
                    }
                }
            }
            #[cfg(target_arch = "aarch64")]
            {
                unsafe fn neon $(<$($g $(: $bound)?),*>)? ($($arg: $ty),*) $(-> $ret)? {
                    unsafe { $kernel::<$($($g,)*)? $crate::isa::Neon>($($arg),*) }
                }
                if $crate::isa::level() != $crate::isa::Level::Portable {
                    return unsafe { neon $(::<$($g),*>)? ($($arg),*) };
                }
            }
            unsafe { v1 $(::<$($g),*>)? ($($arg),*) }
        }
    };
}
