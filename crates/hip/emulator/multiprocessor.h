// Running kernels that were compiled against lanes.h.
#pragma once
#include "machine.h"
#include <cstddef>
#include <string>

struct EmulatedKernel {
    std::string name;
    void (*run)(void** arguments);
    // Dynamic shared memory of its module.
    char* shared;
    // Sizes of its parameters, and how many there are.
    unsigned long sizes[32];
    int count;
};

extern Machine emulated;

// One launch, block after block; false if it failed, which was said on the standard error output.
bool run_kernel(const EmulatedKernel& kernel, Three grid, Three block, size_t shared, void** arguments);
