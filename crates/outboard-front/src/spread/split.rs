//! Cuts a graph into steps: pieces that one server runs as a graph, and copies between servers.
//!
//! Pieces are as large as they can be while no piece waits for nodes of another server that it need
//! not wait for: what only some of a server's nodes wait for, or what others wait for, begins and
//! ends a piece. So a copy begins when its source is there, and not when all of its server's nodes
//! are done.

use std::collections::{BTreeMap, BTreeSet};

use crate::backend::{ContextId, ServerId};

/// Where a node's work is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Where {
    Anywhere,
    On(ServerId),
    /// From server to server, in a stream of the context.
    Between {
        ctx: ContextId,
        dst: ServerId,
        src: ServerId,
    },
}

/// Steps of one track follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TrackOf {
    Pieces(ServerId),
    Copies(ContextId),
}

/// Something that is done at once.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) track: TrackOf,
    /// Its nodes; a copy's is one.
    pub(super) nodes: Vec<usize>,
    /// Steps of other tracks, before it in the list. Those of its own track need not be named, nor
    /// those that an earlier one of its track has waited for.
    pub(super) waits: Vec<usize>,
    /// Whether nothing has it wait for what was before the graph.
    pub(super) begins: bool,
    /// Whether what is behind the graph waits for it.
    pub(super) ends: bool,
    /// Whether a step of another track waits for it.
    pub(super) is_awaited: bool,
}

/// Cuts a graph into steps, each behind those that it waits for. Of each node is told where it is,
/// and for which nodes before it in the list it waits.
pub(super) fn split(nodes: &[(Where, Vec<usize>)], default: ServerId) -> Vec<Step> {
    let sites = settle(nodes, default);
    let levels = levels(nodes, &sites);
    let mut of_key: BTreeMap<(usize, TrackOf, usize), Vec<usize>> = BTreeMap::new();
    for (node, site) in sites.iter().enumerate() {
        let key = match *site {
            Where::Between { ctx, .. } => (levels[node], TrackOf::Copies(ctx), node),
            Where::On(server) => (levels[node], TrackOf::Pieces(server), 0),
            Where::Anywhere => (levels[node], TrackOf::Pieces(default), 0),
        };
        of_key.entry(key).or_default().push(node);
    }
    let mut step_of = vec![0; nodes.len()];
    for (step, members) in of_key.values().enumerate() {
        members.iter().for_each(|node| step_of[*node] = step);
    }
    let tracks: Vec<TrackOf> = of_key.keys().map(|(_, track, _)| *track).collect();
    let mut steps: Vec<Step> = Vec::new();
    // The last step of another track that a track has waited for.
    let mut waited: BTreeMap<(TrackOf, TrackOf), usize> = BTreeMap::new();
    let mut begun = BTreeSet::new();
    for ((_, track, _), members) in of_key {
        let all = members.iter().flat_map(|node| &nodes[*node].1).map(|node| step_of[*node]);
        let mut last: BTreeMap<TrackOf, usize> = BTreeMap::new();
        for step in all.filter(|step| tracks[*step] != track) {
            let latest = last.entry(tracks[step]).or_insert(step);
            *latest = step.max(*latest);
        }
        let mut waits = Vec::new();
        for (other, step) in last {
            if waited.get(&(track, other)).is_none_or(|before| *before < step) {
                waited.insert((track, other), step);
                waits.push(step);
                steps[step].is_awaited = true;
            }
        }
        let begins = begun.insert(track) && waits.is_empty();
        let (nodes, ends, is_awaited) = (members, false, false);
        steps.push(Step { track, nodes, waits, begins, ends, is_awaited });
    }
    // The last step of a track ends the graph, unless another track goes on behind it.
    let mut seen = BTreeSet::new();
    for step in steps.iter_mut().rev() {
        step.ends = seen.insert(step.track) && !step.is_awaited;
    }
    steps
}

/// Gives each node a server: one that could be anywhere gets that of a neighbour.
fn settle(nodes: &[(Where, Vec<usize>)], default: ServerId) -> Vec<Where> {
    let mut sites: Vec<Where> = nodes.iter().map(|(site, _)| *site).collect();
    for (node, (_, before)) in nodes.iter().enumerate() {
        if sites[node] == Where::Anywhere {
            let of = |site: Where| match site {
                Where::Between { dst, .. } => Where::On(dst),
                site => site,
            };
            let mut before = before.iter().map(|first| of(sites[*first]));
            sites[node] = before.find(|site| *site != Where::Anywhere).unwrap_or(Where::Anywhere);
        }
    }
    for (node, (_, before)) in nodes.iter().enumerate().rev() {
        let own = match sites[node] {
            Where::Between { src, .. } => Where::On(src),
            Where::Anywhere => Where::On(default),
            site => site,
        };
        if sites[node] == Where::Anywhere {
            sites[node] = own;
        }
        for first in before {
            if sites[*first] == Where::Anywhere {
                sites[*first] = own;
            }
        }
    }
    sites
}

/// How many pieces there are at least on a node's way from the beginning. Nodes of one server and
/// level are a piece: no way leads from it through another step back to it.
fn levels(nodes: &[(Where, Vec<usize>)], sites: &[Where]) -> Vec<usize> {
    let crosses = |from: usize, to: usize| {
        sites[from] != sites[to] || matches!(sites[from], Where::Between { .. })
    };
    let mut is_left = vec![false; nodes.len()];
    for (node, (_, before)) in nodes.iter().enumerate() {
        before.iter().for_each(|first| is_left[*first] |= crosses(*first, node));
    }
    let mut levels = vec![0; nodes.len()];
    for (node, (_, before)) in nodes.iter().enumerate() {
        let behind = |first: &usize| levels[*first] + usize::from(is_left[*first]);
        levels[node] = before.iter().map(behind).max().unwrap_or(0);
    }
    levels
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn server(place: usize) -> ServerId {
        ServerId::new(place).expect("there may be so many")
    }

    fn on(place: usize) -> Where {
        Where::On(server(place))
    }

    fn between(src: usize, dst: usize) -> Where {
        Where::Between { ctx: ContextId(src as u32 + 1), src: server(src), dst: server(dst) }
    }

    fn steps(nodes: &[(Where, &[usize])]) -> Vec<Step> {
        let nodes: Vec<_> = nodes.iter().map(|(site, before)| (*site, before.to_vec())).collect();
        split(&nodes, server(0))
    }

    fn members(steps: &[Step]) -> Vec<Vec<usize>> {
        steps.iter().map(|step| step.nodes.clone()).collect()
    }

    #[test]
    fn a_server_s_nodes_are_one_piece() {
        let steps = steps(&[(on(1), &[]), (on(1), &[0]), (on(1), &[0]), (on(1), &[1, 2])]);
        assert_eq!(members(&steps), [[0, 1, 2, 3]]);
        let step = &steps[0];
        assert!(step.begins && step.ends && !step.is_awaited && step.waits.is_empty());
    }

    #[test]
    fn a_copy_begins_when_its_source_is_there() {
        // Two rounds of work on the first server, the result of each copied to the second one.
        let steps = steps(&[
            (on(0), &[]),
            (between(0, 1), &[0]),
            (on(1), &[1]),
            (on(0), &[0]),
            (between(0, 1), &[3]),
            (on(1), &[2, 4]),
        ]);
        assert_eq!(members(&steps), [[0], [3], [1], [2], [4], [5]]);
        let waits: Vec<_> = steps.iter().map(|step| step.waits.clone()).collect();
        assert_eq!(waits, [vec![], vec![], vec![0], vec![2], vec![1], vec![4]]);
        let flags = |of: fn(&Step) -> bool| steps.iter().map(of).collect::<Vec<_>>();
        assert_eq!(flags(|step| step.begins), [true, false, false, false, false, false]);
        assert_eq!(flags(|step| step.ends), [false, false, false, false, false, true]);
    }

    #[test]
    fn what_could_be_anywhere_is_where_its_neighbours_are() {
        let steps = steps(&[
            (Where::Anywhere, &[]),
            (on(1), &[0]),
            (Where::Anywhere, &[1]),
            (between(1, 2), &[2]),
            (Where::Anywhere, &[3]),
            (Where::Anywhere, &[]),
        ]);
        let tracks: Vec<_> = steps.iter().map(|step| (step.track, step.nodes.clone())).collect();
        assert_eq!(
            tracks,
            [
                (TrackOf::Pieces(server(0)), vec![5]),
                (TrackOf::Pieces(server(1)), vec![0, 1, 2]),
                (TrackOf::Copies(ContextId(2)), vec![3]),
                (TrackOf::Pieces(server(2)), vec![4]),
            ]
        );
    }

    /// What a step comes behind: the one before it in its track, those that it waits for, and what
    /// these come behind.
    fn behind(steps: &[Step]) -> Vec<BTreeSet<usize>> {
        let mut all: Vec<BTreeSet<usize>> = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            let before = (0..at).rev().find(|other| steps[*other].track == step.track);
            let direct: Vec<usize> = step.waits.iter().copied().chain(before).collect();
            let mut own: BTreeSet<usize> = direct.iter().copied().collect();
            direct.iter().for_each(|other| own.extend(&all[*other]));
            all.push(own);
        }
        all
    }

    prop_compose! {
        fn graphs()(
            raw in prop::collection::vec((0..4_usize, 0..3_usize, 0..3_usize, any::<u64>()), 1..24)
        ) -> Vec<(Where, Vec<usize>)> {
            let node = |(at, (kind, one, other, bits)): (usize, &(usize, usize, usize, u64))| {
                let site = match kind {
                    0 => Where::Anywhere,
                    1 if one != other => between(*one, *other),
                    _ => on(*one),
                };
                (site, (0..at).filter(|first| (bits >> (2 * first)) & 3 == 3).collect())
            };
            raw.iter().enumerate().map(node).collect()
        }
    }

    proptest! {
        #[test]
        fn each_node_comes_behind_those_that_it_waits_for(nodes in graphs()) {
            let steps = split(&nodes, server(0));
            let mut step_of = vec![usize::MAX; nodes.len()];
            for (at, step) in steps.iter().enumerate() {
                prop_assert!(step.waits.iter().all(|other| *other < at));
                prop_assert!(step.waits.iter().all(|other| steps[*other].is_awaited));
                for node in &step.nodes {
                    prop_assert_eq!(step_of[*node], usize::MAX, "in two steps");
                    step_of[*node] = at;
                }
            }
            let behind = behind(&steps);
            for (node, (site, before)) in nodes.iter().enumerate() {
                let own = step_of[node];
                match site {
                    Where::On(server) => {
                        prop_assert_eq!(steps[own].track, TrackOf::Pieces(*server));
                    }
                    Where::Between { ctx, .. } => {
                        prop_assert_eq!(steps[own].track, TrackOf::Copies(*ctx));
                        prop_assert_eq!(steps[own].nodes.len(), 1);
                    }
                    Where::Anywhere => {}
                }
                for first in before {
                    let first = step_of[*first];
                    prop_assert!(first == own || behind[own].contains(&first));
                }
            }
            // All come behind what begins the graph and before what ends it.
            for (at, step) in steps.iter().enumerate() {
                let begins = |other: &usize| steps[*other].begins;
                prop_assert!(step.begins || behind[at].iter().any(begins));
                let is_before = |other: usize| steps[other].ends && behind[other].contains(&at);
                prop_assert!(step.ends || (0..steps.len()).any(is_before));
            }
        }
    }
}
