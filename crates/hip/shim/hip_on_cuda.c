// A library with the ABI of HIP's runtime, hiprtc, hipBLASLt, rocBLAS, MIOpen and ROCm SMI, as far as the engine calls
// them, that stands on NVIDIA's: the engine for AMD GPUs runs its own host code on an NVIDIA GPU. The device is called
// gfx1100 (wavefronts of 32 lanes, no MFMA), and kernel texts are compiled by NVRTC without the text that goes before
// them for AMD's compiler. `scripts/emulated cuda` builds it. RCCL has NCCL's own ABI: a link called librccl.so.1 to
// NCCL stands for it.
#include "forward.h"

LIBRARY(cuda, "libcuda.so.1", "libcuda.so")
LIBRARY(nvrtc, "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")

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
int hipGetDevice(int* device) { return CALL(cuda, "cuCtxGetDevice", (int*), device); }
int hipDeviceGetUuid(char* to, int device) { return CALL(cuda, "cuDeviceGetUuid", (char*, int), to, device); }
int hipDeviceGetPCIBusId(char* to, int size, int device) { return CALL(cuda, "cuDeviceGetPCIBusId", (char*, int, int), to, size, device); }
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
    if (to_device < 0 || to_device >= 64 || from_device < 0 || from_device >= 64) return 101;
    return CALL(cuda, "cuMemcpyPeerAsync", (Address, Handle, Address, Handle, size_t, Handle), to, contexts[to_device], from, contexts[from_device], bytes, stream);
}
struct Ipc { char bytes[64]; };
int hipIpcGetMemHandle(struct Ipc* to, Address at) { return CALL(cuda, "cuIpcGetMemHandle", (struct Ipc*, Address), to, at); }
int hipIpcOpenMemHandle(Address* to, struct Ipc from, unsigned flags) { return CALL(cuda, "cuIpcOpenMemHandle_v2", (Address*, struct Ipc, unsigned), to, from, flags); }
int hipIpcCloseMemHandle(Address at) { return CALL(cuda, "cuIpcCloseMemHandle", (Address), at); }
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
