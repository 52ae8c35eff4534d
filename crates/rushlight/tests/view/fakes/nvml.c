/* A library that answers as NVML does, for two GPUs; the second has no power meter. */
#include <string.h>

typedef unsigned int u32;
typedef unsigned long long u64;
static int gpus[2] = {0, 1};
static int number(void *device) { return *(int *)device; }

int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(u32 *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(u32 index, void **device) {
    if (index > 1) return 2;
    *device = &gpus[index];
    return 0;
}
int nvmlDeviceGetName(void *device, char *name, u32 length) {
    const char *text = number(device) ? "Imaginary B2" : "Imaginary A1";
    if (length < strlen(text) + 1) return 7;
    strcpy(name, text);
    return 0;
}
int nvmlDeviceGetUUID(void *device, char *uuid, u32 length) {
    if (length < 9) return 7;
    strcpy(uuid, number(device) ? "GPU-bb22" : "GPU-aa11");
    return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, u32 *rates) {
    rates[0] = number(device) ? 3 : 87;
    rates[1] = number(device) ? 1 : 42;
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, u64 *memory) {
    memory[0] = 80ull << 30; memory[1] = 10ull << 30; memory[2] = 70ull << 30;
    return 0;
}
struct memory2 { u32 version; u64 total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory2 *memory) {
    if (memory->version != (sizeof *memory | 2u << 24)) return 25;
    memory->total = 80ull << 30;
    memory->used = (number(device) ? 1ull : 64ull) << 30;
    return 0;
}
int nvmlDeviceGetPowerUsage(void *device, u32 *milliwatts) {
    if (number(device)) return 3;
    *milliwatts = 512345;
    return 0;
}
int nvmlDeviceGetEnforcedPowerLimit(void *device, u32 *milliwatts) { *milliwatts = 700000; return 0; }
int nvmlDeviceGetTemperature(void *device, u32 sensor, u32 *celsius) { *celsius = 61; return sensor ? 2 : 0; }
int nvmlDeviceGetClockInfo(void *device, u32 kind, u32 *mhz) { *mhz = kind == 1 ? 1755 : 2619; return 0; }
int nvmlDeviceGetMaxClockInfo(void *device, u32 kind, u32 *mhz) { *mhz = 1980; return 0; }
struct process { u32 pid; u64 memory; u32 instances[2]; };
/* 70 processes on the first GPU: more than a caller asks for at first. */
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, u32 *count, struct process *processes) {
    u32 all = number(device) ? 0 : 70, room = *count;
    *count = all;
    if (room < all) return 7;
    for (u32 i = 0; i < all; i++) {
        processes[i].pid = 1u << 30 | i;
        processes[i].memory = i == 69 ? ~0ull : (u64)i << 20;
    }
    return 0;
}
