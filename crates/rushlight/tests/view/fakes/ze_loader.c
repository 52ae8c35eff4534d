/* A library that answers as Level Zero's Sysman does, for one GPU of two tiles. Counters rise with every call. */
#include <string.h>

typedef unsigned int u32;
typedef unsigned long long u64;
static int driver, device, engines[2], power, memories[2], sensors[2], clocks[2];
static u64 calls;

static int give(u32 *count, void **to, int *from, u32 all) {
    if (to) for (u32 i = 0; i < all && i < *count; i++) to[i] = &from[i];
    *count = all;
    return 0;
}
int zesInit(u32 flags) { return 0; }
int zesDriverGet(u32 *count, void **to) { return give(count, to, &driver, 1); }
int zesDeviceGet(void *of, u32 *count, void **to) { return of == &driver ? give(count, to, &device, 1) : 1; }
int zesDeviceGetProperties(void *of, char *properties) {
    /* stype, then the core's properties at 16, whose uuid is at 96 and name at 112. */
    if (*(u32 *)properties != 1 || *(u32 *)(properties + 16) != 3) return 1;
    memset(properties + 16 + 96, 0x5a, 16);
    strcpy(properties + 16 + 112, "Imaginary Max");
    return 0;
}
int zesDeviceEnumMemoryModules(void *of, u32 *count, void **to) { return give(count, to, memories, 2); }
int zesMemoryGetProperties(void *of, char *p) { *(u32 *)(p + 28) = 1; return *(u32 *)p == 0xb ? 0 : 1; }
int zesMemoryGetState(void *of, char *p) {
    *(u64 *)(p + 24) = 60ull << 30;
    *(u64 *)(p + 32) = 64ull << 30;
    return *(u32 *)p == 0x1e ? 0 : 1;
}
int zesDeviceEnumEngineGroups(void *of, u32 *count, void **to) { return give(count, to, engines, 2); }
int zesEngineGetProperties(void *of, char *p) { *(u32 *)(p + 16) = of == &engines[0] ? 0 : 3; return *(u32 *)p == 0x5 ? 0 : 1; }
int zesEngineGetActivity(void *of, u64 *counter) { calls++; counter[0] = calls * 750; counter[1] = calls * 1000; return 0; }
int zesDeviceEnumPowerDomains(void *of, u32 *count, void **to) { return give(count, to, &power, 1); }
int zesPowerGetEnergyCounter(void *of, u64 *counter) { counter[0] = calls * 450000; counter[1] = calls * 1000; return 0; }
int zesDeviceEnumTemperatureSensors(void *of, u32 *count, void **to) { return give(count, to, sensors, 2); }
int zesTemperatureGetProperties(void *of, char *p) { *(u32 *)(p + 16) = of == &sensors[0] ? 1 : 3; return *(u32 *)p == 0x14 ? 0 : 1; }
int zesTemperatureGetState(void *of, double *celsius) { *celsius = of == &sensors[0] ? 52.0 : 999.0; return 0; }
int zesDeviceEnumFrequencyDomains(void *of, u32 *count, void **to) { return give(count, to, clocks, 2); }
int zesFrequencyGetProperties(void *of, char *p) {
    *(u32 *)(p + 16) = of == &clocks[0] ? 0 : 1;
    *(double *)(p + 40) = 1600;
    return *(u32 *)p == 0x9 ? 0 : 1;
}
int zesFrequencyGetState(void *of, char *p) { *(double *)(p + 48) = of == &clocks[0] ? 1550 : 1565; return *(u32 *)p == 0x1b ? 0 : 1; }
int zesDeviceProcessesGetState(void *of, u32 *count, char *to) {
    if (to) {
        if (*(u32 *)to != 0x16) return 1;
        *(u32 *)(to + 16) = 4321;
        *(u64 *)(to + 24) = 5ull << 30;
    }
    *count = 1;
    return 0;
}
