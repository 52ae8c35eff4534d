//! Loops over kept and reduced dimensions, reordered and merged.

use rushlight_core::Dims;
use rushlight_core::layout::Nest;
use rushlight_core::smallvec::SmallVec;

/// One loop: its length, and its strides in the input and in the output, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dim {
    pub size: usize,
    pub x: usize,
    pub out: usize,
}

/// Loops from outermost to innermost.
pub type Loops = SmallVec<[Dim; 6]>;

/// The loops over kept and over reduced dimensions, each ordered by the input's strides, which does not change
/// the result.
pub fn split(shape: &[usize], x: &[usize], out: &[usize], reduced: &[bool]) -> (Loops, Loops) {
    let (mut kept, mut inner) = (Loops::new(), Loops::new());
    for d in 0..shape.len() {
        if shape[d] == 1 {
            continue;
        }
        if reduced[d] {
            inner.push(Dim { size: shape[d], x: x[d], out: 0 });
        } else {
            kept.push(Dim { size: shape[d], x: x[d], out: out[d] });
        }
    }
    for loops in [&mut kept, &mut inner] {
        // An expanded dimension has no position in the order of strides; outermost is best.
        loops.sort_by_key(|d| (std::cmp::Reverse(if d.x == 0 { usize::MAX } else { d.x }), std::cmp::Reverse(d.out)));
        merge(loops);
    }
    (kept, inner)
}

fn merge(loops: &mut Loops) {
    let mut last = 0;
    for i in 1..loops.len() {
        let (outer, inner) = (loops[last], loops[i]);
        if outer.x == inner.x.saturating_mul(inner.size) && outer.out == inner.out.saturating_mul(inner.size) {
            loops[last] = Dim { size: outer.size * inner.size, ..inner };
        } else {
            last += 1;
            loops[last] = inner;
        }
    }
    loops.truncate(last + 1);
}

/// The lines along `dim` of several operands, ordered by the first one's strides: the position of each line.
/// `shape[dim]` is left out.
pub fn lines<const N: usize>(shape: &[usize], dim: usize, strides: [&[usize]; N]) -> Nest<N> {
    let mut order: Dims = (0..shape.len()).filter(|&d| d != dim).collect();
    order.sort_by_key(|&d| std::cmp::Reverse(strides[0][d]));
    let pick = |from: &[usize]| order.iter().map(|&d| from[d]).collect::<Dims>();
    let strides = strides.map(pick);
    Nest::new(&pick(shape), std::array::from_fn(|i| &strides[i][..]))
}

/// Size and strides of dimension `dim`; a tensor without dimensions is one line of one element.
pub fn along<const N: usize>(shape: &[usize], dim: usize, strides: [&[usize]; N]) -> (usize, [usize; N]) {
    (shape.get(dim).copied().unwrap_or(1), strides.map(|s| s.get(dim).copied().unwrap_or(1)))
}

/// Number of positions.
pub fn count(loops: &[Dim]) -> usize {
    loops.iter().map(|d| d.size).product()
}

/// Offsets in input and output of position `index`.
#[inline]
pub fn offsets(loops: &[Dim], mut index: usize) -> (usize, usize) {
    let (mut x, mut out) = (0, 0);
    for (i, d) in loops.iter().enumerate().rev() {
        let at = if i == 0 { index } else { index % d.size };
        index /= d.size;
        x += at * d.x;
        out += at * d.out;
    }
    (x, out)
}

/// Calls `f(x offset, out offset, done, length)` for each run of positions `start..start + len` along the innermost
/// loop; `done` counts the positions before the run. The inner steps are those of the last loop.
#[inline(always)]
pub fn runs(loops: &[Dim], start: usize, len: usize, mut f: impl FnMut(usize, usize, usize, usize)) {
    let Some(inner) = loops.last() else {
        return f(0, 0, 0, len.min(1));
    };
    let mut done = 0;
    while done < len {
        let (x, out) = offsets(loops, start + done);
        let n = (inner.size - (start + done) % inner.size).min(len - done);
        f(x, out, done, n);
        done += n;
    }
}

/// Copies the input's elements at positions `start..start + len` to `dst`.
///
/// # Safety
/// `x` is readable at those positions, `dst` writable for `len` elements of `size` bytes (1, 2, 4 or 8).
pub unsafe fn gather(loops: &[Dim], start: usize, len: usize, x: *const u8, size: usize, dst: *mut u8) {
    // SAFETY: the caller's promise; elements are copied as integers of their size and alignment.
    unsafe {
        match size {
            1 => gather_as::<u8>(loops, start, len, x.cast(), dst.cast()),
            2 => gather_as::<u16>(loops, start, len, x.cast(), dst.cast()),
            4 => gather_as::<u32>(loops, start, len, x.cast(), dst.cast()),
            _ => gather_as::<u64>(loops, start, len, x.cast(), dst.cast()),
        }
    }
}

unsafe fn gather_as<U: Copy>(loops: &[Dim], start: usize, len: usize, x: *const U, dst: *mut U) {
    let step = loops.last().map_or(0, |d| d.x);
    runs(loops, start, len, |offset, _, done, n| {
        // SAFETY: the caller's promise.
        unsafe {
            let (src, dst) = (x.add(offset), dst.add(done));
            for i in 0..n {
                *dst.add(i) = *src.add(i * step);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_ordered_and_merged() {
        // [2, 3, 4] contiguous, transposed to [4, 3, 2], last dimension reduced.
        let (kept, red) = split(&[4, 3, 2], &[1, 4, 12], &[3, 1, 1], &[false, false, true]);
        assert_eq!(&kept[..], [Dim { size: 3, x: 4, out: 1 }, Dim { size: 4, x: 1, out: 3 }]);
        assert_eq!(&red[..], [Dim { size: 2, x: 12, out: 0 }]);
        let (kept, red) = split(&[4, 3, 2], &[1, 4, 12], &[1, 1, 1], &[true, true, false]);
        assert_eq!(&kept[..], [Dim { size: 2, x: 12, out: 1 }]);
        assert_eq!(&red[..], [Dim { size: 12, x: 1, out: 0 }]);
        assert_eq!(offsets(&kept, 1), (12, 1));
        let (kept, red) = split(&[], &[], &[], &[]);
        assert_eq!((count(&kept), count(&red)), (1, 1));
    }
}
