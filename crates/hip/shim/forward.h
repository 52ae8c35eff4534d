// How the shim's functions reach NVIDIA's: libraries are opened on first use and functions found by name.
#pragma once
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void* Handle;
typedef unsigned long long Address;

static inline void* forward_open(const char* const* names) {
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
        if (!found) found = forward_open(names);                  \
        return found;                                             \
    }

// A call of a library's function by name; 999 where there is none. The pointer's name must differ from every
// argument's.
#define CALL(from, name, types, ...)                                                \
    ({                                                                              \
        static int(*forward_to) types;                                              \
        if (!forward_to && from()) forward_to = (int(*) types)dlsym(from(), name);  \
        if (!forward_to) fprintf(stderr, "hip on cuda: no %s\n", name);             \
        forward_to ? forward_to(__VA_ARGS__) : 999;                                 \
    })
