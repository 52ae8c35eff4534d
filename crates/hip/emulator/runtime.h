// Shared by the parts of the emulated runtime: submitting work to a stream, and the type codes of matrix products.
#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500, NOT_READY = 600, LAUNCH_FAILED = 719 };

// Does the work, or notes it in the step that the stream records.
int submit(void* stream, std::function<int()> work);

// The stream of a handle of rocBLAS, which rocSOLVER uses, too.
void* blas_stream(void* handle);

// Element i of data with rocBLAS's number of a type: 150 (half), 151 (float), 152 (double), 168 (bfloat16).
double load(const char* at, int type, int64_t i);
void store(char* at, int type, int64_t i, double x);
