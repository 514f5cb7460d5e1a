//! Follows accesses through a body until something separates the lanes before and after.

use crate::codegen::analysis::is_warp_operation;
use crate::codegen::steps::conflict::{Access, Class, Drift, Kind, Verdict, judge};
use crate::codegen::steps::linear::{Atom, Linear};
use crate::codegen::steps::regions::Regions;
use crate::codegen::steps::registers::Registers;
use crate::codegen::steps::{MOST_GAPS, Place, Step, Steps};
use crate::codegen::visit::{Use, registers};
use outboard_ptx::ir::{Address, Body, Callee, Function, Inst, MemOrder, Module, Op};
use outboard_ptx::{Space, ir};
use std::collections::BTreeMap;

/// Accesses that are followed at a time; beyond them all count as one to anywhere.
const MOST_ACCESSES: usize = 128;
/// How often a body is gone through before all its accesses to shared memory are stepped.
const PASSES: usize = 24;

/// What a function, with all it calls, may reach of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Reach {
    #[default]
    Nothing,
    /// Perhaps, by generic addresses.
    Generic,
    Shared,
}

/// What a body reaches without its callees.
pub(crate) fn reach(body: &Body) -> Reach {
    let of = |inst: &Inst| match addressed(&inst.op) {
        Some((_, Space::Shared, ..)) => Reach::Shared,
        Some((_, Space::Generic, ..)) => Reach::Generic,
        _ => Reach::Nothing,
    };
    body.blocks.iter().flat_map(|block| &block.insts).map(of).max().unwrap_or_default()
}

/// Finds the steps of a body. `callee` tells what calls reach.
pub(crate) fn find(
    module: &Module,
    function: &Function,
    body: &Body,
    callee: &dyn Fn(&Callee) -> Reach,
) -> Steps {
    let touched = |inst: &Inst| match &inst.op {
        Op::Call { callee: who, .. } => callee(who) != Reach::Nothing,
        op => addressed(op).is_some(),
    };
    if !body.blocks.iter().flat_map(|block| &block.insts).any(touched) {
        return Steps::default();
    }
    let regions = Regions::new(body);
    let one_row = Flow::new(module, function, body, callee, &regions, true).run(&regions);
    let mut steps = Flow::new(module, function, body, callee, &regions, false).run(&regions);
    for step in steps.values_mut() {
        step.across_rows = true;
    }
    steps.extend(one_row);
    Steps { at: steps }
}

/// An access that lanes behind may not have done yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pending {
    access: u32,
    drift: Drift,
}

/// The first accesses stand for many: to anywhere in shared memory, or of the kind that orders
/// device memory.
const ANYWHERE: [(Kind, Class); 4] = [
    (Kind::Load, Class::Shared),
    (Kind::Store, Class::Shared),
    (Kind::Load, Class::Strong),
    (Kind::Store, Class::Strong),
];

/// The one that stands for an access.
fn anywhere(access: &Access) -> Option<Pending> {
    let load = access.kind == Kind::Load;
    let number = match access.class {
        Class::Shared | Class::Generic => u32::from(!load),
        Class::Strong => 2 + u32::from(!load),
        Class::Weak => return None,
    };
    Some(Pending { access: number, drift: Drift::None })
}

struct Flow<'a> {
    body: &'a Body,
    rows: bool,
    registers: Registers<'a>,
    accesses: Vec<Access>,
    /// The first of an instruction's accesses, and how many it has.
    of: BTreeMap<Place, (u32, u32)>,
    /// Registers whose change matters.
    followed: Vec<bool>,
    steps: BTreeMap<Place, Step>,
}

impl<'a> Flow<'a> {
    fn new(
        module: &'a Module,
        function: &'a Function,
        body: &'a Body,
        callee: &dyn Fn(&Callee) -> Reach,
        regions: &Regions,
        rows: bool,
    ) -> Flow<'a> {
        let registers = Registers::new(module, function, body, regions, rows);
        let (mut accesses, mut of) = (
            ANYWHERE.map(|(kind, class)| Access { kind, ..anything(class) }).to_vec(),
            BTreeMap::new(),
        );
        for (b, block) in body.blocks.iter().enumerate() {
            for (i, inst) in block.insts.iter().enumerate() {
                let first = accesses.len();
                match &inst.op {
                    Op::Call { callee: who, .. } => match callee(who) {
                        Reach::Nothing => {}
                        Reach::Generic => accesses.push(anything(Class::Generic)),
                        Reach::Shared => accesses.push(anything(Class::Shared)),
                    },
                    op => accesses.extend(access(&registers, regions, b, op)),
                }
                if accesses.len() > first {
                    of.insert(
                        (b as u32, i as u32),
                        (first as u32, (accesses.len() - first) as u32),
                    );
                }
            }
        }
        let mut followed = vec![false; body.regs.len()];
        for (atom, _) in accesses.iter().flat_map(|access| &access.at.terms) {
            if let Atom::Reg(reg) = atom {
                followed[*reg as usize] = true;
            }
        }
        Flow { body, rows, registers, accesses, of, followed, steps: BTreeMap::new() }
    }

    fn run(mut self, regions: &Regions) -> BTreeMap<Place, Step> {
        let mut entering: Vec<Option<Vec<Pending>>> = vec![None; self.body.blocks.len()];
        if let Some(first) = entering.first_mut() {
            *first = Some(Vec::new());
        }
        let meeting = self.meeting(regions);
        let mut dirty: Vec<bool> = vec![true; entering.len()];
        for _ in 0..PASSES {
            let mut changed = false;
            for block in 0..entering.len() {
                if !std::mem::take(&mut dirty[block]) {
                    continue;
                }
                let Some(mut state) = entering[block].clone() else { continue };
                meeting
                    .get(&block)
                    .into_iter()
                    .flatten()
                    .for_each(|&pending| self.insert(&mut state, pending));
                self.block(block, &mut state);
                for &next in &regions.next[block] {
                    if self.join(&mut entering[next], &state) {
                        dirty[next] = true;
                        changed = true;
                    }
                }
            }
            if !changed {
                return self.steps;
            }
        }
        // Too deep: no access is believed to be apart from others.
        let careful = |class: Class| matches!(class, Class::Shared | Class::Generic);
        for (&place, &(first, _)) in &self.of {
            let class = self.accesses[first as usize].class;
            if careful(class) {
                let step = Step { generic: class == Class::Generic, ..Step::default() };
                self.steps.insert(place, step);
            }
        }
        self.steps
    }

    /// What others may have done between a branch and where its ways meet, whatever the lane itself
    /// did: for each such place.
    fn meeting(&self, regions: &Regions) -> BTreeMap<usize, Vec<Pending>> {
        let mut of: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (&(block, _), &(first, count)) in &self.of {
            of.entry(block).or_default().extend(first..first + count);
        }
        let mut meeting: BTreeMap<usize, Vec<Pending>> = BTreeMap::new();
        let complete = regions.between(&self.registers.branching, |blocks, meet| {
            let accesses =
                blocks.iter().filter_map(|between| of.get(&(between.block as u32))).flatten();
            let pending = accesses.map(|&access| {
                let terms = &self.accesses[access as usize].at.terms;
                let fixed = terms.iter().all(|(atom, _)| match atom {
                    Atom::Reg(reg) => self.registers.is_fixed(*reg),
                    _ => true,
                });
                Pending { access, drift: if fixed { Drift::None } else { Drift::Lost } }
            });
            let list = meeting.entry(meet).or_default();
            pending.for_each(|pending| self.insert(list, pending));
        });
        if !complete {
            let all: Vec<Pending> =
                self.accesses.iter().take(ANYWHERE.len()).filter_map(anywhere).collect();
            (0..self.body.blocks.len()).for_each(|block| _ = meeting.insert(block, all.clone()));
        }
        meeting
    }

    fn block(&mut self, block: usize, state: &mut Vec<Pending>) {
        let body = self.body;
        for (i, inst) in body.blocks[block].insts.iter().enumerate() {
            if brings_together(inst) {
                state.clear();
            }
            let place = (block as u32, i as u32);
            if let Some(&(first, count)) = self.of.get(&place) {
                if self.access(place, first, state) {
                    state.clear();
                }
                for access in first..first + count {
                    self.insert(state, Pending { access, drift: Drift::None });
                }
            }
            registers(inst, |how, reg| {
                if how == Use::Write && self.followed[reg.0 as usize] {
                    self.drift(inst, reg.0, state);
                }
            });
        }
    }

    /// Looks at the accesses of an instruction behind those pending. True if the lanes step there,
    /// whatever comes.
    fn access(&mut self, place: Place, first: u32, state: &[Pending]) -> bool {
        let old = self.steps.get(&place);
        if old.is_some_and(|step| step.gaps.is_empty() && !step.generic) {
            return true;
        }
        let mut step = old.cloned();
        let later = &self.accesses[first as usize];
        for pending in state {
            let earlier = &self.accesses[pending.access as usize];
            let stride = match pending.drift {
                Drift::Along(reg) => self.registers.stride(reg),
                _ => None,
            };
            let generic = earlier.class == Class::Generic && later.class == Class::Generic;
            match judge(&self.registers, self.rows, earlier, pending.drift, stride, later) {
                Verdict::Apart => {}
                Verdict::Same => {
                    let generic = generic && step.as_ref().is_none_or(|step| step.generic);
                    step = Some(Step { gaps: Vec::new(), across_rows: false, generic });
                    if !generic {
                        break;
                    }
                }
                Verdict::Depends(gap) => match &mut step {
                    None => step = Some(Step { gaps: vec![gap], across_rows: false, generic }),
                    Some(step) if step.gaps.is_empty() => step.generic &= generic,
                    Some(step) => {
                        step.generic &= generic;
                        if !step.gaps.contains(&gap) {
                            step.gaps.push(gap);
                        }
                        if step.gaps.len() > MOST_GAPS {
                            step.gaps.clear();
                        }
                    }
                },
            }
        }
        let always = step.as_ref().is_some_and(|step| step.gaps.is_empty());
        if let Some(step) = step {
            self.steps.insert(place, step);
        }
        always
    }

    /// A register that addresses are made of is written.
    fn drift(&self, inst: &Inst, reg: u32, state: &mut Vec<Pending>) {
        let along = self.registers.added(inst, reg).is_some();
        for pending in state.iter_mut() {
            if self.accesses[pending.access as usize].at.factor(Atom::Reg(reg)) == 0 {
                continue;
            }
            pending.drift = match pending.drift {
                Drift::None if along => Drift::Along(reg),
                Drift::Along(same) if along && same == reg => Drift::Along(reg),
                _ => Drift::Lost,
            };
        }
        // Nothing follows from a plain access to device memory at an address that is not known.
        state.retain(|pending| pending.drift != Drift::Lost || self.class(*pending) != Class::Weak);
        state.sort_unstable();
        state.dedup();
    }

    fn class(&self, pending: Pending) -> Class {
        self.accesses[pending.access as usize].class
    }

    /// Adds a pending access. Of too many, those that may reach the same count as one to anywhere.
    fn insert(&self, state: &mut Vec<Pending>, pending: Pending) {
        let access = &self.accesses[pending.access as usize];
        let lost = pending.drift == Drift::Lost || access.at.divergent;
        if anywhere(access).is_some_and(|whole| state.contains(&whole))
            || access.class == Class::Weak && lost
        {
            return;
        }
        let Err(at) = state.binary_search(&pending) else { return };
        state.insert(at, pending);
        if state.len() > MOST_ACCESSES {
            state.retain(|&pending| self.class(pending) != Class::Weak);
        }
        for loads in [true, false] {
            if state.len() <= MOST_ACCESSES {
                break;
            }
            let taken = |pending: &Pending| {
                (self.accesses[pending.access as usize].kind == Kind::Load) == loads
            };
            let (many, mut rest): (Vec<Pending>, Vec<Pending>) =
                state.iter().partition(|pending| taken(pending));
            rest.extend(
                many.iter().filter_map(|pending| anywhere(&self.accesses[pending.access as usize])),
            );
            rest.sort_unstable();
            rest.dedup();
            *state = rest;
        }
    }

    /// Adds what is pending where one block leads to another. True if that was not known.
    fn join(&self, entering: &mut Option<Vec<Pending>>, state: &[Pending]) -> bool {
        let Some(old) = entering else {
            *entering = Some(state.to_vec());
            return true;
        };
        let before = old.clone();
        state.iter().for_each(|&pending| self.insert(old, pending));
        *old != before
    }
}

/// Whether all lanes that come to an instruction wait there for each other.
fn brings_together(inst: &Inst) -> bool {
    inst.guard.is_none()
        && match &inst.op {
            Op::Bar { op, .. } => *op != ir::BarOp::Arrive,
            Op::ClusterWait => true,
            op => is_warp_operation(op),
        }
}

/// An access of which nothing is known.
fn anything(class: Class) -> Access {
    Access { kind: Kind::Store, class, size: 16, at: Linear::unknown() }
}

/// What an operation accesses: kind, space, size, whether others are to see it, and where.
fn addressed(op: &Op) -> Option<(Kind, Space, u32, bool, &Address)> {
    let outside = |space: Space| matches!(space, Space::Shared | Space::Generic | Space::Global);
    let found = match op {
        Op::Ld { space, ty, order, dsts, addr, .. } => {
            (Kind::Load, *space, ty.size() * dsts.len() as u32, *order != MemOrder::Weak, addr)
        }
        Op::St { space, ty, order, srcs, addr, .. } => {
            (Kind::Store, *space, ty.size() * srcs.len() as u32, *order != MemOrder::Weak, addr)
        }
        Op::Atom { space, ty, addr, .. } => (Kind::Atomic, *space, ty.size(), true, addr),
        Op::CpAsync { bytes, dst, .. } => (Kind::Store, Space::Shared, *bytes, false, dst),
        _ => return None,
    };
    outside(found.1).then_some(found)
}

fn access(registers: &Registers<'_>, regions: &Regions, block: usize, op: &Op) -> Option<Access> {
    let (kind, space, size, strong, address) = addressed(op)?;
    let at = registers.address(regions, block, address);
    let class = match (space, at.symbol()) {
        (Space::Shared, _) | (Space::Generic, Some(Atom::Shared(_) | Atom::Dynamic)) => {
            Class::Shared
        }
        (Space::Generic, None) => Class::Generic,
        _ if strong => Class::Strong,
        _ => Class::Weak,
    };
    Some(Access { kind, class, size: size.into(), at })
}
