//! Whether two accesses of lanes of one warp may touch the same bytes.

use crate::codegen::steps::linear::{Atom, LANES, Linear};
use crate::codegen::steps::registers::Registers;

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Load,
    Store,
    Atomic,
}

/// What an access may reach, and how much care it is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Shared memory.
    Shared,
    /// Shared memory, if the kernel has any.
    Generic,
    /// Device memory, by an access that others are to see.
    Strong,
    /// Device memory.
    Weak,
}

/// An access to memory that other lanes can reach.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) kind: Kind,
    pub(crate) class: Class,
    pub(crate) size: i64,
    pub(crate) at: Linear,
}

/// What has happened to the value of an access's address since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Drift {
    None,
    /// This register was counted up, once or more often.
    Along(u32),
    /// It cannot be told any more.
    Lost,
}

/// What is found out when the kernel runs: the lanes touch the same if the sum is near zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) terms: Vec<(Atom, i64)>,
    pub(crate) constant: i64,
    /// The magnitude from which on it is far.
    pub(crate) far: i64,
    /// At zero each lane touches what it touched before.
    pub(crate) zero_is_own: bool,
}

/// What is known of two accesses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Apart,
    Same,
    Depends(Gap),
}

/// Judges an access behind an earlier one. `stride` is what its drift goes along.
pub(crate) fn judge(
    registers: &Registers<'_>,
    rows: bool,
    earlier: &Access,
    drift: Drift,
    stride: Option<&Linear>,
    later: &Access,
) -> Verdict {
    let ordered = !matches!(
        (earlier.kind, later.kind),
        (Kind::Load, Kind::Load) | (Kind::Atomic, Kind::Atomic)
    );
    if !ordered || !meet(earlier.class, later.class) {
        return Verdict::Apart;
    }
    if earlier.class == Class::Weak || later.class == Class::Weak {
        return if rows && surely(earlier, drift, later) { Verdict::Same } else { Verdict::Apart };
    }
    let symbols = (earlier.at.symbol(), later.at.symbol());
    if matches!(symbols, (Some(a), Some(b)) if a != b) {
        return Verdict::Apart;
    }
    if earlier.at.divergent || later.at.divergent || drift == Drift::Lost || symbols.0 != symbols.1
    {
        return Verdict::Same;
    }
    let difference = later.at.plus(&earlier.at, -1);
    if !rows {
        let mine =
            difference == Linear::default() && drift == Drift::None && has_slots(&later.at.lanes);
        return if mine { Verdict::Apart } else { Verdict::Same };
    }
    let (a, b) = (earlier.at.lanes[0], later.at.lanes[0]);
    let size = earlier.size.max(later.size);
    let fixed = difference.terms.is_empty();
    if drift == Drift::None && fixed {
        let touch = overlap((a, earlier.size), (b, later.size), difference.constant);
        return if touch { Verdict::Same } else { Verdict::Apart };
    }
    if a != b {
        return Verdict::Same;
    }
    let reach = a.unsigned_abs().saturating_mul(31).min(1 << 40) as i64 + size;
    match (drift, stride) {
        (Drift::None, _) => depends(registers, &difference, reach, a.abs() >= size),
        (Drift::Along(reg), Some(stride)) if fixed => {
            let each = stride.times(later.at.factor(Atom::Reg(reg)));
            depends(
                registers,
                &each,
                reach.saturating_add(difference.constant.saturating_abs()),
                false,
            )
        }
        _ => Verdict::Same,
    }
}

/// Whether accesses of these classes are looked at together.
fn meet(a: Class, b: Class) -> bool {
    let shared = |class| matches!(class, Class::Shared | Class::Generic);
    shared(a) == shared(b)
}

/// Whether threads of a block in which warps span rows each have a place of their own: rows are
/// taken not to overlap.
fn has_slots(lanes: &[i64; LANES]) -> bool {
    lanes[0] != 0 && (lanes[1] != 0 || lanes[3] != 0)
}

fn depends(registers: &Registers<'_>, sum: &Linear, far: i64, zero_is_own: bool) -> Verdict {
    if sum.terms.is_empty() {
        let near = sum.constant.saturating_abs() < far && !(zero_is_own && sum.constant == 0);
        return if near { Verdict::Same } else { Verdict::Apart };
    }
    let known = sum.terms.iter().all(|(atom, _)| match atom {
        Atom::Reg(reg) => registers.is_plain(*reg),
        Atom::NtidX => true,
        _ => false,
    });
    if !known || sum.divergent {
        return Verdict::Same;
    }
    Verdict::Depends(Gap { terms: sum.terms.clone(), constant: sum.constant, far, zero_is_own })
}

/// Whether accesses to device memory are known to touch the same: of those it is too common that
/// nothing is known.
fn surely(earlier: &Access, drift: Drift, later: &Access) -> bool {
    if drift != Drift::None || earlier.at.divergent || later.at.divergent {
        return false;
    }
    let mut difference = later.at.plus(&earlier.at, -1);
    // In the first warp, at least.
    difference.terms.retain(|(atom, _)| *atom != Atom::FirstLane);
    let (a, b) = (earlier.at.lanes[0], later.at.lanes[0]);
    (a != 0 || b != 0)
        && difference.terms.is_empty()
        && earlier.at.lanes[1..] == later.at.lanes[1..]
        && overlap((a, earlier.size), (b, later.size), difference.constant)
}

/// Whether one lane's bytes, of a stride and a size, are touched by those of another lane,
/// `difference` further on.
fn overlap((a, first): (i64, i64), (b, second): (i64, i64), difference: i64) -> bool {
    let place = |stride: i64, lane: i64| i128::from(stride) * i128::from(lane);
    let touch = |from: i64, to: i64| {
        let behind = place(b, to) + i128::from(difference) - place(a, from);
        behind < i128::from(first) && -behind < i128::from(second)
    };
    if a == b {
        return (1..32).any(|by| touch(0, by) || touch(by, 0));
    }
    (0..32).any(|from| (0..32).any(|to| from != to && touch(from, to)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_overlap() {
        // Each lane its own word; a neighbour's; one that no lane of the warp has.
        assert!(!overlap((4, 4), (4, 4), 0));
        assert!(overlap((4, 4), (4, 4), 4) && overlap((4, 4), (4, 4), -124));
        assert!(!overlap((4, 4), (4, 4), 128));
        // Mirrored.
        assert!(overlap((4, 4), (-4, 4), 124));
        assert!(!overlap((4, 4), (-4, 4), -128));
        // One word of all lanes.
        assert!(overlap((0, 4), (0, 4), 0) && !overlap((0, 4), (0, 4), 4));
        // Fields of a structure.
        assert!(!overlap((12, 4), (12, 4), 8));
    }
}
