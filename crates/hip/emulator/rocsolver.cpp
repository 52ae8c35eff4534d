// rocSOLVER's routines, as far as the engine calls them, by the system's LAPACK (liblapack.so.3), and rocBLAS's
// triangular systems in the plainest way. Without LAPACK the library says that it does not work, and factorisations are
// the CPU's.
#include "runtime.h"
#include <algorithm>
#include <dlfcn.h>
#include <string>

namespace {
void* lapack(const char* name) {
    static void* library = dlopen("liblapack.so.3", RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, name) : nullptr;
}

// LAPACK's routine for floats or doubles. A status of ours if there is none.
template <class T, class... A> int call(const char* routine, A... arguments) {
    // Fortran wants the lengths of texts after all else; routines without texts do not look there.
    auto found = (void (*)(A..., size_t, size_t))lapack((std::string(sizeof(T) == 8 ? "d" : "s") + routine + "_").c_str());
    if (!found) return LAUNCH_FAILED;
    return found(arguments..., 1, 1), (int)SUCCESS;
}

// The same of a routine that says how much room it wants if asked with -1.
template <class T, class Run> int with_room(Run run) {
    T best = 0;
    int ask = -1;
    if (int code = run(&best, &ask)) return code;
    int size = std::max(1, (int)best);
    std::vector<T> room(size);
    return run(room.data(), &size);
}

char* upper_or_lower(int fill) { return (char*)(fill == 121 ? "U" : "L"); }

template <class T> int potrf(void* handle, int fill, int n, T* a, int lda, int* info) {
    return submit(blas_stream(handle), [=]() mutable { return call<T>("potrf", upper_or_lower(fill), &n, a, &lda, info); });
}
template <class T> int getrf(void* handle, int m, int n, T* a, int lda, int* swaps, int* info) {
    return submit(blas_stream(handle), [=]() mutable { return call<T>("getrf", &m, &n, a, &lda, swaps, info); });
}
template <class T> int getrs(void* handle, int operation, int n, int columns, T* a, int lda, int* swaps, T* b, int ldb) {
    return submit(blas_stream(handle), [=]() mutable {
        int info = 0;
        return call<T>("getrs", (char*)(operation == 111 ? "N" : "T"), &n, &columns, a, &lda, swaps, b, &ldb, &info);
    });
}
template <class T> int geqrf(void* handle, int m, int n, T* a, int lda, T* tau) {
    return submit(blas_stream(handle), [=]() mutable {
        int info = 0;
        return with_room<T>([&](T* room, int* size) { return call<T>("geqrf", &m, &n, a, &lda, tau, room, size, &info); });
    });
}
template <class T> int orgqr(void* handle, int m, int n, int k, T* a, int lda, T* tau) {
    return submit(blas_stream(handle), [=]() mutable {
        int info = 0;
        return with_room<T>([&](T* room, int* size) { return call<T>("orgqr", &m, &n, &k, a, &lda, tau, room, size, &info); });
    });
}
template <class T> int syevd(void* handle, int vectors, int fill, int n, T* a, int lda, T* values, T* beside, int* info) {
    if ((vectors != 211 && vectors != 213) || (n > 1 && !beside)) return 4;
    return submit(blas_stream(handle), [=]() mutable {
        // As LAPACK's manual says.
        int integers = 5 * n + 3;
        std::vector<int> room_of_integers(integers);
        return with_room<T>([&](T* room, int* size) {
            return call<T>("syevd", (char*)(vectors == 211 ? "V" : "N"), upper_or_lower(fill), &n, a, &lda, values, room, size, room_of_integers.data(), &integers, info);
        });
    });
}
template <class T> int gesvd(void* handle, int left, int right, int m, int n, T* a, int lda, T* values, T* u, int ldu, T* v, int ldv, T* beside, int mode, int* info) {
    if (left < 191 || left > 194 || right < 191 || right > 194 || (mode != 201 && mode != 202) || !beside) return 4;
    return submit(blas_stream(handle), [=]() mutable {
        const char* jobs[] = {"A", "S", "O", "N"};
        return with_room<T>([&](T* room, int* size) {
            return call<T>("gesvd", (char*)jobs[left - 191], (char*)jobs[right - 191], &m, &n, a, &lda, values, u, &ldu, v, &ldv, room, size, info);
        });
    });
}

// X A = B, column after column of X in place of B's.
template <class T> void solve(bool upper, bool unit, int m, int n, const T* a, int lda, T* b, int ldb) {
    for (int step = 0; step < n; step++) {
        int j = upper ? step : n - 1 - step;
        for (int i = 0; i < m; i++) {
            double x = b[(int64_t)j * ldb + i];
            for (int k = upper ? 0 : j + 1; k < (upper ? j : n); k++) x -= (double)b[(int64_t)k * ldb + i] * a[(int64_t)j * lda + k];
            b[(int64_t)j * ldb + i] = (T)(unit ? x : x / a[(int64_t)j * lda + j]);
        }
    }
}
template <class T>
int trsm(void* handle, int side, int fill, int operation, int diagonal, int m, int n, const T* alpha, const T* const* a, int lda, T* const* b, int ldb, int count) {
    if (side != 142 || operation != 111 || *alpha != 1 || (fill != 121 && fill != 122) || (diagonal != 131 && diagonal != 132)) return 4;
    return submit(blas_stream(handle), [=] {
        for (int i = 0; i < count; i++) solve(fill == 121, diagonal == 132, m, n, a[i], lda, b[i], ldb);
        return (int)SUCCESS;
    });
}
template <class T>
int trsm_one(void* handle, int side, int fill, int operation, int diagonal, int m, int n, const T* alpha, const T* a, int lda, T* b, int ldb) {
    if (side != 142 || operation != 111 || *alpha != 1) return 4;
    return submit(blas_stream(handle), [=] { return solve(fill == 121, diagonal == 132, m, n, a, lda, b, ldb), (int)SUCCESS; });
}
}  // namespace

API int rocsolver_get_version_string(char* to, size_t size) {
    if (!lapack("sgetrf_")) return 4;
    return snprintf(to, size, "3.27.0"), 0;
}
#define ROUTINES(letter, T)                                                                                                                                  \
    API int rocsolver_##letter##potrf(void* h, int fill, int n, T* a, int lda, int* info) { return potrf(h, fill, n, a, lda, info); }                         \
    API int rocsolver_##letter##getrf(void* h, int m, int n, T* a, int lda, int* swaps, int* info) { return getrf(h, m, n, a, lda, swaps, info); }            \
    API int rocsolver_##letter##getrs(void* h, int op, int n, int columns, T* a, int lda, int* swaps, T* b, int ldb) {                                        \
        return getrs(h, op, n, columns, a, lda, swaps, b, ldb);                                                                                               \
    }                                                                                                                                                        \
    API int rocsolver_##letter##geqrf(void* h, int m, int n, T* a, int lda, T* tau) { return geqrf(h, m, n, a, lda, tau); }                                   \
    API int rocsolver_##letter##orgqr(void* h, int m, int n, int k, T* a, int lda, T* tau) { return orgqr(h, m, n, k, a, lda, tau); }                         \
    API int rocsolver_##letter##syevd(void* h, int vectors, int fill, int n, T* a, int lda, T* values, T* beside, int* info) {                                \
        return syevd(h, vectors, fill, n, a, lda, values, beside, info);                                                                                      \
    }                                                                                                                                                        \
    API int rocsolver_##letter##gesvd(void* h, int left, int right, int m, int n, T* a, int lda, T* s, T* u, int ldu, T* v, int ldv, T* e, int mode, int* info) { \
        return gesvd(h, left, right, m, n, a, lda, s, u, ldu, v, ldv, e, mode, info);                                                                         \
    }                                                                                                                                                        \
    API int rocblas_##letter##trsm(void* h, int side, int fill, int op, int diag, int m, int n, const T* alpha, const T* a, int lda, T* b, int ldb) {         \
        return trsm_one(h, side, fill, op, diag, m, n, alpha, a, lda, b, ldb);                                                                                \
    }                                                                                                                                                        \
    API int rocblas_##letter##trsm_batched(void* h, int side, int fill, int op, int diag, int m, int n, const T* alpha, const T* const* a, int lda,           \
                                           T* const* b, int ldb, int count) {                                                                                 \
        return trsm(h, side, fill, op, diag, m, n, alpha, a, lda, b, ldb, count);                                                                             \
    }
ROUTINES(s, float)
ROUTINES(d, double)
