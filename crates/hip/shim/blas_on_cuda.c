// hipBLASLt's and rocBLAS's functions, as far as the engine calls them, by cuBLASLt and cuBLAS.
#include "forward.h"

LIBRARY(lt, "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so")
LIBRARY(blas, "libcublas.so.13", "libcublas.so.12", "libcublas.so")

// ---- hipBLASLt --------------------------------------------------------------------------------------------------------------------

static int compute_type(int hip) { return hip == 7 ? 70 : hip == 6 ? 77 : 68; }
int hipblasLtGetVersion(Handle handle, int* version) { return (void)handle, *version = 1200, 0; }
int hipblasLtCreate(Handle* to) { return CALL(lt, "cublasLtCreate", (Handle*), to); }
int hipblasLtDestroy(Handle handle) { return CALL(lt, "cublasLtDestroy", (Handle), handle); }
int hipblasLtMatmulDescCreate(Handle* to, int compute, int scale) { return CALL(lt, "cublasLtMatmulDescCreate", (Handle*, int, int), to, compute_type(compute), scale); }
int hipblasLtMatmulDescSetAttribute(Handle desc, int which, const void* value, size_t size) {
    static const int numbers[] = {3, 4, 7, 8, 26, -1, -1, -1, -1, -1, 11, 12};
    if (which < 0 || which > 11 || numbers[which] < 0) return 7;
    int operation = 0;
    if (which < 2) {
        if (*(const int*)value != 111 && *(const int*)value != 112) return 7;
        operation = *(const int*)value - 111, value = &operation;
    }
    return CALL(lt, "cublasLtMatmulDescSetAttribute", (Handle, int, const void*, size_t), desc, numbers[which], value, size);
}
int hipblasLtMatmulDescDestroy(Handle desc) { return CALL(lt, "cublasLtMatmulDescDestroy", (Handle), desc); }
int hipblasLtMatrixLayoutCreate(Handle* to, int type, uint64_t rows, uint64_t columns, int64_t step) {
    return CALL(lt, "cublasLtMatrixLayoutCreate", (Handle*, int, uint64_t, uint64_t, int64_t), to, type, rows, columns, step);
}
int hipblasLtMatrixLayoutSetAttribute(Handle layout, int which, const void* value, size_t size) {
    if (which < 0 || which > 1) return 7;
    return CALL(lt, "cublasLtMatrixLayoutSetAttribute", (Handle, int, const void*, size_t), layout, which + 5, value, size);
}
int hipblasLtMatrixLayoutDestroy(Handle layout) { return CALL(lt, "cublasLtMatrixLayoutDestroy", (Handle), layout); }
int hipblasLtMatmulPreferenceCreate(Handle* to) { return CALL(lt, "cublasLtMatmulPreferenceCreate", (Handle*), to); }
int hipblasLtMatmulPreferenceSetAttribute(Handle preference, int which, const void* value, size_t size) {
    return which == 1 ? CALL(lt, "cublasLtMatmulPreferenceSetAttribute", (Handle, int, const void*, size_t), preference, 1, value, size) : 7;
}
int hipblasLtMatmulPreferenceDestroy(Handle preference) { return CALL(lt, "cublasLtMatmulPreferenceDestroy", (Handle), preference); }
// An algorithm of AMD's has room for an address only: NVIDIA's is kept for the life of the process.
struct CudaChoice { uint64_t algorithm[8]; size_t workspace; int state; float waves; int reserved[4]; };
struct HipChoice { struct CudaChoice* own; uint64_t rest, most; size_t workspace; int state; float waves; int reserved[4]; };
int hipblasLtMatmulAlgoGetHeuristic(Handle handle, Handle desc, Handle a, Handle b, Handle c, Handle d, Handle preference, int wanted, struct HipChoice* to, int* found) {
    if (wanted != 1) return 7;
    struct CudaChoice* own = calloc(1, sizeof *own);
    int code = CALL(lt, "cublasLtMatmulAlgoGetHeuristic", (Handle, Handle, Handle, Handle, Handle, Handle, Handle, int, struct CudaChoice*, int*), handle, desc, a, b,
                    c, d, preference, 1, own, found);
    memset(to, 0, sizeof *to);
    to->own = own, to->workspace = own->workspace, to->state = own->state;
    return code;
}
int hipblasLtMatmul(Handle handle, Handle desc, const void* alpha, Address a, Handle la, Address b, Handle lb, const void* beta, Address c, Handle lc, Address d,
                    Handle ld, struct CudaChoice* const* algorithm, Address room, size_t size, Handle stream) {
    return CALL(lt, "cublasLtMatmul", (Handle, Handle, const void*, Address, Handle, Address, Handle, const void*, Address, Handle, Address, Handle, const void*, Address, size_t, Handle),
                handle, desc, alpha, a, la, b, lb, beta, c, lc, d, ld, *algorithm, room, size, stream);
}

// ---- rocBLAS ----------------------------------------------------------------------------------------------------------------------

static int data_type(int rocblas) { return rocblas == 150 ? 2 : rocblas == 152 ? 1 : rocblas == 168 ? 14 : 0; }
int rocblas_create_handle(Handle* to) { return CALL(blas, "cublasCreate_v2", (Handle*), to); }
int rocblas_set_stream(Handle handle, Handle stream) { return CALL(blas, "cublasSetStream_v2", (Handle, Handle), handle, stream); }
int rocblas_get_version_string(char* to, size_t size) { return snprintf(to, size, "4.3.0"), 0; }
int rocblas_gemm_strided_batched_ex(Handle handle, int ta, int tb, int m, int n, int k, const void* alpha, Address a, int a_type, int lda, int64_t sa, Address b,
                                    int b_type, int ldb, int64_t sb, const void* beta, Address c, int c_type, int ldc, int64_t sc, Address d, int d_type, int ldd,
                                    int64_t sd, int batch, int compute, int algo, int solution, unsigned flags) {
    (void)d_type, (void)ldd, (void)sd, (void)algo, (void)solution, (void)flags;
    if (c != d) return 4;
    return CALL(blas, "cublasGemmStridedBatchedEx",
                (Handle, int, int, int, int, int, const void*, Address, int, int, long long, Address, int, int, long long, const void*, Address, int, int, long long, int, int, int),
                handle, ta - 111, tb - 111, m, n, k, alpha, a, data_type(a_type), lda, sa, b, data_type(b_type), ldb, sb, beta, c, data_type(c_type), ldc, sc, batch,
                compute == 152 ? 70 : 68, -1);
}
