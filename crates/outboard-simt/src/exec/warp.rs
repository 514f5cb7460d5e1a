//! Warp operations: threads meet in groups named by a member mask, and the last to arrive computes
//! for all.
//!
//! Threads of a warp are scheduled one by one, so "convergence" does not exist by itself.
//! Operations with a member mask need none: the group is complete when each live member waits with
//! that same mask. `activemask` and the forms without a mask ask who is converged; they wait until
//! no thread of the warp can run, and then those that stand at the same instruction form the group.
//! That gives code which (against the manual's advice) expects a warp to stay together the same
//! answer as hardware gives.

use outboard_ptx::Type;
use outboard_ptx::ir::{ReduxOp, ShflMode, VoteMode};
use std::cell::Cell;

/// What a thread of a warp takes part in, with its own operands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Collective {
    Sync,
    Shfl { mode: ShflMode, b: u32, c: u32 },
    Vote(VoteMode),
    MatchAny,
    MatchAll,
    Redux { op: ReduxOp, ty: Type, abs: bool, nan: bool },
    ActiveMask,
    Elect,
}

/// Why a thread does not run.
#[derive(Clone, Copy, Debug)]
enum Wait {
    None,
    /// For the members of a mask.
    Group {
        mask: u32,
        what: Collective,
    },
    /// Until nobody in the warp can run; `site` is the instruction.
    Quiet {
        site: u64,
        what: Collective,
    },
}

/// Turns that lanes may be behind others that wait for them: these may be what they wait for.
const MOST_BEHIND: u32 = 1 << 20;

#[derive(Clone, Copy)]
struct Lane {
    wait: Wait,
    value: u64,
    result: u64,
    pred: bool,
}

const IDLE: Lane = Lane { wait: Wait::None, value: 0, result: 0, pred: false };

/// One warp of a running block.
pub(crate) struct Warp {
    /// Threads that can run.
    pub(crate) ready: Cell<u32>,
    /// Threads that run in this turn and have not yet.
    pub(crate) turn: Cell<u32>,
    /// Threads that let the others catch up.
    stepped: Cell<u32>,
    /// How far along the code they are.
    positions: [Cell<u64>; 32],
    /// Turns since one that all of them had.
    behind: Cell<u32>,
    /// Threads that let others run and can go on in the next round.
    pub(crate) yielded: Cell<u32>,
    /// Threads that have not ended.
    pub(crate) live: Cell<u32>,
    /// Threads that wait for the members of a mask.
    grouped: Cell<u32>,
    lanes: [Cell<Lane>; 32],
}

impl Warp {
    pub(crate) fn new(live: u32) -> Warp {
        Warp {
            ready: Cell::new(live),
            turn: Cell::new(0),
            stepped: Cell::new(0),
            positions: [const { Cell::new(0) }; 32],
            behind: Cell::new(0),
            yielded: Cell::new(0),
            live: Cell::new(live),
            grouped: Cell::new(0),
            lanes: [const { Cell::new(IDLE) }; 32],
        }
    }

    /// Back to the start of a block.
    pub(crate) fn reset(&self, live: u32) {
        self.ready.set(live);
        self.turn.set(0);
        self.stepped.set(0);
        self.behind.set(0);
        self.yielded.set(0);
        self.live.set(live);
        self.grouped.set(0);
        for lane in &self.lanes {
            lane.set(IDLE);
        }
    }

    /// Thread `lane` is to go on behind the others. False if no other can run.
    pub(crate) fn step(&self, lane: u32, position: u64) -> bool {
        if self.turn.get() | self.ready.get() | self.stepped.get() == 0 {
            return false;
        }
        self.positions[lane as usize].set(position);
        self.stepped.set(self.stepped.get() | 1 << lane);
        true
    }

    /// Chooses who runs in the next turn. False if nobody can.
    ///
    /// Of those that let others catch up it is the ones that are least far: so lanes that took
    /// different ways are together again where the ways meet.
    pub(crate) fn begin_turn(&self) -> bool {
        if self.ready.get() == 0 && (self.stepped.get() != 0 || self.resolve_quiet()) {
            let stepped = self.stepped.get();
            let least = bits(stepped).map(|lane| self.positions[lane as usize].get()).min();
            let mut first = bits(stepped)
                .filter(|&lane| Some(self.positions[lane as usize].get()) == least)
                .fold(0, |mask, lane| mask | 1 << lane);
            let behind = self.behind.get() + 1;
            if first == stepped || behind > MOST_BEHIND {
                first = stepped;
                self.behind.set(0);
            } else {
                self.behind.set(behind);
            }
            self.stepped.set(stepped & !first);
            self.ready.set(self.ready.get() | first);
        }
        self.turn.set(self.ready.replace(0));
        self.turn.get() != 0
    }

    /// Thread `lane` arrives at an operation of the members of `mask`. True when the group is
    /// complete, and the results are there; otherwise the thread must suspend.
    pub(crate) fn arrive(&self, lane: u32, mask: u32, what: Collective, value: u64) -> bool {
        // A thread that leaves itself out of the mask is undefined behaviour; it must not lose
        // itself in a wait.
        let mask = mask | 1 << lane;
        self.lanes[lane as usize].set(Lane {
            wait: Wait::Group { mask, what },
            value,
            result: 0,
            pred: false,
        });
        self.grouped.set(self.grouped.get() | 1 << lane);
        self.try_complete(mask)
    }

    /// Thread `lane` arrives at an operation of whoever is converged with it.
    pub(crate) fn arrive_quiet(&self, lane: u32, site: u64, what: Collective, value: u64) {
        self.lanes[lane as usize].set(Lane {
            wait: Wait::Quiet { site, what },
            value,
            result: 0,
            pred: false,
        });
    }

    /// Result and predicate of the operation that thread `lane` took part in.
    pub(crate) fn result(&self, lane: u32) -> (u64, bool) {
        let lane = self.lanes[lane as usize].get();
        (lane.result, lane.pred)
    }

    /// Thread `lane` has ended: groups that waited for it may now be complete.
    pub(crate) fn exit(&self, lane: u32) {
        self.live.set(self.live.get() & !(1 << lane));
        for other in bits(self.live.get() & self.grouped.get()) {
            if let Wait::Group { mask, .. } = self.lanes[other as usize].get().wait
                && mask & (1 << lane) != 0
            {
                self.try_complete(mask);
            }
        }
    }

    /// No thread of the warp can run: forms groups of those that wait for that. True when somebody
    /// can go on now.
    pub(crate) fn resolve_quiet(&self) -> bool {
        let mut seen = 0u32;
        let live = self.live.get();
        for lane in bits(live) {
            if seen & (1 << lane) != 0 {
                continue;
            }
            if let Wait::Quiet { site, what } = self.lanes[lane as usize].get().wait {
                let group = bits(live)
                    .filter(|&l| matches!(self.lanes[l as usize].get().wait, Wait::Quiet { site: s, .. } if s == site))
                    .fold(0, |mask, l| mask | 1 << l);
                seen |= group;
                self.complete(group, group, what);
            }
        }
        seen != 0
    }

    fn try_complete(&self, mask: u32) -> bool {
        let members = mask & self.live.get();
        if members & !self.grouped.get() != 0 {
            return false;
        }
        let all = bits(members)
            .all(|l| matches!(self.lanes[l as usize].get().wait, Wait::Group { mask: m, .. } if m & self.live.get() == members));
        if !all || members == 0 {
            return false;
        }
        let first = members.trailing_zeros() as usize;
        if let Wait::Group { what, .. } = self.lanes[first].get().wait {
            self.complete(members, mask, what);
        }
        true
    }

    /// Computes the results of all members and makes them ready.
    fn complete(&self, members: u32, mask: u32, what: Collective) {
        let get = |lane: u32| self.lanes[lane as usize].get();
        let set = |lane: u32, result: u64, pred: bool| {
            let old = get(lane);
            self.lanes[lane as usize].set(Lane {
                wait: Wait::None,
                value: old.value,
                result,
                pred,
            });
        };
        let same = |value: u64| {
            bits(members).filter(|&l| get(l).value == value).fold(0u32, |m, l| m | 1 << l)
        };
        match what {
            Collective::Sync => bits(members).for_each(|l| set(l, 0, false)),
            Collective::ActiveMask => bits(members).for_each(|l| set(l, u64::from(members), true)),
            Collective::Elect => {
                let leader = members.trailing_zeros();
                bits(members).for_each(|l| set(l, u64::from(leader), l == leader));
            }
            Collective::Shfl { .. } => {
                let values: [u64; 32] = std::array::from_fn(|l| get(l as u32).value);
                for lane in bits(members) {
                    // Each lane has its own operands.
                    let (Wait::Group { what, .. } | Wait::Quiet { what, .. }) = get(lane).wait
                    else {
                        continue;
                    };
                    let Collective::Shfl { mode, b, c } = what else { continue };
                    let (source, in_range) = shfl_source(mode, lane, b, c);
                    let source = if members & (1 << source) != 0 { source } else { lane };
                    set(lane, values[source as usize], in_range);
                }
            }
            Collective::Vote(mode) => {
                let ballot =
                    bits(members).filter(|&l| get(l).value != 0).fold(0u32, |m, l| m | 1 << l);
                let result = match mode {
                    VoteMode::All => u64::from(ballot == members),
                    VoteMode::Any => u64::from(ballot != 0),
                    VoteMode::Uni => u64::from(ballot == members || ballot == 0),
                    VoteMode::Ballot => u64::from(ballot),
                };
                bits(members).for_each(|l| set(l, result, result != 0));
            }
            Collective::MatchAny => {
                let results: [u32; 32] = std::array::from_fn(|l| same(get(l as u32).value));
                bits(members).for_each(|l| set(l, u64::from(results[l as usize]), true));
            }
            Collective::MatchAll => {
                let all = same(get(members.trailing_zeros()).value) == members;
                let result = if all { mask & members } else { 0 };
                bits(members).for_each(|l| set(l, u64::from(result), all));
            }
            Collective::Redux { op, ty, abs, nan } => {
                let result = bits(members)
                    .map(|l| get(l).value as u32)
                    .reduce(|a, b| reduce(op, ty, abs, nan, a, b))
                    .unwrap_or(0);
                let result = if abs && ty == Type::F32 { result & 0x7fff_ffff } else { result };
                bits(members).for_each(|l| set(l, u64::from(result), true));
            }
        }
        self.ready.set(self.ready.get() | members);
        self.grouped.set(self.grouped.get() & !members);
    }
}

/// Source lane of a shuffle and whether it was in range, as the PTX manual defines it.
pub(crate) fn shfl_source(mode: ShflMode, lane: u32, b: u32, c: u32) -> (u32, bool) {
    let (b, clamp, segment) = (b & 31, c & 31, (c >> 8) & 31);
    let max = (lane & segment) | (clamp & !segment & 31);
    let min = lane & segment;
    let (source, in_range) = match mode {
        ShflMode::Up => {
            let source = lane as i32 - b as i32;
            (source as u32, source >= max as i32)
        }
        ShflMode::Down => (lane + b, lane + b <= max),
        ShflMode::Bfly => (lane ^ b, lane ^ b <= max),
        ShflMode::Idx => {
            let source = min | (b & !segment & 31);
            (source, source <= max)
        }
    };
    if in_range { (source & 31, true) } else { (lane, false) }
}

fn reduce(op: ReduxOp, ty: Type, abs: bool, nan: bool, a: u32, b: u32) -> u32 {
    if ty == Type::F32 {
        let read = |bits: u32| f32::from_bits(if abs { bits & 0x7fff_ffff } else { bits });
        let (x, y) = (read(a), read(b));
        return match (op, x.is_nan(), y.is_nan()) {
            (_, true, true) => 0x7fff_ffff,
            (_, true, _) | (_, _, true) if nan => 0x7fff_ffff,
            (_, true, false) => y.to_bits(),
            (_, false, true) => x.to_bits(),
            // -0 counts as less than +0, which the order of the sign-magnitude pattern gives.
            (ReduxOp::Min, ..) => (if x.total_cmp(&y).is_le() { x } else { y }).to_bits(),
            _ => (if x.total_cmp(&y).is_ge() { x } else { y }).to_bits(),
        };
    }
    match op {
        ReduxOp::Add => a.wrapping_add(b),
        ReduxOp::And => a & b,
        ReduxOp::Or => a | b,
        ReduxOp::Xor => a ^ b,
        ReduxOp::Min if ty.is_signed() => (a as i32).min(b as i32) as u32,
        ReduxOp::Max if ty.is_signed() => (a as i32).max(b as i32) as u32,
        ReduxOp::Min => a.min(b),
        ReduxOp::Max => a.max(b),
    }
}

/// The set bits of a mask, lowest first.
pub(crate) fn bits(mut mask: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let bit = mask.trailing_zeros();
            mask &= mask - 1;
            bit
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffles_stay_in_their_segment() {
        // __shfl_up(.., 1) with width 8: c = (32 - 8) << 8
        assert_eq!(shfl_source(ShflMode::Up, 8, 1, 0x1800), (8, false));
        assert_eq!(shfl_source(ShflMode::Up, 9, 1, 0x1800), (8, true));
        // __shfl_down(.., 4) over the whole warp: c = 31
        assert_eq!(shfl_source(ShflMode::Down, 27, 4, 0x1f), (31, true));
        assert_eq!(shfl_source(ShflMode::Down, 28, 4, 0x1f), (28, false));
        assert_eq!(shfl_source(ShflMode::Bfly, 5, 16, 0x1f), (21, true));
        // __shfl(.., 3) with width 4: c = ((32 - 4) << 8) | 31
        assert_eq!(shfl_source(ShflMode::Idx, 13, 3, 0x1c1f), (15, true));
    }

    #[test]
    fn a_group_completes_with_its_last_member() {
        let warp = Warp::new(0xf);
        warp.ready.set(0);
        assert!(!warp.arrive(0, 0x7, Collective::Vote(VoteMode::Ballot), 1));
        assert!(!warp.arrive(2, 0x7, Collective::Vote(VoteMode::Ballot), 1));
        assert!(warp.arrive(1, 0x7, Collective::Vote(VoteMode::Ballot), 0));
        assert_eq!(warp.result(2), (5, true));
        assert_eq!(warp.ready.get(), 0x7);
    }

    #[test]
    fn an_exited_member_is_not_waited_for() {
        let warp = Warp::new(0x3);
        warp.ready.set(2);
        assert!(!warp.arrive(0, 0x3, Collective::MatchAny, 9));
        warp.exit(1);
        assert_eq!(warp.result(0), (1, true));
    }

    #[test]
    fn quiet_groups_form_per_instruction() {
        let warp = Warp::new(0xf);
        warp.ready.set(0);
        for (lane, site) in [(0, 7), (1, 8), (2, 7), (3, 8)] {
            warp.arrive_quiet(lane, site, Collective::ActiveMask, 0);
        }
        assert!(warp.resolve_quiet());
        assert_eq!((warp.result(2).0, warp.result(1).0), (0x5, 0xa));
    }
}
