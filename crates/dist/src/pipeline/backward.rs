//! A backward pass in two parts: the gradients of inputs, which other ranks wait for, and later those of weights.

use rushlight_core::Result;
use rushlight_tensor::Tensor;
use rushlight_tensor::autograd::{Backward, GradientEdge, GraphNode, backward_from, no_grad, root};
use std::collections::{HashMap, HashSet};

/// A backward pass whose first part is done: see [`SplitBackward::inputs`].
pub struct SplitBackward {
    /// For the whole graph, if its weights' gradients cannot be separated node by node.
    whole: Option<Vec<(GradientEdge, Tensor)>>,
    /// Nodes where paths to inputs and to weights part: arriving gradients, and the weights behind.
    joints: Vec<(Vec<(GradientEdge, Tensor)>, Vec<Tensor>)>,
}

/// A node's place in the graph: whether inputs are behind it, and which weights are.
struct Reach {
    inputs: bool,
    weights: HashSet<usize>,
}

impl SplitBackward {
    /// Computes the gradients of `inputs` only, `None` for those that do not matter. `outputs` come with their
    /// gradients; a scalar may come without. [`weights`](Self::weights) continues from where this stops.
    pub fn inputs(
        outputs: &[(&Tensor, Option<&Tensor>)],
        inputs: &[&Tensor],
    ) -> Result<(Vec<Option<Tensor>>, SplitBackward)> {
        let roots = outputs
            .iter()
            .filter(|(output, _)| output.requires_grad())
            .map(|(output, gradient)| root(output, *gradient))
            .collect::<Result<Vec<_>>>()?;
        let edges: Vec<Option<GradientEdge>> = inputs.iter().map(|input| input.gradient_edge()).collect();
        if edges.iter().all(Option::is_none) || roots.is_empty() {
            return Ok((vec![None; inputs.len()], Self { whole: Some(roots), joints: Vec::new() }));
        }
        let targets: HashSet<usize> = edges.iter().flatten().map(|edge| edge.node().id()).collect();
        let graph = Graph::of(&roots, &targets);
        let joints = graph.joints();
        let mut wanted: Vec<GradientEdge> = edges.iter().flatten().cloned().collect();
        let known = wanted.len();
        for (node, _) in joints.iter().flatten() {
            for output in 0..node.outputs() {
                wanted.push(GradientEdge::new(node, output)?);
            }
        }
        let options = Backward::default().retain_graph(true).allow_unused(true);
        let mut found = backward_from(roots.clone(), options, Some(&wanted))?;
        let arrived = found.split_off(known);
        let mut grads = found.into_iter();
        let grads = edges.iter().map(|edge| edge.as_ref().and_then(|_| grads.next().flatten())).collect();
        let rest = match joints {
            None => Self { whole: Some(roots), joints: Vec::new() },
            Some(joints) => {
                let mut arrived = wanted.into_iter().skip(known).zip(arrived);
                let mut parts = Vec::new();
                for (node, weights) in joints {
                    let here: Vec<_> = arrived.by_ref().take(node.outputs()).collect();
                    let here = here.into_iter().filter_map(|(edge, gradient)| Some((edge, gradient?)));
                    parts.push((here.collect(), weights));
                }
                Self { whole: None, joints: parts }
            }
        };
        Ok((grads, rest))
    }

    /// Adds the gradients of the weights to their `.grad`, and frees the graph.
    pub fn weights(self) -> Result<()> {
        if let Some(roots) = self.whole {
            return if roots.is_empty() { Ok(()) } else { backward_from(roots, Backward::default(), None).map(drop) };
        }
        for (roots, weights) in self.joints {
            if roots.is_empty() {
                continue;
            }
            let edges: Vec<GradientEdge> = weights.iter().filter_map(Tensor::gradient_edge).collect();
            let found = backward_from(roots, Backward::default().allow_unused(true), Some(&edges))?;
            for (weight, gradient) in weights.iter().zip(found) {
                if let Some(gradient) = gradient {
                    no_grad(|| match weight.grad() {
                        Some(sum) => sum.add_(&gradient).map(drop),
                        None => weight.set_grad(Some(gradient)),
                    })?;
                }
            }
        }
        Ok(())
    }
}

/// The graph under some roots, producers before consumers.
struct Graph {
    nodes: Vec<GraphNode>,
    reach: HashMap<usize, Reach>,
}

impl Graph {
    fn of(roots: &[(GradientEdge, Tensor)], targets: &HashSet<usize>) -> Self {
        let (mut nodes, mut seen) = (Vec::new(), HashSet::new());
        // Iterative depth-first order: a node is listed after all nodes behind it.
        let mut stack: Vec<(GraphNode, bool)> = roots.iter().map(|(edge, _)| (edge.node(), false)).collect();
        while let Some((node, visited)) = stack.pop() {
            if visited {
                nodes.push(node);
            } else if seen.insert(node.id()) {
                let behind: Vec<GraphNode> =
                    node.next_functions().into_iter().flatten().map(|(node, _)| node).collect();
                stack.push((node, true));
                stack.extend(behind.into_iter().map(|node| (node, false)));
            }
        }
        let mut reach: HashMap<usize, Reach> = HashMap::new();
        for node in &nodes {
            let is_target = targets.contains(&node.id());
            let mut own = Reach { inputs: is_target, weights: HashSet::new() };
            if node.variable().is_some() && !is_target {
                own.weights.insert(node.id());
            }
            if !is_target {
                for (behind, _) in node.next_functions().into_iter().flatten() {
                    if let Some(other) = reach.get(&behind.id()) {
                        own.inputs |= other.inputs;
                        // Weights behind inputs belong to the node where they part.
                        if !other.inputs {
                            own.weights.extend(&other.weights);
                        }
                    }
                }
            }
            reach.insert(node.id(), own);
        }
        Self { nodes, reach }
    }

    /// Nodes that lead both to inputs and, past no other such node, to weights, with those weights. `None` if a weight
    /// is reached from two of them, or from a root that leads to no input: then a second pass over the whole graph is
    /// needed.
    fn joints(&self) -> Option<Vec<(GraphNode, Vec<Tensor>)>> {
        let leaves: HashMap<usize, Tensor> =
            self.nodes.iter().filter_map(|node| Some((node.id(), node.variable()?))).collect();
        let (mut found, mut taken) = (Vec::new(), HashSet::new());
        for node in &self.nodes {
            let Some(reach) = self.reach.get(&node.id()) else { continue };
            if !reach.inputs || reach.weights.is_empty() {
                continue;
            }
            if reach.weights.iter().any(|weight| !taken.insert(*weight)) {
                return None;
            }
            let weights = reach.weights.iter().filter_map(|weight| leaves.get(weight).cloned()).collect();
            found.push((node.clone(), weights));
        }
        let all = leaves.keys().filter(|leaf| self.reach.get(leaf).is_some_and(|reach| !reach.inputs)).count();
        (all == taken.len()).then_some(found)
    }
}
