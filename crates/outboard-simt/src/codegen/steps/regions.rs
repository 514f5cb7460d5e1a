//! Which parts of a body lanes of a warp may go through apart from each other.

use crate::codegen::analysis::successors;
use outboard_ptx::ir::Body;

/// How many blocks may be looked at for each block of a body, for all of its branches.
const EFFORT: usize = 64;

/// The control flow of a body.
pub(crate) struct Regions {
    pub(crate) next: Vec<Vec<usize>>,
    /// The block at which all ways from a block come together again; the number of blocks for the
    /// end.
    meets: Vec<usize>,
    /// Loops as ranges of blocks, from where a branch goes back to where it is.
    loops: Vec<(usize, usize)>,
    /// For each block, the first one of the largest loop that it is in.
    starts: Vec<usize>,
}

impl Regions {
    pub(crate) fn new(body: &Body) -> Regions {
        let next = successors(body);
        let mut loops: Vec<(usize, usize)> = Vec::new();
        for (block, list) in next.iter().enumerate() {
            loops.extend(
                list.iter().filter(|&&target| target <= block).map(|&target| (target, block)),
            );
        }
        loops.sort_by_key(|&(first, last)| last - first);
        loops.dedup();
        let mut starts: Vec<usize> = (0..next.len()).collect();
        let mut last = vec![0; next.len()];
        loops.iter().for_each(|&(first, end)| last[first] = last[first].max(end));
        let (mut start, mut end) = (0, 0);
        for (block, first) in starts.iter_mut().enumerate() {
            if block > end {
                (start, end) = (block, block);
            }
            end = end.max(last[block]);
            *first = start;
        }
        let meets = meets(&next);
        Regions { next, meets, loops, starts }
    }

    /// Whether a block may come after another one, itself included.
    pub(crate) fn follows(&self, block: usize, other: usize) -> bool {
        block >= self.starts[other]
    }

    /// The smallest loop that a block is in and that a branch at its end may leave.
    pub(crate) fn left_loop(&self, block: usize) -> Option<(usize, usize)> {
        let inside = |(first, last): (usize, usize), block: usize| first <= block && block <= last;
        let mut around =
            self.loops.iter().take(EFFORT * 16).copied().filter(|&range| inside(range, block));
        around.find(|&range| self.next[block].iter().any(|&target| !inside(range, target)))
    }

    /// Calls `visit` for each branch with the blocks between it and where its ways meet, and with
    /// that place, which may be the end. False if that would take too long.
    pub(crate) fn between(
        &self,
        branching: &[usize],
        mut visit: impl FnMut(&[Between], usize),
    ) -> bool {
        let count = self.next.len();
        let mut left = count * EFFORT + 1024;
        // By block: the way that came by last, and where it is in the list if that is of this
        // branch.
        let (mut seen, mut listed) = (vec![usize::MAX; count], vec![(usize::MAX, 0); count]);
        let mut ways = 0;
        for &branch in branching {
            let mut found: Vec<Between> = Vec::new();
            for &target in &self.next[branch] {
                ways += 1;
                let mut work = vec![target];
                while let Some(block) = work.pop() {
                    if block == self.meets[branch] || seen[block] == ways {
                        continue;
                    }
                    if left == 0 {
                        return false;
                    }
                    left -= 1;
                    seen[block] = ways;
                    if listed[block].0 == branch {
                        found[listed[block].1].joint = true;
                    } else {
                        listed[block] = (branch, found.len());
                        found.push(Between { block, joint: false });
                    }
                    work.extend(&self.next[block]);
                }
            }
            visit(&found, self.meets[branch]);
        }
        true
    }
}

/// A block between a branch and where its ways meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Between {
    pub(crate) block: usize,
    /// More than one of the ways leads there.
    pub(crate) joint: bool,
}

/// Immediate postdominators (Cooper, Harvey and Kennedy, on the reversed graph).
fn meets(next: &[Vec<usize>]) -> Vec<usize> {
    const NONE: usize = usize::MAX;
    let end = next.len();
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); end + 1];
    for (block, list) in next.iter().enumerate() {
        list.iter().for_each(|&target| before[target].push(block));
        if list.is_empty() {
            before[end].push(block);
        }
    }
    // Post-order from the end against the edges.
    let mut number = vec![NONE; end + 1];
    let mut order = Vec::with_capacity(end + 1);
    let mut seen = vec![false; end + 1];
    let mut work = vec![(end, 0)];
    seen[end] = true;
    while let Some(top) = work.last_mut() {
        let (block, at) = *top;
        match before[block].get(at) {
            Some(&other) => {
                top.1 += 1;
                if !std::mem::replace(&mut seen[other], true) {
                    work.push((other, 0));
                }
            }
            None => {
                number[block] = order.len();
                order.push(block);
                work.pop();
            }
        }
    }
    let mut meets = vec![NONE; end + 1];
    meets[end] = end;
    let mut changed = true;
    while changed {
        changed = false;
        for &block in order.iter().rev().skip(1) {
            let targets = &next[block];
            let mut found = if targets.is_empty() { end } else { NONE };
            for &target in targets.iter().filter(|&&target| meets[target] != NONE) {
                let (mut a, mut b) = (target, found);
                while b != NONE && a != b {
                    if number[a] < number[b] { a = meets[a] } else { b = meets[b] }
                }
                found = a;
            }
            if meets[block] != found {
                meets[block] = found;
                changed = true;
            }
        }
    }
    meets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_meet_again() {
        // 0 branches to 1 and 2, which meet in 3; 3 loops; 4 ends.
        let next = vec![vec![2, 1], vec![3], vec![3], vec![3, 4], vec![]];
        assert_eq!(meets(&next), [3, 3, 3, 4, 5, 5]);
        let regions =
            Regions { meets: meets(&next), next, loops: vec![(3, 3)], starts: vec![0, 1, 2, 3, 4] };
        let mut found = Vec::new();
        assert!(regions.between(&[0], |blocks, meet| found.push((blocks.to_vec(), meet))));
        let apart = |block| Between { block, joint: false };
        assert_eq!(found, [(vec![apart(2), apart(1)], 3)]);
        assert_eq!(regions.left_loop(3), Some((3, 3)));
        assert_eq!(regions.left_loop(0), None);
    }
}
