// rocBLAS's product, as far as the engine calls it, in the plainest way.
#include "runtime.h"

namespace {
struct Products { void* stream; };
float half(uint16_t bits) { _Float16 x; memcpy(&x, &bits, 2); return (float)x; }
}  // namespace

void* blas_stream(void* handle) { return ((Products*)handle)->stream; }

double load(const char* at, int type, int64_t i) {
    switch (type) {
        case 150: return half(((const uint16_t*)at)[i]);
        case 151: return ((const float*)at)[i];
        case 152: return ((const double*)at)[i];
        default: { uint32_t bits = (uint32_t)((const uint16_t*)at)[i] << 16; float x; memcpy(&x, &bits, 4); return x; }
    }
}
void store(char* at, int type, int64_t i, double x) {
    switch (type) {
        case 150: { _Float16 y = (_Float16)(float)x; memcpy(at + 2 * i, &y, 2); break; }
        case 151: ((float*)at)[i] = (float)x; break;
        case 152: ((double*)at)[i] = x; break;
        default: {
            float y = (float)x;
            uint32_t bits;
            memcpy(&bits, &y, 4);
            bits = y != y ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
            ((uint16_t*)at)[i] = (uint16_t)bits;
        }
    }
}

namespace {
int64_t size_of(int type) { return type == 152 ? 8 : type == 151 ? 4 : 2; }
}  // namespace

API int rocblas_create_handle(void** to) { return *to = new Products{nullptr}, 0; }
API int rocblas_set_stream(void* handle, void* stream) { return ((Products*)handle)->stream = stream, 0; }
API int rocblas_get_version_string(char* to, size_t size) { return snprintf(to, size, "4.3.0"), 0; }
API int rocblas_gemm_strided_batched_ex(void* handle, int ta, int tb, int m, int n, int k, const void* alpha, const void* a, int a_type, int lda, int64_t sa,
                                        const void* b, int b_type, int ldb, int64_t sb, const void* beta, const void* c, int c_type, int ldc, int64_t sc,
                                        void* d, int d_type, int ldd, int64_t sd, int batch, int compute, int, int, unsigned) {
    if ((ta != 111 && ta != 112) || (tb != 111 && tb != 112) || lda < (ta == 111 ? m : k) || ldb < (tb == 111 ? k : n) || ldd < m) return 4;
    double x = compute == 152 ? *(const double*)alpha : *(const float*)alpha, y = compute == 152 ? *(const double*)beta : *(const float*)beta;
    return submit(blas_stream(handle), [=] {
        std::vector<double> left((size_t)m * k), right((size_t)k * n);
        for (int64_t i = 0; i < batch; i++) {
            const char* from_a = (const char*)a + i * sa * size_of(a_type);
            const char* from_b = (const char*)b + i * sb * size_of(b_type);
            const char* from_c = (const char*)c + i * sc * size_of(c_type);
            char* to = (char*)d + i * sd * size_of(d_type);
            for (int64_t r = 0; r < m; r++) for (int64_t l = 0; l < k; l++) left[r * k + l] = load(from_a, a_type, ta == 111 ? l * lda + r : r * lda + l);
            for (int64_t q = 0; q < n; q++) for (int64_t l = 0; l < k; l++) right[q * k + l] = load(from_b, b_type, tb == 111 ? q * ldb + l : l * ldb + q);
            for (int64_t q = 0; q < n; q++) {
                for (int64_t r = 0; r < m; r++) {
                    double sum = 0;
                    for (int64_t l = 0; l < k; l++) sum += left[r * k + l] * right[q * k + l];
                    store(to, d_type, q * ldd + r, x * sum + (y == 0 ? 0 : y * load(from_c, c_type, q * ldc + r)));
                }
            }
        }
        return (int)SUCCESS;
    });
}
