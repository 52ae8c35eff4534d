//! Device meshes: ranks laid out as a grid of named dimensions, with a group for each of its lines.

use crate::group::ProcessGroup;
use crate::world::World;
use rushlight_core::{Error, Result};
use std::sync::Arc;

/// A grid of ranks. The group of a dimension has the ranks that differ from this one in that dimension only, so one
/// mesh holds the groups of all parallelisms of a job: `["dp", "tp"]`.
///
/// ```
/// # mod rushlight { pub use rushlight_dist as dist; }
/// use rushlight::dist::DeviceMesh;
/// let world = rushlight::dist::init()?;
/// let mesh = DeviceMesh::new(&world, &[1, 1], &["dp", "tp"])?;
/// assert_eq!(mesh.select(&["tp"])?.size(), 1);
/// # Ok::<(), rushlight_core::Error>(())
/// ```
#[derive(Clone)]
pub struct DeviceMesh {
    /// Ranks of the world, row by row.
    ranks: Vec<usize>,
    shape: Vec<usize>,
    names: Vec<String>,
    /// This rank's place; `None` if it is not in the mesh.
    coordinate: Option<Vec<usize>>,
    /// This rank's group along each dimension; none if it is not in the mesh.
    groups: Vec<Arc<dyn ProcessGroup>>,
}

impl DeviceMesh {
    /// A mesh of all ranks of the world, in order. Every rank must call this, in the same order of calls. Dimensions
    /// are named, or `names` is empty.
    pub fn new(world: &World, shape: &[usize], names: &[&str]) -> Result<Self> {
        let ranks: Vec<usize> = (0..shape.iter().product()).collect();
        if ranks.len() != world.size() {
            return Err(Error::value(format!(
                "DeviceMesh: a mesh of {shape:?} has {} ranks, the world {}",
                ranks.len(),
                world.size()
            )));
        }
        let mut groups = Vec::new();
        for dim in 0..shape.len() {
            for line in lines(&ranks, shape, dim) {
                let whole = line.len() == ranks.len();
                let made = if whole { Some(world.group().clone()) } else { world.new_group(&line)? };
                groups.extend(made.filter(|_| line.contains(&world.rank())));
            }
        }
        let names = names.iter().map(|n| (*n).to_owned()).collect();
        Self::from_groups(ranks, shape.to_vec(), names, world.rank(), groups)
    }

    /// A mesh over groups that exist: for each dimension the group of the ranks that differ from `rank` in it. A rank
    /// outside the mesh passes none.
    pub fn from_groups(
        ranks: Vec<usize>,
        shape: Vec<usize>,
        names: Vec<String>,
        rank: usize,
        groups: Vec<Arc<dyn ProcessGroup>>,
    ) -> Result<Self> {
        if shape.is_empty() || shape.iter().product::<usize>() != ranks.len() || ranks.is_empty() {
            return Err(Error::value(format!("DeviceMesh: {} ranks do not fill a grid of {shape:?}", ranks.len())));
        }
        let mut seen = ranks.clone();
        seen.sort_unstable();
        seen.dedup();
        if seen.len() != ranks.len() {
            return Err(Error::value(format!("DeviceMesh: the ranks {ranks:?} are not different")));
        }
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        if !names.is_empty() && unique.len() != shape.len() {
            return Err(Error::value(format!(
                "DeviceMesh: {names:?} are not different names for {} dimensions",
                shape.len()
            )));
        }
        let coordinate = ranks.iter().position(|&r| r == rank).map(|at| coordinate_of(at, &shape));
        let expected = if coordinate.is_some() { shape.len() } else { 0 };
        if groups.len() != expected {
            return Err(Error::value(format!("DeviceMesh: {} groups for {expected} dimensions", groups.len())));
        }
        if let Some((dim, group)) = groups.iter().enumerate().find(|(dim, g)| g.size() != shape[*dim]) {
            return Err(Error::value(format!(
                "DeviceMesh: the group of dimension {dim} has {} ranks, the mesh {}",
                group.size(),
                shape[dim]
            )));
        }
        Ok(Self { ranks, shape, names, coordinate, groups })
    }

    /// Ranks of the world, row by row.
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// Number of ranks along each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Names of the dimensions; empty if they have none.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Number of dimensions.
    pub fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.ranks.len()
    }

    /// This rank's place in the grid; `None` if it is not in it.
    pub fn coordinate(&self) -> Option<&[usize]> {
        self.coordinate.as_deref()
    }

    /// The number of a named dimension.
    pub fn dim(&self, name: &str) -> Result<usize> {
        self.names.iter().position(|n| n == name).ok_or_else(|| {
            Error::value(format!("DeviceMesh: no dimension is named {name:?}; the mesh has {:?}", self.names))
        })
    }

    /// This rank's group along a dimension.
    pub fn group(&self, dim: usize) -> Result<&Arc<dyn ProcessGroup>> {
        if self.coordinate.is_none() {
            return Err(Error::value("DeviceMesh: this rank is not in the mesh"));
        }
        self.groups.get(dim).ok_or_else(|| {
            Error::value(format!("DeviceMesh: dimension {dim} of a mesh of {} dimensions", self.shape.len()))
        })
    }

    /// This rank's group along a named dimension.
    pub fn group_of(&self, name: &str) -> Result<&Arc<dyn ProcessGroup>> {
        self.group(self.dim(name)?)
    }

    /// The mesh of some dimensions, by name, through this rank.
    pub fn select(&self, names: &[&str]) -> Result<Self> {
        let dims = names.iter().map(|n| self.dim(n)).collect::<Result<Vec<_>>>()?;
        let Some(own) = &self.coordinate else {
            return Err(Error::value("DeviceMesh: this rank is not in the mesh, so it has no part of it"));
        };
        let shape: Vec<usize> = dims.iter().map(|&d| self.shape[d]).collect();
        let rank_at = |place: Vec<usize>| {
            let mut whole = own.clone();
            dims.iter().zip(place).for_each(|(&d, c)| whole[d] = c);
            self.ranks[whole.iter().zip(&self.shape).fold(0, |at, (c, n)| at * n + c)]
        };
        let ranks: Vec<usize> = (0..shape.iter().product()).map(|at| rank_at(coordinate_of(at, &shape))).collect();
        let names = names.iter().map(|n| (*n).to_owned()).collect();
        let groups = dims.iter().map(|&d| self.groups[d].clone()).collect();
        let rank = rank_at(dims.iter().map(|&d| own[d]).collect());
        Self::from_groups(ranks, shape, names, rank, groups)
    }
}

/// The place of number `at` in a grid, row by row.
fn coordinate_of(mut at: usize, shape: &[usize]) -> Vec<usize> {
    let mut place = vec![0; shape.len()];
    for (c, n) in place.iter_mut().zip(shape).rev() {
        (*c, at) = (at % n, at / n);
    }
    place
}

/// The lines of a grid along one dimension.
fn lines(ranks: &[usize], shape: &[usize], dim: usize) -> Vec<Vec<usize>> {
    let inner: usize = shape[dim + 1..].iter().product();
    let outer: usize = shape[..dim].iter().product();
    let at = |o: usize, i: usize, k: usize| ranks[(o * shape[dim] + k) * inner + i];
    (0..outer * inner).map(|line| (0..shape[dim]).map(|k| at(line / inner, line % inner, k)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_grid() {
        let ranks: Vec<usize> = (0..6).collect();
        assert_eq!(lines(&ranks, &[2, 3], 0), [[0, 3], [1, 4], [2, 5]]);
        assert_eq!(lines(&ranks, &[2, 3], 1), [[0, 1, 2], [3, 4, 5]]);
        assert_eq!(coordinate_of(5, &[2, 3]), [1, 2]);
    }
}
