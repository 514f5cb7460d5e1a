//! Where shared variables lie in the shared memory of a block.
//!
//! A device function is compiled once, so a variable it uses must have the same offset in every
//! kernel that calls the function. Variables of kernels that never meet may overlap, so a module
//! with many kernels needs no more shared memory than its greediest kernel.

use std::collections::BTreeSet;

use crate::ir::{Base, Callee, FuncId, Function, Global, GlobalId, Op};
use crate::types::Space;

/// Dynamic shared memory begins at a multiple of this, in bytes.
const DYNAMIC_ALIGN: u64 = 16;

/// Sets [`Global::shared_offset`] and [`crate::ir::Entry::static_shared`].
pub(super) fn place_shared(globals: &mut [Global], functions: &mut [Function]) {
    let direct: Vec<Uses> = functions.iter().map(Uses::of).collect();
    // A call through a pointer may reach any function whose address is taken anywhere.
    let mut addressed = BTreeSet::new();
    for uses in &direct {
        addressed.extend(uses.addressed.iter().copied());
    }
    for global in globals.iter() {
        for reloc in &global.relocs {
            if let crate::ir::Symbol::Func(id) = reloc.target {
                addressed.insert(id);
            }
        }
    }
    let kernels: Vec<usize> =
        (0..functions.len()).filter(|&index| functions[index].entry.is_some()).collect();
    // For each kernel the shared variables that it can reach, and for each variable its kernels.
    let mut reached = Vec::with_capacity(kernels.len());
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); globals.len()];
    for (slot, &kernel) in kernels.iter().enumerate() {
        let vars = reachable(kernel, &direct, &addressed);
        for var in &vars {
            let global = &globals[var.0 as usize];
            if global.space == Space::Shared && !global.is_dynamic_shared() {
                users[var.0 as usize].push(slot);
            }
        }
        reached.push(vars);
    }
    // Variables of many kernels go first; each goes behind all that its kernels have so far.
    let mut order: Vec<usize> =
        (0..globals.len()).filter(|&index| !users[index].is_empty()).collect();
    order.sort_by_key(|&index| {
        (std::cmp::Reverse(users[index].len()), std::cmp::Reverse(globals[index].align))
    });
    let mut ends = vec![0u64; kernels.len()];
    for index in order {
        let start = users[index].iter().map(|&slot| ends[slot]).max().unwrap_or(0);
        let global = &mut globals[index];
        let offset = start.next_multiple_of(u64::from(global.align));
        let end = offset.saturating_add(global.size);
        global.shared_offset = u32::try_from(offset).unwrap_or(u32::MAX);
        for &slot in &users[index] {
            ends[slot] = end;
        }
    }
    for (slot, &kernel) in kernels.iter().enumerate() {
        let align = reached[slot]
            .iter()
            .map(|var| &globals[var.0 as usize])
            .filter(|global| global.is_dynamic_shared())
            .map(|global| u64::from(global.align))
            .fold(DYNAMIC_ALIGN, u64::max);
        let uses_dynamic =
            reached[slot].iter().any(|var| globals[var.0 as usize].is_dynamic_shared());
        let end = if uses_dynamic { ends[slot].next_multiple_of(align) } else { ends[slot] };
        if let Some(entry) = &mut functions[kernel].entry {
            // A kernel beyond 4 GiB can never be launched; the launch check sees the greatest size.
            entry.static_shared = u32::try_from(end).unwrap_or(u32::MAX);
        }
    }
}

/// What one function mentions.
#[derive(Default)]
struct Uses {
    globals: BTreeSet<GlobalId>,
    calls: BTreeSet<FuncId>,
    addressed: BTreeSet<FuncId>,
    calls_pointer: bool,
}

impl Uses {
    fn of(function: &Function) -> Uses {
        let mut uses = Uses::default();
        let insts =
            function.body.iter().flat_map(|body| &body.blocks).flat_map(|block| &block.insts);
        for inst in insts {
            match &inst.op {
                Op::Call { callee: Callee::Direct(id), .. } => {
                    uses.calls.insert(*id);
                }
                Op::Call { callee: Callee::Indirect { .. }, .. } => uses.calls_pointer = true,
                Op::MovAddr { addr, .. }
                | Op::Ld { addr, .. }
                | Op::St { addr, .. }
                | Op::Atom { addr, .. }
                | Op::Mbarrier { addr, .. } => uses.base(addr.base),
                Op::CpAsync { dst, src, .. } => {
                    uses.base(dst.base);
                    uses.base(src.base);
                }
                _ => {}
            }
        }
        uses
    }

    fn base(&mut self, base: Base) {
        match base {
            Base::Global(id) => {
                self.globals.insert(id);
            }
            Base::Func(id) => {
                self.addressed.insert(id);
            }
            _ => {}
        }
    }
}

fn reachable(kernel: usize, direct: &[Uses], addressed: &BTreeSet<FuncId>) -> BTreeSet<GlobalId> {
    let mut seen = BTreeSet::from([kernel]);
    let mut work = vec![kernel];
    let mut vars = BTreeSet::new();
    while let Some(index) = work.pop() {
        let uses = &direct[index];
        vars.extend(uses.globals.iter().copied());
        let pointers = uses.calls_pointer.then_some(addressed).into_iter().flatten();
        for callee in uses.calls.iter().chain(pointers) {
            let callee = callee.0 as usize;
            if seen.insert(callee) {
                work.push(callee);
            }
        }
    }
    vars
}
