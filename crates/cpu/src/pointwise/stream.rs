//! Non-temporal stores for outputs larger than the caches, which save reading each line before writing it.

/// Copies `bytes` bytes so that the destination does not enter the caches. A [`fence`] must follow before others read
/// it.
///
/// # Safety
/// `src` is readable and `dst` writable for `bytes` bytes; they do not overlap.
pub(crate) unsafe fn copy_past_cache(src: *const u8, dst: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
        // SAFETY: SSE2 is part of x86-64; aligned stores stay between head and tail.
        unsafe {
            let head = dst.align_offset(64).min(bytes);
            src.copy_to_nonoverlapping(dst, head);
            let body = (bytes - head) / 64 * 64;
            for at in (head..head + body).step_by(16) {
                _mm_stream_si128(dst.add(at).cast(), _mm_loadu_si128(src.add(at).cast()));
            }
            let tail = head + body;
            src.add(tail).copy_to_nonoverlapping(dst.add(tail), bytes - tail);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's.
    unsafe {
        src.copy_to_nonoverlapping(dst, bytes)
    }
}

/// Orders the stores of [`copy_past_cache`] before later ones.
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence()
    }
}
