//! cuFFT: its search path.

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
            "cuFFT",
            "cufft",
            &["libcufft.so.12", "libcufft.so.11", "libcufft.so", "cufft64_12.dll", "cufft64_11.dll"],
            "Install the CUDA toolkit or the Python package nvidia-cufft and name its directory in RUSHLIGHT_CUDA_PATH; \
             without it Fourier transforms are computed on the CPU.",
        )
    };
    LIBRARY.get_or_init(open).as_ref().map_err(Clone::clone)
}
