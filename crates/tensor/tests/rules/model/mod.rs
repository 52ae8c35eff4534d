//! Reference model of tensors as plain lists: every op spelled out index by index.

/// Integers in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    pub shape: Vec<usize>,
    pub data: Vec<i64>,
}

/// Index of one dimension.
#[derive(Clone, Debug)]
pub enum Pick {
    One(usize),
    Many(Vec<usize>),
    NewAxis,
    /// Iterated together with the other lists.
    List(Vec<usize>),
}

/// Every index of a shape, in row-major order.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut out = vec![Vec::new()];
    for &size in shape {
        out = out.iter().flat_map(|head| (0..size).map(move |i| [&head[..], &[i]].concat())).collect();
    }
    out
}

impl Model {
    /// Each element is its own position.
    pub fn numbered(shape: &[usize]) -> Self {
        let count: usize = shape.iter().product();
        Self { shape: shape.to_vec(), data: (0..count as i64).collect() }
    }

    pub fn at(&self, index: &[usize]) -> i64 {
        let place = index.iter().zip(&self.shape).fold(0, |place, (i, size)| place * size + i);
        self.data[place]
    }

    /// A model whose element at an index is this one's at another.
    fn map(&self, shape: Vec<usize>, source: impl Fn(&[usize]) -> Vec<usize>) -> Self {
        let data = indices(&shape).iter().map(|index| self.at(&source(index))).collect();
        Self { shape, data }
    }

    pub fn permute(&self, order: &[usize]) -> Self {
        let shape = order.iter().map(|&d| self.shape[d]).collect();
        self.map(shape, |index| {
            let mut source = vec![0; index.len()];
            order.iter().zip(index).for_each(|(&d, &i)| source[d] = i);
            source
        })
    }

    /// The named entries of a dimension, in that order.
    pub fn take(&self, dim: usize, entries: &[usize]) -> Self {
        let mut shape = self.shape.clone();
        shape[dim] = entries.len();
        self.map(shape, |index| {
            let mut source = index.to_vec();
            source[dim] = entries[index[dim]];
            source
        })
    }

    /// Without a dimension of size one.
    pub fn drop_dim(&self, dim: usize) -> Self {
        let mut shape = self.shape.clone();
        shape.remove(dim);
        Self { shape, data: self.data.clone() }
    }

    pub fn add_dim(&self, dim: usize) -> Self {
        let mut shape = self.shape.clone();
        shape.insert(dim, 1);
        Self { shape, data: self.data.clone() }
    }

    /// The diagonal of the first two dimensions, as the last.
    pub fn diagonal(&self, offset: isize) -> Self {
        let (down, right) = if offset >= 0 { (0, offset as usize) } else { (offset.unsigned_abs(), 0) };
        let length = self.shape[0].saturating_sub(down).min(self.shape[1].saturating_sub(right));
        let mut shape = self.shape[2..].to_vec();
        shape.push(length);
        self.map(shape, |index| {
            let i = index[index.len() - 1];
            [&[i + down, i + right], &index[..index.len() - 1]].concat()
        })
    }

    pub fn unfold(&self, dim: usize, size: usize, step: usize) -> Self {
        let mut shape = self.shape.clone();
        shape[dim] = (self.shape[dim] - size) / step + 1;
        shape.push(size);
        self.map(shape, |index| {
            let mut source = index[..index.len() - 1].to_vec();
            source[dim] = index[dim] * step + index[index.len() - 1];
            source
        })
    }

    /// Summed over a dimension, which is removed.
    pub fn sum(&self, dim: usize) -> Self {
        let mut shape = self.shape.clone();
        let size = shape.remove(dim);
        let data = indices(&shape)
            .iter()
            .map(|index| {
                (0..size)
                    .map(|i| {
                        let mut source = index.clone();
                        source.insert(dim, i);
                        self.at(&source)
                    })
                    .sum()
            })
            .collect();
        Self { shape, data }
    }

    /// The shape two shapes broadcast to.
    pub fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
        let rank = a.len().max(b.len());
        let size = |shape: &[usize], d: usize| (d + shape.len()).checked_sub(rank).map_or(1, |d| shape[d]);
        (0..rank)
            .map(|d| match (size(a, d), size(b, d)) {
                (x, y) if x == y => Some(x),
                (1, y) => Some(y),
                (x, 1) => Some(x),
                _ => None,
            })
            .collect()
    }

    pub fn stretch(&self, shape: &[usize]) -> Self {
        let lead = shape.len() - self.shape.len();
        self.map(shape.to_vec(), |index| {
            index[lead..].iter().zip(&self.shape).map(|(&i, &size)| if size == 1 { 0 } else { i }).collect()
        })
    }
}

/// The elements of an index: lists iterate together; their common dimension is at the first list's position, or in
/// front if other indices separate them.
pub fn index_all(model: &Model, picks: &[Pick]) -> Model {
    let lists: Vec<usize> = (0..picks.len()).filter(|&p| matches!(picks[p], Pick::List(_))).collect();
    let apart = lists.windows(2).any(|w| w[1] != w[0] + 1);
    let count = picks.iter().find_map(|p| if let Pick::List(l) = p { Some(l.len()) } else { None });
    // For each dimension of the result: its size, and the index it belongs to (`None` for the lists).
    let mut result: Vec<(usize, Option<usize>)> = Vec::new();
    for (p, pick) in picks.iter().enumerate() {
        match pick {
            Pick::Many(entries) => result.push((entries.len(), Some(p))),
            Pick::NewAxis => result.push((1, Some(p))),
            Pick::List(_) if !apart && p == lists[0] => result.push((count.unwrap_or(0), None)),
            Pick::List(_) | Pick::One(_) => {}
        }
    }
    if apart {
        result.insert(0, (count.unwrap_or(0), None));
    }
    let shape: Vec<usize> = result.iter().map(|(size, _)| *size).collect();
    model.map(shape, |index| {
        let of = |wanted: Option<usize>| result.iter().position(|(_, p)| *p == wanted).map_or(0, |d| index[d]);
        let mut source = Vec::new();
        for (p, pick) in picks.iter().enumerate() {
            match pick {
                Pick::One(i) => source.push(*i),
                Pick::Many(entries) => source.push(entries[of(Some(p))]),
                Pick::NewAxis => {}
                Pick::List(entries) => source.push(entries[of(None)]),
            }
        }
        source
    })
}
