/* A library that answers as ROCm SMI 6 does, for one GPU. */
#include <string.h>

typedef unsigned int u32;
typedef unsigned long long u64;

int rsmi_init(u64 flags) { return 0; }
int rsmi_num_monitor_devices(u32 *count) { *count = 1; return 0; }
int rsmi_dev_name_get(u32 index, char *name, size_t length) { strncpy(name, "Imaginary MI", length); return 0; }
int rsmi_dev_busy_percent_get(u32 index, u32 *percent) { *percent = 55; return 0; }
int rsmi_dev_memory_total_get(u32 index, u32 kind, u64 *bytes) { *bytes = 192ull << 30; return kind; }
int rsmi_dev_memory_usage_get(u32 index, u32 kind, u64 *bytes) { *bytes = 12ull << 30; return kind; }
/* No sensor at the edge, as MI300 has none: the junction's is taken. */
int rsmi_dev_temp_metric_get(u32 index, u32 sensor, u32 metric, long long *milli) { *milli = 48500; return sensor == 1 ? 0 : 2; }
int rsmi_dev_current_socket_power_get(u32 index, u64 *micro) { *micro = 345600000; return 0; }
int rsmi_dev_unique_id_get(u32 index, u64 *id) { *id = 0xabcdef; return 0; }
struct frequencies { _Bool deep_sleep; u32 count, current; u64 hertz[33]; };
int rsmi_dev_gpu_clk_freq_get(u32 index, u32 kind, struct frequencies *f) {
    f->deep_sleep = 1;
    f->count = 2;
    f->current = 1;
    f->hertz[0] = 132000000;
    f->hertz[1] = kind ? 1300000000 : 2100000000;
    return 0;
}
