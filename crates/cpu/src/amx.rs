//! Choice of the bf16 product kernel on x86-64, and set-up of AMX tiles.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Computation of bf16 products if AVX-512 is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Bf16Path {
    /// Widened to `f32` when packed.
    Widen = 1,
    /// AVX512-BF16.
    Dot = 2,
    /// AMX tiles.
    Amx = 3,
}

static PATH: AtomicU8 = AtomicU8::new(0);

/// The best path of this machine; `RUSHLIGHT_CPU_AMX=0` rules AMX out.
#[inline(always)]
pub(crate) fn bf16_path() -> Bf16Path {
    match PATH.load(Relaxed) {
        3 => Bf16Path::Amx,
        2 => Bf16Path::Dot,
        1 => Bf16Path::Widen,
        _ => detect(),
    }
}

#[cold]
fn detect() -> Bf16Path {
    let wanted = std::env::var_os("RUSHLIGHT_CPU_AMX").is_none_or(|v| v != "0");
    let path = available(wanted);
    PATH.store(path as u8, Relaxed);
    path
}

fn available(amx_wanted: bool) -> Bf16Path {
    if !is_x86_feature_detected!("avx512bf16") {
        Bf16Path::Widen
    } else if amx_wanted && amx_granted() {
        Bf16Path::Amx
    } else {
        Bf16Path::Dot
    }
}

/// Forces a path for the whole process, clamped to what the machine has. For tests.
pub fn force_bf16_path(path: Bf16Path) {
    PATH.store(path.min(available(true)) as u8, Relaxed);
}

/// Whether the chip has AMX for bf16 and the system lets us use it.
fn amx_granted() -> bool {
    const TILES_AND_BF16: u32 = 1 << 24 | 1 << 22;
    let has = __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & TILES_AND_BF16 == TILES_AND_BF16;
    has && permission()
}

/// Linux grants the large tile state on request, to the whole process.
#[cfg(target_os = "linux")]
fn permission() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: the call takes two numbers and changes nothing but the permission.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn permission() -> bool {
    false
}

#[repr(C, align(64))]
struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// All eight tiles 16 rows of 64 bytes.
static CONFIG: TileConfig = TileConfig {
    palette: 1,
    start_row: 0,
    reserved: [0; 14],
    row_bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
    rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
};

/// Runs `work` on this thread with all eight tiles configured and zeroed.
///
/// They are released after it, so that the system has no tile state to save between tasks.
///
/// # Safety
/// [`bf16_path`] is [`Bf16Path::Amx`].
#[inline(always)]
pub(crate) unsafe fn with_tiles(work: impl FnOnce()) {
    // SAFETY: AMX was granted, and the configuration is a valid one.
    unsafe {
        asm!("ldtilecfg [{}]", in(reg) &CONFIG, options(nostack, readonly));
        work();
        asm!("tilerelease", options(nostack, nomem));
    }
}

/// 32 × 32 sums in tiles 0 to 3: two of 16 rows, each 32 columns wide. Between these calls only they and the products
/// may use tiles.
pub(crate) mod sums {
    use std::arch::asm;

    /// Sets the sums to zero.
    ///
    /// # Safety
    /// For all three: within [`with_tiles`](super::with_tiles).
    #[inline(always)]
    pub(crate) unsafe fn zero() {
        // SAFETY: the tiles are at hand.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                options(nostack, nomem)
            );
        }
    }

    /// Reads the sums; `row` is the row stride in bytes.
    ///
    /// # Safety
    /// Both pointers are valid for 16 rows of 32.
    #[inline(always)]
    pub(crate) unsafe fn load([upper, lower]: [*const f32; 2], row: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            asm!(
                "tileloadd tmm0, [{upper} + {row}*1]",
                "tileloadd tmm1, [{upper} + {row}*1 + 64]",
                "tileloadd tmm2, [{lower} + {row}*1]",
                "tileloadd tmm3, [{lower} + {row}*1 + 64]",
                upper = in(reg) upper, lower = in(reg) lower, row = in(reg) row,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                options(nostack, readonly)
            );
        }
    }

    /// Writes the sums.
    ///
    /// # Safety
    /// As [`load`].
    #[inline(always)]
    pub(crate) unsafe fn store([upper, lower]: [*mut f32; 2], row: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            asm!(
                "tilestored [{upper} + {row}*1], tmm0",
                "tilestored [{upper} + {row}*1 + 64], tmm1",
                "tilestored [{lower} + {row}*1], tmm2",
                "tilestored [{lower} + {row}*1 + 64], tmm3",
                upper = in(reg) upper, lower = in(reg) lower, row = in(reg) row,
                options(nostack)
            );
        }
    }
}
