// Copies bytes with all cores of a CPU: each work item copies a range of `each` bytes.

typedef uint16 Line __attribute__((aligned(1)));

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void copy_bytes(const __global uchar* from, __global uchar* to, const ulong bytes, const ulong each) {
    const ulong first = get_group_id(0) * each, last = first + each < bytes ? first + each : bytes;
    ulong i = first;
    for (; i + 64 <= last; i += 64) *(__global Line*)(to + i) = *(const __global Line*)(from + i);
    for (; i < last; i++) to[i] = from[i];
}
