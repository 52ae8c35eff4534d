// MIOpen's immediate mode, as far as the engine calls it, by cuDNN; and ROCm SMI's version.
#include "forward.h"

LIBRARY(dnn, "libcudnn.so.9", "libcudnn.so.8", "libcudnn.so")

enum { MAX = 5, UNSUPPORTED = 7, BAD_PARAMETER = 3, CHOICES = 8 };
enum { FORWARD, DATA, WEIGHTS };

struct Tensor { int type, count, sizes[MAX], strides[MAX]; };
struct Conv { int count, padding[MAX], stride[MAX], dilation[MAX], groups; };
struct Solution { float time; size_t workspace; uint64_t id; int algorithm; };
// `cudnnConvolutionFwdAlgoPerf_t` and its like.
struct Choice { int algorithm, status; float time; size_t memory; int deterministic, math, reserved[3]; };
// A convolution in cuDNN's terms.
struct Described { Handle x, w, y, conv; };

int miopenGetVersion(size_t* major, size_t* minor, size_t* patch) { return *major = 3, *minor = 3, *patch = 0, 0; }
int miopenCreateWithStream(Handle* to, Handle stream) {
    int code = CALL(dnn, "cudnnCreate", (Handle*), to);
    return code ? code : CALL(dnn, "cudnnSetStream", (Handle, Handle), *to, stream);
}
int miopenSetStream(Handle handle, Handle stream) { return CALL(dnn, "cudnnSetStream", (Handle, Handle), handle, stream); }
int miopenCreateTensorDescriptor(Handle* to) { return (*to = calloc(1, sizeof(struct Tensor))) ? 0 : 4; }
int miopenDestroyTensorDescriptor(Handle tensor) { return free(tensor), 0; }
int miopenSetTensorDescriptor(struct Tensor* to, int type, int count, const int* sizes, const int* strides) {
    if (count < 3 || count > MAX) return BAD_PARAMETER;
    to->type = type, to->count = count;
    memcpy(to->sizes, sizes, count * sizeof(int)), memcpy(to->strides, strides, count * sizeof(int));
    return 0;
}
int miopenCreateConvolutionDescriptor(Handle* to) { return (*to = calloc(1, sizeof(struct Conv))) ? 0 : 4; }
int miopenDestroyConvolutionDescriptor(Handle conv) { return free(conv), 0; }
int miopenInitConvolutionNdDescriptor(struct Conv* to, int count, const int* padding, const int* stride, const int* dilation, int mode) {
    if (count < 1 || count > 3 || mode != 0) return BAD_PARAMETER;
    to->count = count, to->groups = 1;
    size_t bytes = count * sizeof(int);
    memcpy(to->padding, padding, bytes), memcpy(to->stride, stride, bytes), memcpy(to->dilation, dilation, bytes);
    return 0;
}
int miopenSetConvolutionGroupCount(struct Conv* to, int groups) { return to->groups = groups, 0; }
// Deterministic solutions are the only ones that are named.
int miopenSetConvolutionAttribute(struct Conv* conv, int which, int value) { return (void)conv, (void)value, which == 1 ? 0 : BAD_PARAMETER; }

// Whether channels are innermost; a tensor with one channel or one pixel does not tell.
static int channels_last(const struct Tensor* t) {
    int pixels = 1;
    for (int i = 2; i < t->count; i++) pixels *= t->sizes[i];
    return t->sizes[1] > 1 && pixels > 1 && t->strides[1] == 1;
}

static void forget(struct Described* d) {
    if (d->x) CALL(dnn, "cudnnDestroyTensorDescriptor", (Handle), d->x);
    if (d->y) CALL(dnn, "cudnnDestroyTensorDescriptor", (Handle), d->y);
    if (d->w) CALL(dnn, "cudnnDestroyFilterDescriptor", (Handle), d->w);
    if (d->conv) CALL(dnn, "cudnnDestroyConvolutionDescriptor", (Handle), d->conv);
}

// The descriptors; `math` is the kind of arithmetic, or -1 for the type's own. False if cuDNN does not take them.
static int describe(struct Described* d, const struct Tensor* x, const struct Tensor* w, const struct Tensor* y, const struct Conv* c, int math) {
    memset(d, 0, sizeof *d);
    // `miopenHalf`, `miopenFloat`, `miopenBFloat16`.
    int type = x->type == 0 ? 2 : x->type == 1 ? 0 : x->type == 5 ? 9 : -1;
    if (type < 0) return 0;
    int last = channels_last(x) || channels_last(y) || channels_last(w);
    if (math < 0) math = type == 0 ? 3 : 1;
    return CALL(dnn, "cudnnCreateTensorDescriptor", (Handle*), &d->x) == 0 && CALL(dnn, "cudnnCreateTensorDescriptor", (Handle*), &d->y) == 0 &&
           CALL(dnn, "cudnnCreateFilterDescriptor", (Handle*), &d->w) == 0 && CALL(dnn, "cudnnCreateConvolutionDescriptor", (Handle*), &d->conv) == 0 &&
           CALL(dnn, "cudnnSetTensorNdDescriptor", (Handle, int, int, const int*, const int*), d->x, type, x->count, x->sizes, x->strides) == 0 &&
           CALL(dnn, "cudnnSetTensorNdDescriptor", (Handle, int, int, const int*, const int*), d->y, type, y->count, y->sizes, y->strides) == 0 &&
           CALL(dnn, "cudnnSetFilterNdDescriptor", (Handle, int, int, int, const int*), d->w, type, last, w->count, w->sizes) == 0 &&
           CALL(dnn, "cudnnSetConvolutionNdDescriptor", (Handle, int, const int*, const int*, const int*, int, int), d->conv, c->count, c->padding, c->stride,
                c->dilation, 1, 0) == 0 &&
           CALL(dnn, "cudnnSetConvolutionGroupCount", (Handle, int), d->conv, c->groups) == 0 &&
           CALL(dnn, "cudnnSetConvolutionMathType", (Handle, int), d->conv, math) == 0;
}

#define CHOOSE (Handle, Handle, Handle, Handle, Handle, int, int*, struct Choice*)
static int solutions(int pass, Handle handle, const struct Tensor* x, const struct Tensor* w, const struct Tensor* y, const struct Conv* conv, size_t most,
                     size_t* found, struct Solution* to) {
    struct Described d;
    struct Choice list[CHOICES];
    int count = 0, code = UNSUPPORTED;
    *found = 0;
    if (describe(&d, x, w, y, conv, -1)) {
        code = pass == FORWARD ? CALL(dnn, "cudnnGetConvolutionForwardAlgorithm_v7", CHOOSE, handle, d.x, d.w, d.conv, d.y, CHOICES, &count, list)
               : pass == DATA  ? CALL(dnn, "cudnnGetConvolutionBackwardDataAlgorithm_v7", CHOOSE, handle, d.w, d.y, d.conv, d.x, CHOICES, &count, list)
                               : CALL(dnn, "cudnnGetConvolutionBackwardFilterAlgorithm_v7", CHOOSE, handle, d.x, d.y, d.conv, d.w, CHOICES, &count, list);
    }
    forget(&d);
    for (int i = 0; code == 0 && i < count && *found < most; i++) {
        // `CUDNN_FMA_MATH` is 3: no TF32 for floats.
        if (list[i].status || !list[i].deterministic || (x->type == 1 && list[i].math != 3)) continue;
        to[(*found)++] = (struct Solution){(float)i, list[i].memory, (uint64_t)list[i].algorithm << 8 | (uint64_t)list[i].math, 0};
    }
    return code ? UNSUPPORTED : 0;
}

#define RUN (Handle, const void*, Handle, Address, Handle, Address, Handle, int, Address, size_t, const void*, Handle, Address)
static int run(int pass, Handle handle, const struct Tensor* x, Address at_x, const struct Tensor* w, Address at_w, const struct Tensor* y, Address at_y,
               const struct Conv* conv, Address room, size_t size, uint64_t id) {
    struct Described d;
    const float one = 1, zero = 0;
    int algorithm = (int)(id >> 8), code = BAD_PARAMETER;
    if (describe(&d, x, w, y, conv, (int)(id & 255))) {
        code = pass == FORWARD ? CALL(dnn, "cudnnConvolutionForward", RUN, handle, &one, d.x, at_x, d.w, at_w, d.conv, algorithm, room, size, &zero, d.y, at_y)
               : pass == DATA  ? CALL(dnn, "cudnnConvolutionBackwardData", RUN, handle, &one, d.w, at_w, d.y, at_y, d.conv, algorithm, room, size, &zero, d.x, at_x)
                               : CALL(dnn, "cudnnConvolutionBackwardFilter", RUN, handle, &one, d.x, at_x, d.y, at_y, d.conv, algorithm, room, size, &zero, d.w, at_w);
    }
    forget(&d);
    return code;
}

typedef const struct Tensor* T;
typedef const struct Conv* C;
int miopenConvolutionForwardGetSolution(Handle h, T w, T x, C c, T y, size_t most, size_t* found, struct Solution* to) { return solutions(FORWARD, h, x, w, y, c, most, found, to); }
int miopenConvolutionBackwardDataGetSolution(Handle h, T y, T w, C c, T x, size_t most, size_t* found, struct Solution* to) { return solutions(DATA, h, x, w, y, c, most, found, to); }
int miopenConvolutionBackwardWeightsGetSolution(Handle h, T y, T x, C c, T w, size_t most, size_t* found, struct Solution* to) { return solutions(WEIGHTS, h, x, w, y, c, most, found, to); }
int miopenConvolutionForwardCompileSolution(Handle h, T w, T x, C c, T y, uint64_t id) { return (void)h, (void)w, (void)x, (void)c, (void)y, (void)id, 0; }
int miopenConvolutionBackwardDataCompileSolution(Handle h, T y, T w, C c, T x, uint64_t id) { return (void)h, (void)w, (void)x, (void)c, (void)y, (void)id, 0; }
int miopenConvolutionBackwardWeightsCompileSolution(Handle h, T y, T x, C c, T w, uint64_t id) { return (void)h, (void)w, (void)x, (void)c, (void)y, (void)id, 0; }
int miopenConvolutionForwardImmediate(Handle h, T w, Address at_w, T x, Address at_x, C c, T y, Address at_y, Address room, size_t size, uint64_t id) {
    return run(FORWARD, h, x, at_x, w, at_w, y, at_y, c, room, size, id);
}
int miopenConvolutionBackwardDataImmediate(Handle h, T y, Address at_y, T w, Address at_w, C c, T x, Address at_x, Address room, size_t size, uint64_t id) {
    return run(DATA, h, x, at_x, w, at_w, y, at_y, c, room, size, id);
}
int miopenConvolutionBackwardWeightsImmediate(Handle h, T y, Address at_y, T x, Address at_x, C c, T w, Address at_w, Address room, size_t size, uint64_t id) {
    return run(WEIGHTS, h, x, at_x, w, at_w, y, at_y, c, room, size, id);
}

// ---- ROCm SMI ---------------------------------------------------------------------------------------------------------------------

struct SmiVersion { unsigned major, minor, patch; const char* build; };
int rsmi_version_get(struct SmiVersion* to) { return *to = (struct SmiVersion){7, 3, 0, "0"}, 0; }
