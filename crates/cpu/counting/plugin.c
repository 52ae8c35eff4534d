// A plugin of qemu that counts the instructions a program executes: `scripts/arm count` loads it. The program marks
// where a piece of work begins and ends by a system call that no kernel has, with a number for the piece, or 0 for its
// end; each end prints a line "number instructions".
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define MARK 5255

// What we use of qemu's interface for plugins.
typedef uint64_t Plugin;
struct qemu_plugin_tb;
void qemu_plugin_register_vcpu_tb_trans_cb(Plugin, void (*)(Plugin, struct qemu_plugin_tb*));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb*, void (*)(unsigned, void*), int, void*);
void qemu_plugin_register_vcpu_syscall_cb(Plugin, void (*)(Plugin, unsigned, int64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb*);

#define EXPORT __attribute__((visibility("default")))
EXPORT int qemu_plugin_version = PLUGIN_VERSION;

static uint64_t count, began, piece;

static void executed(unsigned thread, void* instructions) {
    (void)thread;
    __atomic_fetch_add(&count, (uint64_t)(uintptr_t)instructions, __ATOMIC_RELAXED);
}
static void translated(Plugin plugin, struct qemu_plugin_tb* block) {
    (void)plugin;
    qemu_plugin_register_vcpu_tb_exec_cb(block, executed, 0, (void*)(uintptr_t)qemu_plugin_tb_n_insns(block));
}
static void called(Plugin plugin, unsigned thread, int64_t number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h) {
    (void)plugin, (void)thread, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
    if (number != MARK) return;
    uint64_t now = __atomic_load_n(&count, __ATOMIC_RELAXED);
    if (a) began = now, piece = a;
    else fprintf(stderr, "count %" PRIu64 " %" PRIu64 "\n", piece, now - began);
}

EXPORT int qemu_plugin_install(Plugin plugin, const void* about, int count_of_arguments, char** arguments) {
    (void)about, (void)count_of_arguments, (void)arguments;
    qemu_plugin_register_vcpu_tb_trans_cb(plugin, translated);
    qemu_plugin_register_vcpu_syscall_cb(plugin, called);
    return 0;
}
