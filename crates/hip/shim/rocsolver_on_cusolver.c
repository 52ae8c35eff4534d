// rocSOLVER's routines and rocBLAS's triangular systems by cuSOLVER and cuBLAS. A handle of rocBLAS is cuBLAS's; its
// stream says where a routine goes.
#include "forward.h"

LIBRARY(cuda, "libcuda.so.1", "libcuda.so")
LIBRARY(blas, "libcublas.so.13", "libcublas.so.12", "libcublas.so")
LIBRARY(solver, "libcusolver.so.12", "libcusolver.so.11", "libcusolver.so")

// cuSOLVER's handle on the stream of cuBLAS's.
static int begin(Handle handle, Handle* own, Handle* stream) {
    static Handle made;
    int code = made ? 0 : CALL(solver, "cusolverDnCreate", (Handle*), &made);
    if (!code) code = CALL(blas, "cublasGetStream_v2", (Handle, Handle*), handle, stream);
    if (!code) code = CALL(solver, "cusolverDnSetStream", (Handle, Handle), made, *stream);
    return *own = made, code;
}
// Memory of the device for a routine, with an integer after it for what nobody asks to know. Given back when the
// routine is done.
static int take(size_t bytes, Address* to, Address* word) {
    bytes = (bytes + 7) / 8 * 8;
    int code = CALL(cuda, "cuMemAlloc_v2", (Address*, size_t), to, bytes + 8);
    return *word = *to + bytes, code;
}
static int give(int code, Address at, Handle stream) {
    int waited = CALL(cuda, "cuStreamSynchronize", (Handle), stream);
    int freed = CALL(cuda, "cuMemFree_v2", (Address), at);
    return code ? code : waited ? waited : freed;
}
static int fill_mode(int fill) { return fill == 121; }

// `ASK` sets the elements that the routine `RUN` wants; the latter sees them at `room`, and an integer at `word`.
#define ROUTINE(T, ASK, RUN)                                                        \
    Handle own, stream;                                                             \
    Address room, word;                                                             \
    int elements = 0, code = begin(handle, &own, &stream);                          \
    if (!code) code = ASK;                                                          \
    if (!code) code = take((size_t)elements * sizeof(T), &room, &word);             \
    return code ? code : give(RUN, room, stream);

int rocsolver_get_version_string(char* to, size_t size) { return solver() ? snprintf(to, size, "3.27.0"), 0 : 4; }

#define ROUTINES(l, L, T)                                                                                                                                    \
    int rocsolver_##l##potrf(Handle handle, int fill, int n, Address a, int lda, Address info) {                                                              \
        ROUTINE(T, CALL(solver, "cusolverDn" #L "potrf_bufferSize", (Handle, int, int, Address, int, int*), own, fill_mode(fill), n, a, lda, &elements),      \
                CALL(solver, "cusolverDn" #L "potrf", (Handle, int, int, Address, int, Address, int, Address), own, fill_mode(fill), n, a, lda, room,         \
                     elements, info))                                                                                                                        \
    }                                                                                                                                                        \
    int rocsolver_##l##getrf(Handle handle, int m, int n, Address a, int lda, Address swaps, Address info) {                                                  \
        ROUTINE(T, CALL(solver, "cusolverDn" #L "getrf_bufferSize", (Handle, int, int, Address, int, int*), own, m, n, a, lda, &elements),                    \
                CALL(solver, "cusolverDn" #L "getrf", (Handle, int, int, Address, int, Address, Address, Address), own, m, n, a, lda, room, swaps, info))     \
    }                                                                                                                                                        \
    int rocsolver_##l##getrs(Handle handle, int operation, int n, int columns, Address a, int lda, Address swaps, Address b, int ldb) {                       \
        ROUTINE(T, 0,                                                                                                                                        \
                CALL(solver, "cusolverDn" #L "getrs", (Handle, int, int, int, Address, int, Address, Address, int, Address), own, operation - 111, n,         \
                     columns, a, lda, swaps, b, ldb, word))                                                                                                  \
    }                                                                                                                                                        \
    int rocsolver_##l##geqrf(Handle handle, int m, int n, Address a, int lda, Address tau) {                                                                  \
        ROUTINE(T, CALL(solver, "cusolverDn" #L "geqrf_bufferSize", (Handle, int, int, Address, int, int*), own, m, n, a, lda, &elements),                    \
                CALL(solver, "cusolverDn" #L "geqrf", (Handle, int, int, Address, int, Address, Address, int, Address), own, m, n, a, lda, tau, room,         \
                     elements, word))                                                                                                                        \
    }                                                                                                                                                        \
    int rocsolver_##l##orgqr(Handle handle, int m, int n, int k, Address a, int lda, Address tau) {                                                           \
        ROUTINE(T, CALL(solver, "cusolverDn" #L "orgqr_bufferSize", (Handle, int, int, int, Address, int, Address, int*), own, m, n, k, a, lda, tau,          \
                        &elements),                                                                                                                          \
                CALL(solver, "cusolverDn" #L "orgqr", (Handle, int, int, int, Address, int, Address, Address, int, Address), own, m, n, k, a, lda, tau,       \
                     room, elements, word))                                                                                                                  \
    }                                                                                                                                                        \
    int rocsolver_##l##syevd(Handle handle, int vectors, int fill, int n, Address a, int lda, Address values, Address beside, Address info) {                 \
        if ((vectors != 211 && vectors != 213) || !beside) return 4;                                                                                         \
        ROUTINE(T, CALL(solver, "cusolverDn" #L "syevd_bufferSize", (Handle, int, int, int, Address, int, Address, int*), own, vectors == 211,                \
                        fill_mode(fill), n, a, lda, values, &elements),                                                                                      \
                CALL(solver, "cusolverDn" #L "syevd", (Handle, int, int, int, Address, int, Address, Address, int, Address), own, vectors == 211,             \
                     fill_mode(fill), n, a, lda, values, room, elements, info))                                                                              \
    }                                                                                                                                                        \
    int rocsolver_##l##gesvd(Handle handle, int left, int right, int m, int n, Address a, int lda, Address values, Address u, int ldu, Address v, int ldv,    \
                             Address beside, int mode, Address info) {                                                                                       \
        static const signed char jobs[] = {'A', 'S', 'O', 'N'};                                                                                              \
        if (left < 191 || left > 194 || right < 191 || right > 194 || (mode != 201 && mode != 202)) return 4;                                                 \
        ROUTINE(T, CALL(solver, "cusolverDn" #L "gesvd_bufferSize", (Handle, int, int, int*), own, m, n, &elements),                                          \
                CALL(solver, "cusolverDn" #L "gesvd",                                                                                                        \
                     (Handle, signed char, signed char, int, int, Address, int, Address, Address, int, Address, int, Address, int, Address, Address), own,    \
                     jobs[left - 191], jobs[right - 191], m, n, a, lda, values, u, ldu, v, ldv, room, elements, beside, info))                               \
    }                                                                                                                                                        \
    int rocblas_##l##trsm(Handle handle, int side, int fill, int operation, int diagonal, int m, int n, const void* alpha, Address a, int lda, Address b,     \
                          int ldb) {                                                                                                                         \
        return CALL(blas, "cublas" #L "trsm_v2", (Handle, int, int, int, int, int, int, const void*, Address, int, Address, int), handle, side - 141,         \
                    fill_mode(fill), operation - 111, diagonal - 131, m, n, alpha, a, lda, b, ldb);                                                          \
    }                                                                                                                                                        \
    int rocblas_##l##trsm_batched(Handle handle, int side, int fill, int operation, int diagonal, int m, int n, const void* alpha, Address a, int lda,        \
                                  Address b, int ldb, int count) {                                                                                           \
        return CALL(blas, "cublas" #L "trsmBatched", (Handle, int, int, int, int, int, int, const void*, Address, int, Address, int, int), handle, side - 141, \
                    fill_mode(fill), operation - 111, diagonal - 131, m, n, alpha, a, lda, b, ldb, count);                                                   \
    }
ROUTINES(s, S, float)
ROUTINES(d, D, double)
