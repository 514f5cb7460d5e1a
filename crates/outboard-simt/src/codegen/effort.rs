//! What it would take to compile a function, found out before it is tried.
//!
//! The code generator carries each register that is alive into each of its blocks, from each block
//! before it: time and memory follow that number, and a small text can make it the square of its
//! length. Here it is counted as far as may be, without anything being built.

use crate::codegen::analysis::successors;
use crate::codegen::visit::{Use, registers};
use crate::program::LoadError;
use outboard_ptx::ir::{Body, Function, Inst, Op};

/// The most of it for one function: some seconds and half a gigabyte. A kernel that holds 250
/// values over 20,000 loads and branches takes half.
const MOST_EFFORT: u64 = 32 << 20;
/// The most branches of one function, each target of a table counted.
const BRANCHES: u64 = 256 << 10;

/// Instructions between which the generator makes no block of its own.
struct Segment {
    first: usize,
    /// The index behind the last.
    end: usize,
    /// Segments before it, once for each way from there.
    before: Vec<u32>,
    /// How many blocks end where it begins.
    blocks: u64,
}

/// Whether the generator makes blocks of its own for an instruction: where it may fault, and where
/// it is not always carried out.
fn splits(inst: &Inst) -> bool {
    inst.guard.is_some()
        || matches!(
            inst.op,
            Op::Ld { .. }
                | Op::St { .. }
                | Op::Atom { .. }
                | Op::Tex { .. }
                | Op::SurfaceLoad { .. }
                | Op::SurfaceStore { .. }
                | Op::TextureQuery { .. }
                | Op::CpAsync { .. }
                | Op::Mbarrier { .. }
                | Op::Call { .. }
                | Op::Bar { .. }
                | Op::IntBin { .. }
        )
}

/// Refuses a function that would take too much.
pub(crate) fn check(function: &Function, body: &Body) -> Result<(), LoadError> {
    let refuse = || LoadError::TooLarge {
        function: function.name.clone(),
        line: function.line,
        registers: body.regs.len(),
        blocks: body.blocks.len(),
    };
    let next = successors(body);
    let branches: u64 = next.iter().map(|list| list.len() as u64).sum();
    if branches > BRANCHES + body.blocks.len() as u64 * 2 {
        return Err(refuse());
    }
    let segments = segments(body, &next);
    let uses = uses(body, &segments);
    if alive(body, &segments, &uses, MOST_EFFORT) { Ok(()) } else { Err(refuse()) }
}

/// Cuts a body.
fn segments(body: &Body, next: &[Vec<usize>]) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    let mut first_of = Vec::with_capacity(body.blocks.len());
    let mut last_of = Vec::with_capacity(body.blocks.len());
    let mut at = 0;
    for block in &body.blocks {
        first_of.push(segments.len());
        let (mut first, mut before, mut blocks) = (at, Vec::new(), 0);
        for (index, inst) in block.insts.iter().enumerate() {
            at += 1;
            if splits(inst) && index + 1 < block.insts.len() {
                segments.push(Segment { first, end: at, before, blocks });
                (first, before, blocks) = (at, vec![segments.len() as u32 - 1], 3);
            }
        }
        segments.push(Segment { first, end: at, before, blocks });
        last_of.push(segments.len() - 1);
    }
    for (block, list) in next.iter().enumerate() {
        for &target in list {
            let segment = &mut segments[first_of[target]];
            segment.before.push(last_of[block] as u32);
            segment.blocks += 1;
        }
    }
    segments
}

/// For each register, the segments in which it is read before it is written.
fn uses(body: &Body, segments: &[Segment]) -> Vec<(u32, u32)> {
    let insts: Vec<&Inst> = body.blocks.iter().flat_map(|block| &block.insts).collect();
    let mut found = Vec::new();
    // The segment in which a register was written last.
    let mut written = vec![u32::MAX; body.regs.len()];
    let mut read = vec![u32::MAX; body.regs.len()];
    for (number, segment) in segments.iter().enumerate() {
        let number = number as u32;
        for inst in &insts[segment.first..segment.end] {
            registers(inst, |how, reg| {
                let reg = reg.0 as usize;
                // What is written under a guard keeps its old value otherwise.
                let reads = how == Use::Read || inst.guard.is_some();
                if reads && written[reg] != number && read[reg] != number {
                    read[reg] = number;
                    found.push((reg as u32, number));
                }
            });
            registers(inst, |how, reg| {
                if how == Use::Write && inst.guard.is_none() {
                    written[reg.0 as usize] = number;
                }
            });
        }
    }
    found.sort_unstable();
    found
}

/// Whether, over all registers, the ways into the segments in which they are alive are at most so
/// many.
fn alive(body: &Body, segments: &[Segment], uses: &[(u32, u32)], most: u64) -> bool {
    // Segments that write a register, sorted.
    let insts: Vec<&Inst> = body.blocks.iter().flat_map(|block| &block.insts).collect();
    let mut writes = Vec::new();
    for (number, segment) in segments.iter().enumerate() {
        for inst in insts[segment.first..segment.end].iter().filter(|inst| inst.guard.is_none()) {
            registers(inst, |how, reg| {
                if how == Use::Write {
                    writes.push((reg.0, number as u32));
                }
            });
        }
    }
    writes.sort_unstable();
    writes.dedup();
    // The register for which a segment was seen last.
    let mut seen = vec![u32::MAX; segments.len()];
    let mut writer = vec![u32::MAX; segments.len()];
    let (mut sum, mut work) = (0u64, Vec::new());
    let (mut uses, mut writes) = (uses.iter().peekable(), writes.iter().peekable());
    while let Some(&&(reg, _)) = uses.peek() {
        while let Some((other, segment)) = writes.next_if(|(other, _)| *other <= reg) {
            writer[*segment as usize] = *other;
        }
        while let Some((_, segment)) = uses.next_if(|(other, _)| *other == reg) {
            if seen[*segment as usize] != reg {
                seen[*segment as usize] = reg;
                work.push(*segment);
            }
        }
        while let Some(segment) = work.pop() {
            let segment = &segments[segment as usize];
            sum += segment.blocks.max(1);
            if sum > most {
                return false;
            }
            for &before in &segment.before {
                let before_index = before as usize;
                if writer[before_index] != reg && seen[before_index] != reg {
                    seen[before_index] = reg;
                    work.push(before);
                }
            }
        }
    }
    true
}
