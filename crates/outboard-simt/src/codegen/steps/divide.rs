//! Registers that lanes which went different ways may hold different values in.

use crate::codegen::steps::regions::Regions;
use crate::codegen::steps::registers::{Registers, written};
use crate::codegen::visit::{Use, registers};
use outboard_ptx::ir::Body;

/// How many uses of registers may be looked at for each block of a body.
const EFFORT: usize = 256;

impl Registers<'_> {
    /// Notes what is written where lanes are apart.
    pub(super) fn part(&mut self, body: &Body, regions: &Regions, branching: &[usize]) -> bool {
        let left: Vec<Option<(usize, usize)>> =
            branching.iter().map(|&block| regions.left_loop(block)).collect();
        let inner =
            branching.iter().zip(&left).filter(|(_, left)| left.is_none()).map(|(&block, _)| block);
        let changed = self.divide(body, regions, &inner.collect::<Vec<_>>());
        let mut loops: Vec<(usize, usize)> = left.into_iter().flatten().collect();
        loops.sort_by_key(|&(first, last)| (first, std::cmp::Reverse(last)));
        loops.dedup();
        let mut open: Vec<(usize, usize)> = Vec::new();
        let mut coming = loops.into_iter().peekable();
        for (at, block) in body.blocks.iter().enumerate() {
            open.retain(|&(_, last)| last >= at);
            while let Some(range) = coming.next_if(|&(first, _)| first <= at) {
                open.push(range);
            }
            let Some(&range) = open.last() else { continue };
            for inst in &block.insts {
                written(inst, |reg| self.left[reg] = Some(range));
            }
        }
        changed
    }

    /// Notes what is written on one way from a branch and read where lanes come by that took
    /// another.
    fn divide(&mut self, body: &Body, regions: &Regions, branching: &[usize]) -> bool {
        let mut read: Vec<Vec<u32>> = vec![Vec::new(); body.regs.len()];
        for (at, block) in body.blocks.iter().enumerate() {
            for inst in &block.insts {
                registers(inst, |how, reg| {
                    let blocks = &mut read[reg.0 as usize];
                    if how == Use::Read
                        && self.merged[reg.0 as usize]
                        && blocks.last() != Some(&(at as u32))
                    {
                        blocks.push(at as u32);
                    }
                });
            }
        }
        let (mut changed, mut effort) = (false, body.blocks.len() * EFFORT + (1 << 16));
        let mut only = vec![usize::MAX; body.blocks.len()];
        let mut number = 0;
        let complete = regions.between(branching, |blocks, _| {
            number += 1;
            blocks
                .iter()
                .filter(|between| !between.joint)
                .for_each(|between| only[between.block] = number);
            let insts = |at: usize| body.blocks[at].insts.iter().map(move |inst| (at, inst));
            for (at, inst) in blocks.iter().flat_map(|between| insts(between.block)) {
                written(inst, |reg| {
                    if self.merged[reg] && !self.apart[reg] {
                        effort = effort.saturating_sub(read[reg].len());
                        self.apart[reg] = effort == 0
                            || read[reg].iter().any(|&block| {
                                only[block as usize] != number
                                    && regions.follows(block as usize, at)
                            });
                        changed |= self.apart[reg];
                    }
                });
            }
        });
        if !complete {
            changed |= self.apart.contains(&false);
            self.apart.fill(true);
        }
        changed
    }
}
