//! What must be known about functions before code is generated: how their threads must be run, and
//! how many registers they would fill.

use crate::codegen::visit::{Use, registers};
use outboard_ptx::ir::{Base, Body, Callee, FuncId, Inst, MbarrierOp, MemOrder, Op};
use outboard_ptx::{Space, ir};
use std::collections::BTreeSet;

/// Facts about one function body, without its callees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Waits for other threads: a barrier or a warp operation.
    pub(crate) waits: bool,
    /// Reads memory in ways that see what other threads write meanwhile.
    pub(crate) strong_reads: bool,
    /// Blocks in loops that may only end by what another thread does.
    pub(crate) spinning: Vec<bool>,
    pub(crate) callees: BTreeSet<FuncId>,
    pub(crate) indirect_calls: bool,
    /// Functions whose address is taken.
    pub(crate) addressed: BTreeSet<FuncId>,
}

impl Facts {
    pub(crate) fn spins(&self) -> bool {
        self.spinning.contains(&true)
    }
}

/// Looks at a body. `strong_callee` tells whether a callee (or an unknown one) reads memory
/// strongly.
pub(crate) fn facts(body: &Body, strong_callee: &dyn Fn(Option<FuncId>) -> bool) -> Facts {
    let mut facts = Facts { spinning: vec![false; body.blocks.len()], ..Facts::default() };
    for inst in body.blocks.iter().flat_map(|block| &block.insts) {
        match &inst.op {
            op if is_warp_operation(op) => facts.waits = true,
            Op::Bar { .. }
            | Op::NanoSleep { .. }
            | Op::ClusterWait
            | Op::Mbarrier {
                op: MbarrierOp::Test { .. } | MbarrierOp::TestParity { .. }, ..
            } => facts.waits = true,
            Op::Call { callee: Callee::Direct(id), .. } => _ = facts.callees.insert(*id),
            Op::Call { callee: Callee::Indirect { .. }, .. } => facts.indirect_calls = true,
            Op::MovAddr { addr, .. } => {
                if let Base::Func(id) = addr.base {
                    facts.addressed.insert(id);
                }
            }
            _ => {}
        }
        facts.strong_reads |= is_strong_read(&inst.op);
    }
    let successors = successors(body);
    for component in cycles(&successors) {
        if component_spins(body, &component, &successors, strong_callee) {
            component.iter().for_each(|&block| facts.spinning[block] = true);
        }
    }
    facts
}

/// Whether lanes of a warp wait for each other in an operation.
pub(crate) fn is_warp_operation(op: &Op) -> bool {
    matches!(
        op,
        Op::WarpSync { .. }
            | Op::Shfl { .. }
            | Op::Vote { .. }
            | Op::MatchAny { .. }
            | Op::MatchAll { .. }
            | Op::ActiveMask { .. }
            | Op::Redux { .. }
            | Op::Elect { .. }
    )
}

fn is_strong_read(op: &Op) -> bool {
    match op {
        Op::Ld { space, order, .. } => {
            *order != MemOrder::Weak && !matches!(space, Space::Local | Space::Param)
        }
        Op::Atom { dst, .. } => dst.is_some(),
        _ => false,
    }
}

/// Blocks that may follow each block; past the last one the function returns.
pub(crate) fn successors(body: &Body) -> Vec<Vec<usize>> {
    let count = body.blocks.len();
    let next = |i: usize| (i + 1 < count).then_some(i + 1);
    body.blocks
        .iter()
        .enumerate()
        .map(|(i, block)| match block.insts.last() {
            Some(Inst { op: Op::Bra { target }, guard, .. }) => {
                let mut list = vec![target.0 as usize];
                list.extend(guard.and_then(|_| next(i)));
                list
            }
            Some(Inst { op: Op::BrxIdx { targets, .. }, guard, .. }) => {
                let mut list: Vec<usize> = targets.iter().map(|t| t.0 as usize).collect();
                list.extend(guard.and_then(|_| next(i)));
                list
            }
            Some(Inst { op, guard: None, .. }) if op.is_terminator() => Vec::new(),
            _ => next(i).into_iter().collect(),
        })
        .collect()
}

/// The strongly connected components that contain a cycle (Tarjan's algorithm, without recursion).
fn cycles(successors: &[Vec<usize>]) -> Vec<Vec<usize>> {
    const UNSEEN: usize = usize::MAX;
    let count = successors.len();
    let (mut index, mut low) = (vec![UNSEEN; count], vec![0; count]);
    let (mut on_stack, mut stack, mut found) = (vec![false; count], Vec::new(), Vec::new());
    let mut clock = 0;
    for root in 0..count {
        if index[root] != UNSEEN {
            continue;
        }
        let mut work = vec![(root, 0)];
        while let Some(&(node, child)) = work.last() {
            if child == 0 {
                (index[node], low[node]) = (clock, clock);
                clock += 1;
                stack.push(node);
                on_stack[node] = true;
            }
            if let Some(&next) = successors[node].get(child) {
                if let Some(top) = work.last_mut() {
                    top.1 += 1;
                }
                if index[next] == UNSEEN {
                    work.push((next, 0));
                } else if on_stack[next] {
                    low[node] = low[node].min(index[next]);
                }
                continue;
            }
            work.pop();
            if let Some(&(parent, _)) = work.last() {
                low[parent] = low[parent].min(low[node]);
            }
            if low[node] == index[node] {
                let mut component = Vec::new();
                while let Some(member) = stack.pop() {
                    on_stack[member] = false;
                    component.push(member);
                    if member == node {
                        break;
                    }
                }
                if component.len() > 1 || successors[node].contains(&node) {
                    found.push(component);
                }
            }
        }
    }
    found
}

/// How often the instructions of a loop are gone through for what depends on a value: a chain of
/// values against their order needs a round for each.
const ROUNDS: u32 = 64;

/// Whether leaving the loop depends on a value that another thread may write meanwhile.
fn component_spins(
    body: &Body,
    component: &[usize],
    successors: &[Vec<usize>],
    strong_callee: &dyn Fn(Option<FuncId>) -> bool,
) -> bool {
    let insts = || component.iter().flat_map(|&block| &body.blocks[block].insts);
    let mut tainted = vec![false; body.regs.len()];
    let mut any = false;
    for inst in insts() {
        match &inst.op {
            op if is_strong_read(op) => {
                any = true;
                registers(inst, |how, reg| tainted[reg.0 as usize] |= how == Use::Write);
            }
            // Results come back through memory, which is not followed.
            Op::Call { callee: Callee::Direct(id), .. } if strong_callee(Some(*id)) => return true,
            Op::Call { callee: Callee::Indirect { .. }, .. } if strong_callee(None) => return true,
            _ => {}
        }
    }
    if !any {
        return false;
    }
    let mut rounds = 0;
    loop {
        let mut changed = false;
        rounds += 1;
        if rounds > ROUNDS {
            // It may as well be taken for one: threads that wait let others run.
            return true;
        }
        for inst in insts() {
            let mut from = false;
            registers(inst, |how, reg| from |= how == Use::Read && tainted[reg.0 as usize]);
            if from {
                registers(inst, |how, reg| {
                    if how == Use::Write && !tainted[reg.0 as usize] {
                        tainted[reg.0 as usize] = true;
                        changed = true;
                    }
                });
            }
        }
        if !changed {
            break;
        }
    }
    let mut inside = vec![false; body.blocks.len()];
    component.iter().for_each(|&block| inside[block] = true);
    component.iter().any(|&block| {
        let last = body.blocks[block].insts.last();
        let leaves = successors[block].iter().any(|&next| !inside[next])
            || last.is_some_and(|inst| matches!(inst.op, Op::Ret | Op::Exit | Op::Trap));
        leaves
            && last.and_then(|inst| inst.guard).is_some_and(|guard| tainted[guard.reg.0 as usize])
    })
}

/// Words for what is alive in each block; of a larger body it is not found out.
const MOST_WORDS: usize = 8 << 20;

/// 32-bit registers that the values alive at the busiest point of a body would fill.
pub(crate) fn register_pressure(body: &Body) -> u32 {
    let words = body.regs.len().div_ceil(64);
    if words.saturating_mul(body.blocks.len()) > MOST_WORDS {
        return u32::MAX;
    }
    let size = |reg: usize| match body.regs[reg] {
        outboard_ptx::Type::Pred => 0,
        ty => ty.size().div_ceil(4),
    };
    let set = |bits: &mut [u64], reg: ir::Reg, value: bool| {
        let (word, bit) = (reg.0 as usize / 64, 1u64 << (reg.0 % 64));
        if value { bits[word] |= bit } else { bits[word] &= !bit }
    };
    let successors = successors(body);
    let mut live_in = vec![vec![0u64; words]; body.blocks.len()];
    // One bottom-up scan of a block; a guarded write does not end the life of the old value.
    let scan = |block: usize, live: &mut Vec<u64>, visit: &mut dyn FnMut(&[u64])| {
        for inst in body.blocks[block].insts.iter().rev() {
            registers(inst, |how, reg| {
                if how == Use::Write && inst.guard.is_none() {
                    set(live, reg, false);
                }
            });
            registers(inst, |how, reg| {
                if how == Use::Read {
                    set(live, reg, true);
                }
            });
            visit(live);
        }
    };
    let live_out = |live_in: &[Vec<u64>], block: usize| {
        let mut live = vec![0u64; words];
        for &next in &successors[block] {
            live.iter_mut().zip(&live_in[next]).for_each(|(a, b)| *a |= b);
        }
        live
    };
    // Bounded: a few rounds settle all but contrived graphs, and the number is informative.
    for _ in 0..8 {
        let mut changed = false;
        for block in (0..body.blocks.len()).rev() {
            let mut live = live_out(&live_in, block);
            scan(block, &mut live, &mut |_| {});
            changed |= live != live_in[block];
            live_in[block] = live;
        }
        if !changed {
            break;
        }
    }
    let mut most = 0;
    for block in 0..body.blocks.len() {
        let mut live = live_out(&live_in, block);
        scan(block, &mut live, &mut |live| {
            let count = live.iter().enumerate().map(|(word, &bits)| {
                let mut bits = bits;
                let mut sum = 0;
                while bits != 0 {
                    sum += size(word * 64 + bits.trailing_zeros() as usize);
                    bits &= bits - 1;
                }
                sum
            });
            most = most.max(count.sum());
        });
    }
    most
}
