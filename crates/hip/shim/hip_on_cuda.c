// A library with the ABI of HIP's runtime, hiprtc, hipBLASLt and rocBLAS, as far as the engine calls them, that stands on NVIDIA's: the engine for AMD GPUs
// runs its own host code on an NVIDIA GPU. The device is called gfx1100 (wavefronts of 32 lanes, no MFMA), and kernel texts are compiled by NVRTC
// without what goes before them for AMD's compiler.
//     gcc -shared -fPIC -O1 -o libamdhip64.so.6 hip_on_cuda.c -ldl
// with links to it called libhiprtc.so.6, libhipblaslt.so.0 and librocblas.so.4.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void* Handle;
typedef unsigned long long Address;

static void* library(const char* const* names) {
    for (; *names; names++) {
        void* found = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
        if (found) return found;
    }
    return NULL;
}
#define LIBRARY(name, ...)                                        \
    static void* name(void) {                                     \
        static void* found;                                       \
        static const char* const names[] = {__VA_ARGS__, NULL};   \
        if (!found) found = library(names);                       \
        return found;                                             \
    }
LIBRARY(cuda, "libcuda.so.1", "libcuda.so")
LIBRARY(nvrtc, "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")
LIBRARY(lt, "libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so")
LIBRARY(blas, "libcublas.so.13", "libcublas.so.12", "libcublas.so")

// A call of a function of a library by name; 999 where there is none.
#define CALL(from, name, types, ...)                                        \
    ({                                                                      \
        static int(*function) types;                                        \
        if (!function && from()) function = (int(*) types)dlsym(from(), name); \
        function ? function(__VA_ARGS__) : 999;                             \
    })

// ---- the runtime ------------------------------------------------------------------------------------------------------------------

int hipInit(unsigned flags) { return CALL(cuda, "cuInit", (unsigned), flags); }
int hipDriverGetVersion(int* v) { return *v = 60300000, 0; }
int hipRuntimeGetVersion(int* v) { return *v = 60300000, 0; }
int hipGetDeviceCount(int* n) { return CALL(cuda, "cuDeviceGetCount", (int*), n); }
int hipDeviceGetName(char* name, int size, int device) { return CALL(cuda, "cuDeviceGetName", (char*, int, int), name, size, device); }
int hipDeviceGetAttribute(int* value, int which, int device) {
    switch (which) {
        case 63: return CALL(cuda, "cuDeviceGetAttribute", (int*, int, int), value, 16, device);
        case 74: return *value = 65536, 0;
        case 87: return *value = 32, 0;
        default: return 1;
    }
}
int hipDeviceTotalMem(size_t* bytes, int device) { return CALL(cuda, "cuDeviceTotalMem_v2", (size_t*, int), bytes, device); }
int hipGetDevicePropertiesR0600(void* to, int device) {
    memset(to, 0, 1472);
    strcpy((char*)to + 1160, "gfx1100");
    return hipDeviceGetName(to, 256, device);
}
static Handle contexts[64];
int hipSetDevice(int device) {
    if (device < 0 || device >= 64) return 101;
    if (!contexts[device]) {
        int code = CALL(cuda, "cuDevicePrimaryCtxRetain", (Handle*, int), &contexts[device], device);
        if (code) return code;
    }
    return CALL(cuda, "cuCtxSetCurrent", (Handle), contexts[device]);
}
int hipDeviceSynchronize(void) { return CALL(cuda, "cuCtxSynchronize", (void)); }
int hipMemGetInfo(size_t* available, size_t* total) { return CALL(cuda, "cuMemGetInfo_v2", (size_t*, size_t*), available, total); }
int hipDrvGetErrorString(int code, const char** text) { return CALL(cuda, "cuGetErrorString", (int, const char**), code, text); }
int hipMalloc(Address* to, size_t bytes) { return CALL(cuda, "cuMemAlloc_v2", (Address*, size_t), to, bytes); }
int hipFree(Address at) { return CALL(cuda, "cuMemFree_v2", (Address), at); }
int hipHostMalloc(void** to, size_t bytes, unsigned flags) { return CALL(cuda, "cuMemHostAlloc", (void**, size_t, unsigned), to, bytes, flags); }
int hipHostFree(void* at) { return CALL(cuda, "cuMemFreeHost", (void*), at); }
int hipHostGetDevicePointer(Address* to, void* at, unsigned flags) { return CALL(cuda, "cuMemHostGetDevicePointer_v2", (Address*, void*, unsigned), to, at, flags); }
int hipMemcpyHtoDAsync(Address to, const void* from, size_t bytes, Handle stream) { return CALL(cuda, "cuMemcpyHtoDAsync_v2", (Address, const void*, size_t, Handle), to, from, bytes, stream); }
int hipMemcpyDtoHAsync(void* to, Address from, size_t bytes, Handle stream) { return CALL(cuda, "cuMemcpyDtoHAsync_v2", (void*, Address, size_t, Handle), to, from, bytes, stream); }
int hipMemcpyDtoDAsync(Address to, Address from, size_t bytes, Handle stream) { return CALL(cuda, "cuMemcpyDtoDAsync_v2", (Address, Address, size_t, Handle), to, from, bytes, stream); }
int hipMemcpyPeerAsync(Address to, int to_device, Address from, int from_device, size_t bytes, Handle stream) {
    return CALL(cuda, "cuMemcpyPeerAsync", (Address, Handle, Address, Handle, size_t, Handle), to, contexts[to_device], from, contexts[from_device], bytes, stream);
}
int hipStreamCreateWithPriority(Handle* to, unsigned flags, int priority) { return CALL(cuda, "cuStreamCreateWithPriority", (Handle*, unsigned, int), to, flags, priority); }
int hipStreamDestroy(Handle stream) { return CALL(cuda, "cuStreamDestroy_v2", (Handle), stream); }
int hipStreamSynchronize(Handle stream) { return CALL(cuda, "cuStreamSynchronize", (Handle), stream); }
int hipStreamQuery(Handle stream) { return CALL(cuda, "cuStreamQuery", (Handle), stream); }
int hipStreamWaitEvent(Handle stream, Handle event, unsigned flags) { return CALL(cuda, "cuStreamWaitEvent", (Handle, Handle, unsigned), stream, event, flags); }
int hipEventCreateWithFlags(Handle* to, unsigned flags) { return CALL(cuda, "cuEventCreate", (Handle*, unsigned), to, flags); }
int hipEventDestroy(Handle event) { return CALL(cuda, "cuEventDestroy_v2", (Handle), event); }
int hipEventRecord(Handle event, Handle stream) { return CALL(cuda, "cuEventRecord", (Handle, Handle), event, stream); }
int hipEventQuery(Handle event) { return CALL(cuda, "cuEventQuery", (Handle), event); }
int hipEventSynchronize(Handle event) { return CALL(cuda, "cuEventSynchronize", (Handle), event); }
int hipEventElapsedTime(float* to, Handle begin, Handle end) { return CALL(cuda, "cuEventElapsedTime", (float*, Handle, Handle), to, begin, end); }
int hipStreamBeginCapture(Handle stream, int mode) { return CALL(cuda, "cuStreamBeginCapture_v2", (Handle, int), stream, mode); }
int hipStreamEndCapture(Handle stream, Handle* graph) { return CALL(cuda, "cuStreamEndCapture", (Handle, Handle*), stream, graph); }
int hipThreadExchangeStreamCaptureMode(int* mode) { return CALL(cuda, "cuThreadExchangeStreamCaptureMode", (int*), mode); }
int hipGraphInstantiateWithFlags(Handle* exec, Handle graph, uint64_t flags) { return CALL(cuda, "cuGraphInstantiateWithFlags", (Handle*, Handle, uint64_t), exec, graph, flags); }
int hipGraphLaunch(Handle exec, Handle stream) { return CALL(cuda, "cuGraphLaunch", (Handle, Handle), exec, stream); }
int hipGraphGetRootNodes(Handle graph, Handle* nodes, size_t* count) { return CALL(cuda, "cuGraphGetRootNodes", (Handle, Handle*, size_t*), graph, nodes, count); }
int hipGraphDestroy(Handle graph) { return CALL(cuda, "cuGraphDestroy", (Handle), graph); }
int hipGraphExecDestroy(Handle exec) { return CALL(cuda, "cuGraphExecDestroy", (Handle), exec); }
struct HipNode { unsigned block[3]; void** extra; Handle function; unsigned grid[3]; void** arguments; unsigned shared; };
struct CudaNode { Handle function; unsigned grid[3], block[3], shared; void **arguments, **extra; };
int hipGraphExecKernelNodeSetParams(Handle exec, Handle node, const struct HipNode* p) {
    struct CudaNode own = {p->function, {p->grid[0], p->grid[1], p->grid[2]}, {p->block[0], p->block[1], p->block[2]}, p->shared, p->arguments, p->extra};
    return CALL(cuda, "cuGraphExecKernelNodeSetParams", (Handle, Handle, const struct CudaNode*), exec, node, &own);
}
int hipModuleLoadData(Handle* to, const void* image) { return CALL(cuda, "cuModuleLoadData", (Handle*, const void*), to, image); }
int hipModuleGetFunction(Handle* to, Handle module, const char* name) { return CALL(cuda, "cuModuleGetFunction", (Handle*, Handle, const char*), to, module, name); }
int hipFuncSetAttribute(Handle function, int which, int value) { return CALL(cuda, "cuFuncSetAttribute", (Handle, int, int), function, which, value); }
int hipModuleLaunchKernel(Handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, Handle stream,
                          void** arguments, void** extra) {
    return CALL(cuda, "cuLaunchKernel", (Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void**, void**), function, gx, gy,
                gz, bx, by, bz, shared, stream, arguments, extra);
}

// ---- the compiler -----------------------------------------------------------------------------------------------------------------

int hiprtcVersion(int* major, int* minor) { return CALL(nvrtc, "nvrtcVersion", (int*, int*), major, minor); }
int hiprtcCreateProgram(Handle* to, const char* source, const char* name, int count, const char** headers, const char** names) {
    // The last line of what goes before texts for AMD's compiler.
    const char* last = "#define __dsqrt_rn(x) sqrt(x)\n";
    const char* end = strstr(source, last);
    return CALL(nvrtc, "nvrtcCreateProgram", (Handle*, const char*, const char*, int, const char**, const char**), to, end ? end + strlen(last) : source, name,
                count, headers, names);
}
int hiprtcCompileProgram(Handle program, int count, const char** options) {
    (void)count, (void)options;
    int major = 0, minor = 0;
    char arch[64];
    CALL(cuda, "cuDeviceGetAttribute", (int*, int, int), &major, 75, 0);
    CALL(cuda, "cuDeviceGetAttribute", (int*, int, int), &minor, 76, 0);
    snprintf(arch, sizeof arch, "--gpu-architecture=sm_%d%d", major, minor);
    const char* own[] = {arch, "--std=c++17", "--device-as-default-execution-space"};
    return CALL(nvrtc, "nvrtcCompileProgram", (Handle, int, const char**), program, 3, own);
}
int hiprtcGetProgramLogSize(Handle program, size_t* size) { return CALL(nvrtc, "nvrtcGetProgramLogSize", (Handle, size_t*), program, size); }
int hiprtcGetProgramLog(Handle program, char* to) { return CALL(nvrtc, "nvrtcGetProgramLog", (Handle, char*), program, to); }
int hiprtcGetCodeSize(Handle program, size_t* size) { return CALL(nvrtc, "nvrtcGetCUBINSize", (Handle, size_t*), program, size); }
int hiprtcGetCode(Handle program, char* to) { return CALL(nvrtc, "nvrtcGetCUBIN", (Handle, char*), program, to); }
int hiprtcDestroyProgram(Handle* program) { return CALL(nvrtc, "nvrtcDestroyProgram", (Handle*), program); }

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
