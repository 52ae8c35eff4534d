// Elements whose dtype is a run-time argument: for small tensors, where compiling a kernel per dtype would take longer
// than the work.
//
// R: float, double or long (R_KIND 0, 1, 2). Codes of dtypes are those of rushlight_core::DType; MODE_… is the
// range a value is truncated to.

#define CODE_F32 0
#define CODE_F64 1
#define CODE_F16 2
#define CODE_BF16 3
#define CODE_I64 4
#define CODE_I32 5
#define CODE_I16 6
#define CODE_I8 7
#define CODE_U8 8
#define CODE_BOOL 9
#define CODE_NONE 14
#define CODE_NUMBER 15

#if R_KIND == 2
inline R cut(R x, uint mode) {
    switch (mode) {
        case CODE_I32: return (int)x;
        case CODE_I16: return (short)x;
        case CODE_I8: return (char)x;
        case CODE_U8: return (uchar)x;
        case CODE_BOOL: return x != 0;
        default: return x;
    }
}
#define FROM_FLOAT(v) (mode == CODE_BOOL ? (R)((v) != 0) : cut(float_to_long(v), mode))
#define FROM_DOUBLE(v) (mode == CODE_BOOL ? (R)((v) != 0) : cut(double_to_long(v), mode))
#define FROM_INTEGER(v) cut((R)(v), mode)
#define TO_INTEGER(v) (v)
#else
#define FROM_FLOAT(v) ((R)(v))
#define FROM_DOUBLE(v) ((R)(v))
#define FROM_INTEGER(v) ((R)(v))
#if R_KIND == 1
#define TO_INTEGER(v) double_to_long(v)
#else
#define TO_INTEGER(v) float_to_long(v)
#endif
#endif

// An element as R, truncated to the range of dtype `mode`.
inline R load_any(const __global uchar* p, uint code, size_t i, uint mode) {
    switch (code) {
        case CODE_F32: return FROM_FLOAT(load_f32((const __global float*)p, i));
#if FP64
        case CODE_F64: return FROM_DOUBLE(load_f64((const __global double*)p, i));
#endif
        case CODE_F16: return FROM_FLOAT(load_f16((const __global ushort*)p, i));
        case CODE_BF16: return FROM_FLOAT(load_bf16((const __global ushort*)p, i));
        case CODE_I64: return FROM_INTEGER(load_i64((const __global long*)p, i));
        case CODE_I32: return FROM_INTEGER(load_i32((const __global int*)p, i));
        case CODE_I16: return FROM_INTEGER(load_i16((const __global short*)p, i));
        case CODE_I8: return FROM_INTEGER(load_i8((const __global char*)p, i));
        case CODE_U8: return FROM_INTEGER(load_u8(p, i));
        default: return (R)load_b8(p, i);
    }
}

inline void store_any(__global uchar* p, uint code, size_t i, R v) {
    switch (code) {
        case CODE_F32: store_f32((__global float*)p, i, (float)v); break;
#if FP64
        case CODE_F64: store_f64((__global double*)p, i, (double)v); break;
#endif
        case CODE_F16: store_f16((__global ushort*)p, i, (float)v); break;
        case CODE_BF16: store_bf16((__global ushort*)p, i, (float)v); break;
        case CODE_I64: store_i64((__global long*)p, i, TO_INTEGER(v)); break;
        case CODE_I32: store_i32((__global int*)p, i, (int)TO_INTEGER(v)); break;
        case CODE_I16: store_i16((__global short*)p, i, (int)TO_INTEGER(v)); break;
        case CODE_I8: store_i8((__global char*)p, i, (int)TO_INTEGER(v)); break;
        case CODE_U8: store_u8(p, i, (int)TO_INTEGER(v)); break;
        default: store_b8(p, i, v != 0); break;
    }
}
