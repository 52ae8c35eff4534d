//! Places for a graph's nodes: layers by the longest path, order within a layer by the neighbours' middle, and long
//! edges through places of their own in the layers between.

use super::program::Drawn;

/// Height of a box, and the distances between boxes.
pub(super) const HEIGHT: f64 = 54.0;
const BETWEEN: f64 = 26.0;
const BESIDE: f64 = 22.0;
const MARGIN: f64 = 24.0;
/// Width that an edge takes in a layer.
const EDGE: f64 = 10.0;
const SWEEPS: usize = 12;

/// A node's middle and its box.
#[derive(Clone, Copy, Default)]
pub(super) struct Spot {
    pub x: f64,
    pub y: f64,
    pub width: f64,
}

/// A box around the nodes of a module.
pub(super) struct Group {
    pub name: String,
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

/// The picture.
pub(super) struct Placed {
    pub nodes: Vec<Spot>,
    /// The points of each edge, from the upper box to the lower one.
    pub edges: Vec<Vec<(f64, f64)>>,
    pub groups: Vec<Group>,
    pub width: f64,
    pub height: f64,
}

/// A node, or a place of an edge, in a layer.
struct Item {
    layer: usize,
    width: f64,
    x: f64,
    up: Vec<usize>,
    down: Vec<usize>,
}

/// About how wide a line of text is.
fn text_width(text: &str, per: f64) -> f64 {
    text.chars().count() as f64 * per
}

pub(super) fn place(drawn: &Drawn) -> Placed {
    let count = drawn.nodes.len();
    let mut layer = vec![0usize; count];
    for (i, node) in drawn.nodes.iter().enumerate() {
        // Nodes come in the order of the program: those that are read are before.
        layer[i] = node.reads.iter().filter(|&&from| from < i).map(|&from| layer[from] + 1).max().unwrap_or(0);
    }
    // What reads no input is drawn above its first reader, not at the top.
    for i in (0..count).rev() {
        if drawn.nodes[i].reads.is_empty() {
            let first = (i + 1..count).filter(|&to| drawn.nodes[to].reads.contains(&i)).map(|to| layer[to]).min();
            layer[i] = first.map_or(layer[i], |first| first.saturating_sub(1));
        }
    }
    let mut items: Vec<Item> = drawn
        .nodes
        .iter()
        .zip(&layer)
        .map(|(node, &layer)| {
            let widest = node
                .lines()
                .iter()
                .map(|(class, text)| text_width(text, if *class == "op" { 7.6 } else { 6.4 }))
                .fold(0.0, f64::max);
            Item { layer, width: widest.max(40.0) + 20.0, x: 0.0, up: Vec::new(), down: Vec::new() }
        })
        .collect();
    let mut routes = Vec::new();
    for (to, node) in drawn.nodes.iter().enumerate() {
        let mut reads = node.reads.clone();
        reads.sort_unstable();
        reads.dedup();
        for from in reads.into_iter().filter(|&from| from < to) {
            let mut route = vec![from];
            for between in layer[from] + 1..layer[to] {
                items.push(Item { layer: between, width: EDGE, x: 0.0, up: Vec::new(), down: Vec::new() });
                route.push(items.len() - 1);
            }
            route.push(to);
            for pair in route.windows(2) {
                items[pair[0]].down.push(pair[1]);
                items[pair[1]].up.push(pair[0]);
            }
            routes.push(route);
        }
    }
    let layers = order(&items);
    spread(&mut items, &layers);
    let y = |layer: usize| MARGIN + layer as f64 * (HEIGHT + BETWEEN);
    let left = items.iter().map(|i| i.x - i.width / 2.0).fold(f64::INFINITY, f64::min);
    let shift = if left.is_finite() { MARGIN - left } else { MARGIN };
    items.iter_mut().for_each(|item| item.x += shift);
    let nodes: Vec<Spot> = items[..count].iter().map(|i| Spot { x: i.x, y: y(i.layer), width: i.width }).collect();
    let edges = routes
        .iter()
        .map(|route| {
            let mut points = Vec::new();
            for (at, &item) in route.iter().enumerate() {
                let (x, top) = (items[item].x, y(items[item].layer));
                if at > 0 {
                    points.push((x, top));
                }
                if at + 1 < route.len() {
                    points.push((x, top + HEIGHT));
                }
            }
            points
        })
        .collect();
    let right = items.iter().map(|i| i.x + i.width / 2.0).fold(0.0, f64::max);
    let bottom = nodes.iter().map(|n| n.y + HEIGHT).fold(0.0, f64::max);
    Placed { groups: groups(drawn, &nodes), nodes, edges, width: right + MARGIN, height: bottom + MARGIN }
}

/// The items of each layer from left to right, with few crossings: sweeps down and up that sort by the mean position of
/// the neighbours.
fn order(items: &[Item]) -> Vec<Vec<usize>> {
    let last = items.iter().map(|i| i.layer).max().unwrap_or(0);
    let mut layers = vec![Vec::new(); last + 1];
    (0..items.len()).for_each(|i| layers[items[i].layer].push(i));
    let mut place = vec![0.0; items.len()];
    let number = |layer: &[usize], place: &mut [f64]| {
        layer.iter().enumerate().for_each(|(at, &i)| place[i] = (at as f64 + 0.5) / layer.len() as f64);
    };
    layers.iter().for_each(|layer| number(layer, &mut place));
    for sweep in 0..SWEEPS {
        let down = sweep % 2 == 0;
        for step in 0..=last {
            let at = if down { step } else { last - step };
            let wish = |i: usize| {
                let near = if down { &items[i].up } else { &items[i].down };
                if near.is_empty() { place[i] } else { near.iter().map(|&n| place[n]).sum::<f64>() / near.len() as f64 }
            };
            let mut wishes: Vec<(f64, usize)> = layers[at].iter().map(|&i| (wish(i), i)).collect();
            wishes.sort_by(|a, b| a.0.total_cmp(&b.0));
            layers[at] = wishes.into_iter().map(|(_, i)| i).collect();
            number(&layers[at], &mut place);
        }
    }
    layers
}

/// Horizontal positions: each item goes to the middle of its neighbours as far as those beside it allow.
fn spread(items: &mut [Item], layers: &[Vec<usize>]) {
    let gap = |items: &[Item], a: usize, b: usize| (items[a].width + items[b].width) / 2.0 + BESIDE;
    for layer in layers {
        let mut x = 0.0;
        for (at, &i) in layer.iter().enumerate() {
            if at > 0 {
                x += gap(items, layer[at - 1], i);
            }
            items[i].x = x;
        }
        layer.iter().for_each(|&i| items[i].x -= x / 2.0);
    }
    for sweep in 0..2 * SWEEPS {
        let down = sweep % 2 == 0;
        for step in 0..layers.len() {
            let layer = &layers[if down { step } else { layers.len() - 1 - step }];
            let wishes: Vec<f64> = layer
                .iter()
                .map(|&i| {
                    let near = if down { &items[i].up } else { &items[i].down };
                    if near.is_empty() {
                        return items[i].x;
                    }
                    near.iter().map(|&n| items[n].x).sum::<f64>() / near.len() as f64
                })
                .collect();
            // The mean of a pass from the left and one from the right, both without overlaps, has none.
            let (mut from_left, mut from_right) = (wishes.clone(), wishes);
            for at in 1..layer.len() {
                from_left[at] = from_left[at].max(from_left[at - 1] + gap(items, layer[at - 1], layer[at]));
            }
            for at in (0..layer.len().saturating_sub(1)).rev() {
                from_right[at] = from_right[at].min(from_right[at + 1] - gap(items, layer[at], layer[at + 1]));
            }
            for (at, &i) in layer.iter().enumerate() {
                items[i].x = (from_left[at] + from_right[at]) / 2.0;
            }
        }
    }
}

/// Boxes around the nodes of each group that has several.
fn groups(drawn: &Drawn, spots: &[Spot]) -> Vec<Group> {
    let mut names: Vec<&str> = drawn.nodes.iter().map(|n| n.group.as_str()).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    names.dedup();
    let mut found = Vec::new();
    for name in names {
        let own: Vec<&Spot> =
            drawn.nodes.iter().zip(spots).filter(|(node, _)| node.group == name).map(|(_, spot)| spot).collect();
        if own.len() < 2 {
            continue;
        }
        let least = |f: &dyn Fn(&Spot) -> f64| own.iter().map(|s| f(s)).fold(f64::INFINITY, f64::min);
        let (x, y) = (least(&|s| s.x - s.width / 2.0) - 8.0, least(&|s| s.y) - 19.0);
        let (right, bottom) = (-least(&|s| -s.x - s.width / 2.0) + 8.0, -least(&|s| -s.y) + HEIGHT + 4.0);
        found.push(Group { name: name.into(), x, y, width: right - x, height: bottom - y });
    }
    found
}
