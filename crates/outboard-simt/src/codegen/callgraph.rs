//! Who calls whom, and what that means for running a kernel: stacks, local memory, whether its
//! threads wait for each other.

use crate::codegen::analysis::{Facts, facts};
use crate::codegen::call::frame_bytes;
use crate::codegen::program::{Target, Unit, function_of};
use crate::codegen::steps::{Reach, Steps, find, reach};
use crate::exec::context::CodePtr;
use crate::exec::slot::STACK_MARGIN;
use crate::program::{KernelCode, Stepping};
use outboard_ptx::ir::{Body, Callee, FuncId, Module, Symbol};
use std::collections::{BTreeMap, BTreeSet};

/// Least stack of a coroutine, beside what is known to be needed.
const STACK_SLACK: u64 = 32 << 10;

/// Facts about all functions. Whether a function reads strongly includes its callees, so it is
/// found first.
pub(crate) fn all_facts(unit: &Unit, modules: &[&Module]) -> Vec<Facts> {
    let bodies: Vec<(usize, &Body)> = unit
        .functions
        .iter()
        .filter_map(|f| Some((f.module, function_of(modules, f).body.as_ref()?)))
        .collect();
    let first: Vec<Facts> = bodies.iter().map(|(_, body)| facts(body, &|_| false)).collect();
    let mut strong: Vec<bool> = first.iter().map(|f| f.strong_reads).collect();
    loop {
        let mut changed = false;
        for (index, f) in first.iter().enumerate() {
            let module = bodies[index].0;
            let calls_strong = f.indirect_calls && strong.contains(&true)
                || f.callees.iter().any(
                    |&id| matches!(unit.target(module, id), Ok(Target::Compiled(i)) if strong[i]),
                );
            if calls_strong && !strong[index] {
                strong[index] = true;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    bodies
        .iter()
        .map(|&(module, body)| {
            facts(body, &|callee| match callee {
                Some(id) => matches!(unit.target(module, id), Ok(Target::Compiled(i)) if strong[i]),
                None => strong.contains(&true),
            })
        })
        .collect()
}

/// Where the lanes of warps step, in all functions.
pub(crate) fn all_steps(unit: &Unit, modules: &[&Module], facts: &[Facts]) -> Vec<Steps> {
    let bodies: Vec<(usize, FuncId, &Body)> = unit
        .functions
        .iter()
        .filter_map(|f| Some((f.module, f.id, function_of(modules, f).body.as_ref()?)))
        .collect();
    let mut reaches: Vec<Reach> = bodies.iter().map(|(.., body)| reach(body)).collect();
    let compiled = |reaches: &[Reach], module: usize, id: FuncId| match unit.target(module, id) {
        Ok(Target::Compiled(index)) => reaches[index],
        _ => Reach::Nothing,
    };
    loop {
        let mut changed = false;
        for (index, f) in facts.iter().enumerate() {
            let direct = f.callees.iter().map(|&id| compiled(&reaches, bodies[index].0, id)).max();
            let indirect = if f.indirect_calls { reaches.iter().copied().max() } else { None };
            let below = direct.max(indirect).unwrap_or_default();
            changed |= below > reaches[index];
            reaches[index] = reaches[index].max(below);
        }
        if !changed {
            break;
        }
    }
    let steps = |&(module, id, body): &(usize, FuncId, &Body)| {
        let callee = |callee: &Callee| match callee {
            Callee::Direct(id) => compiled(&reaches, module, *id),
            Callee::Indirect { .. } => reaches.iter().copied().max().unwrap_or_default(),
        };
        find(modules[module], &modules[module].functions[id.0 as usize], body, &callee)
    };
    bodies.iter().map(steps).collect()
}

/// Who calls whom, and what that needs.
pub(crate) struct CallGraph<'a> {
    steps: &'a [Steps],
    edges: Vec<BTreeSet<usize>>,
    facts: Vec<Facts>,
    /// Bytes of native stack and of local memory per activation.
    frames: Vec<u64>,
    locals: Vec<u64>,
}

impl<'a> CallGraph<'a> {
    pub(crate) fn new(
        unit: &Unit,
        modules: &[&Module],
        facts: Vec<Facts>,
        steps: &'a [Steps],
        frames: Vec<u64>,
    ) -> CallGraph<'a> {
        let compiled = |module: usize, id: FuncId| match unit.target(module, id) {
            Ok(Target::Compiled(index)) => Some(index),
            _ => None,
        };
        // An indirect call may reach whatever has its address taken, in code or in an initialiser.
        let mut addressed: BTreeSet<usize> = BTreeSet::new();
        for (function, f) in unit.functions.iter().zip(&facts) {
            addressed.extend(f.addressed.iter().filter_map(|&id| compiled(function.module, id)));
        }
        for (module, ir) in modules.iter().enumerate() {
            for reloc in ir.globals.iter().flat_map(|g| &g.relocs) {
                if let Symbol::Func(id) = reloc.target {
                    addressed.extend(compiled(module, id));
                }
            }
        }
        let edges = unit
            .functions
            .iter()
            .zip(&facts)
            .map(|(function, f)| {
                let mut edges: BTreeSet<usize> =
                    f.callees.iter().filter_map(|&id| compiled(function.module, id)).collect();
                if f.indirect_calls {
                    edges.extend(&addressed);
                }
                edges
            })
            .collect();
        let locals = unit
            .functions
            .iter()
            .map(|f| {
                let body = function_of(modules, f).body.as_ref();
                // Room to align the frame is part of it, where more is asked for than frames have
                // anyway.
                let slack = |body: &Body| {
                    if body.frame_align > 16 { u64::from(body.frame_align) } else { 0 }
                };
                body.map_or(0, |body| frame_bytes(unit, f.module, body) + slack(body))
            })
            .collect();
        CallGraph { steps, edges, facts, frames, locals }
    }

    /// How to run the kernel that is function `index`, with code at `address`.
    pub(crate) fn kernel(&self, index: usize, address: u64) -> KernelCode {
        let mut reachable = BTreeSet::from([index]);
        let mut work = vec![index];
        while let Some(function) = work.pop() {
            work.extend(self.edges[function].iter().filter(|&&next| reachable.insert(next)));
        }
        let any =
            |property: fn(&Facts) -> bool| reachable.iter().any(|&f| property(&self.facts[f]));
        let steps =
            |property: fn(&Steps) -> bool| reachable.iter().any(|&f| property(&self.steps[f]));
        let spins = any(Facts::spins);
        let depth = self.longest(index, &reachable);
        let sum = |bytes: &[u64]| reachable.iter().map(|&f| bytes[f]).sum::<u64>();
        // Of a recursion every function has room once; the rest is the stack limit's.
        let (local_bytes, frame_bytes) =
            depth.unwrap_or_else(|| (sum(&self.locals), sum(&self.frames)));
        // SAFETY: the address is that of a finished function with this signature, in memory that
        // the program keeps.
        let entry = unsafe { std::mem::transmute::<u64, CodePtr>(address) };
        KernelCode {
            entry,
            coroutines: spins || any(|f| f.waits),
            spins,
            stepping: Stepping {
                always: steps(Steps::always),
                with_shared: steps(Steps::with_shared),
                across_rows: steps(Steps::across_rows),
                with_shared_across_rows: steps(Steps::with_shared_across_rows),
            },
            recursive: depth.is_none(),
            local_bytes,
            frame_bytes,
            largest_frame: reachable.iter().map(|&f| self.frames[f]).max().unwrap_or(0),
            stack_base: STACK_MARGIN + STACK_SLACK,
        }
    }

    /// The most local memory and native stack of a chain of calls, or `None` when there are cycles.
    fn longest(&self, root: usize, reachable: &BTreeSet<usize>) -> Option<(u64, u64)> {
        // Takes functions whose callees are all done, again and again: what is left over is in or
        // above a cycle.
        let mut done: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        loop {
            let before = done.len();
            for &f in reachable {
                if done.contains_key(&f) {
                    continue;
                }
                let below: Option<Vec<(u64, u64)>> =
                    self.edges[f].iter().map(|next| done.get(next).copied()).collect();
                if let Some(below) = below {
                    let local = below.iter().map(|b| b.0).max().unwrap_or(0);
                    let frame = below.iter().map(|b| b.1).max().unwrap_or(0);
                    done.insert(f, (self.locals[f] + local, self.frames[f] + frame));
                }
            }
            if done.len() == before {
                return done.get(&root).copied();
            }
        }
    }
}
