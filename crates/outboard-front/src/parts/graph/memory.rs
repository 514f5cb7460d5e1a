//! Memory that graphs allocate and free while they run. Its addresses are fixed when the nodes are
//! made.

use std::collections::HashMap;

use crate::backend::DevicePtr;
use outboard_wire::graph::NodeParams;

use crate::parts::graph::model::{Given, Node};

/// How many graphs and executables allocate each address: while there is one, freeing it ends only
/// what a launch has allocated.
#[derive(Debug, Default)]
pub(crate) struct Held(pub(crate) HashMap<DevicePtr, u32>);

/// What a graph or an executable allocates: addresses, and whether it also frees them. Two nodes
/// may have one address, the second after the first was freed.
pub(crate) type Allocates = Vec<(DevicePtr, bool)>;

impl Held {
    pub(crate) fn hold(&mut self, allocates: &Allocates) {
        allocates.iter().for_each(|(address, _)| *self.0.entry(*address).or_default() += 1);
    }
}

/// What nodes allocate.
pub(crate) fn allocated<'a>(nodes: impl Iterator<Item = &'a Node>) -> Allocates {
    let (mut addresses, mut frees) = (Vec::new(), HashMap::<DevicePtr, usize>::new());
    for node in nodes {
        match (&node.params, &node.given) {
            (NodeParams::Free { address }, _) => *frees.entry(*address).or_default() += 1,
            (_, Given::Address(address, _)) => addresses.push(*address),
            _ => {}
        }
    }
    let allocations = |address| addresses.iter().filter(|other| **other == address).count();
    addresses
        .iter()
        .map(|at| (*at, frees.get(at).is_some_and(|frees| *frees >= allocations(*at))))
        .collect()
}
