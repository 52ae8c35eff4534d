//! hipFFT: its search path.

use crate::SEARCH;
use rushlight_core::Result;
use rushlight_gpu::vendor::fft::FftLibrary;
use std::sync::OnceLock;

/// The library, or the reason why it is missing.
pub fn get() -> Result<&'static FftLibrary> {
    static LIBRARY: OnceLock<Result<FftLibrary>> = OnceLock::new();
    let open = || {
        FftLibrary::open(
            &SEARCH,
            "hipFFT",
            "hipfft",
            &["libhipfft.so.0", "libhipfft.so"],
            "Install hipFFT, a part of ROCm, or name its directory in RUSHLIGHT_HIP_PATH; without it Fourier transforms \
             are computed on the CPU.",
        )
    };
    LIBRARY.get_or_init(open).as_ref().map_err(Clone::clone)
}
