// Interface between an emulated kernel and the emulator.
#pragma once

template <int... I> struct EmulatorNumbers {};
struct Three { unsigned x, y, z; };

// How lanes of a wavefront that meet exchange words.
enum { EXCHANGE_NOTHING, EXCHANGE_XOR, EXCHANGE_DOWN, EXCHANGE_MFMA };

// The thread that runs now, and the calls that make it wait for others.
struct Machine {
    Three thread, block, block_size, grid_size;
    // Another lane's word, among those of a width. Lanes at the same line exchange with each other.
    unsigned long long (*exchange)(int kind, unsigned long long word, int lanes, int width, int line);
    // Waits for the block; whether any thread has said yes.
    int (*barrier)(int yes);
    // The product of 16 by 16 matrices of the wavefront's lanes, added to c: each lane has four of a's, of b's and of
    // c's elements, as values.
    void (*mfma)(const float* a, const float* b, float* c, int line);
};
