//! Values as sums: what depends on the lane, what is the same in all lanes, and a constant.

/// A value that is the same in all lanes of a warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Atom {
    /// The address of a variable in shared memory.
    Shared(u32),
    /// The address of dynamic shared memory.
    Dynamic,
    /// The address of a variable in device memory.
    Global(u32),
    /// A 64-bit kernel parameter, by its offset.
    Param(u32),
    /// `%tid.x` of the warp's first lane, where a warp does not span rows.
    FirstLane,
    TidY,
    TidZ,
    NtidX,
    /// What a register holds apart from the part that depends on the lane.
    Reg(u32),
}

impl Atom {
    pub(crate) fn is_symbol(self) -> bool {
        matches!(self, Atom::Shared(_) | Atom::Dynamic | Atom::Global(_) | Atom::Param(_))
    }
}

/// What an index of lanes multiplies: `%tid.x`, `%tid.y`, `%tid.z`, and `%tid.y * %ntid.x`.
pub(crate) const LANES: usize = 4;

/// A sum is cut off at this many atoms.
const MOST_TERMS: usize = 8;

/// `lanes * (tid.x, tid.y, tid.z, tid.y * ntid.x) + terms + constant`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Linear {
    pub(crate) lanes: [i64; LANES],
    /// Sorted by atom, no factor 0.
    pub(crate) terms: Vec<(Atom, i64)>,
    pub(crate) constant: i64,
    /// There is one more addend, of which nothing is known. Only symbols are kept then.
    pub(crate) divergent: bool,
}

impl Linear {
    pub(crate) fn constant(constant: i64) -> Linear {
        Linear { constant, ..Linear::default() }
    }

    pub(crate) fn atom(atom: Atom) -> Linear {
        Linear { terms: vec![(atom, 1)], ..Linear::default() }
    }

    /// Index `which` of the lanes.
    pub(crate) fn lane(which: usize) -> Linear {
        let mut lanes = [0; LANES];
        lanes[which] = 1;
        Linear { lanes, ..Linear::default() }
    }

    pub(crate) fn unknown() -> Linear {
        Linear { divergent: true, ..Linear::default() }
    }

    /// The variable or parameter that an address is in.
    pub(crate) fn symbol(&self) -> Option<Atom> {
        let mut symbols = self.terms.iter().filter(|(atom, _)| atom.is_symbol());
        match (symbols.next(), symbols.next()) {
            (Some(&(atom, 1)), None) => Some(atom),
            _ => None,
        }
    }

    /// Nothing but the symbol is known of it.
    pub(crate) fn blurred(self) -> Linear {
        let terms = self.symbol().map(|symbol| (symbol, 1)).into_iter().collect();
        Linear { terms, ..Linear::unknown() }
    }

    pub(crate) fn is_uniform(&self) -> bool {
        !self.divergent && self.lanes == [0; LANES]
    }

    pub(crate) fn as_constant(&self) -> Option<i64> {
        (self.is_uniform() && self.terms.is_empty()).then_some(self.constant)
    }

    /// The factor of an atom.
    pub(crate) fn factor(&self, atom: Atom) -> i64 {
        self.terms.iter().find(|(a, _)| *a == atom).map_or(0, |(_, factor)| *factor)
    }

    /// `self + other * factor`.
    pub(crate) fn plus(&self, other: &Linear, factor: i64) -> Linear {
        let mut terms = self.terms.clone();
        for &(atom, times) in &other.terms {
            let times = times.wrapping_mul(factor);
            match terms.binary_search_by_key(&atom, |(a, _)| *a) {
                Ok(at) => terms[at].1 = terms[at].1.wrapping_add(times),
                Err(at) => terms.insert(at, (atom, times)),
            }
        }
        terms.retain(|(_, times)| *times != 0);
        let sum = Linear {
            lanes: std::array::from_fn(|i| {
                self.lanes[i].wrapping_add(other.lanes[i].wrapping_mul(factor))
            }),
            constant: self.constant.wrapping_add(other.constant.wrapping_mul(factor)),
            divergent: self.divergent || other.divergent,
            terms,
        };
        if sum.divergent || sum.terms.len() > MOST_TERMS { sum.blurred() } else { sum }
    }

    pub(crate) fn times(&self, factor: i64) -> Linear {
        Linear::default().plus(self, factor)
    }

    /// Whether it is a multiple of `unit`, so far as its factors tell.
    pub(crate) fn is_multiple(&self, unit: i64) -> bool {
        let factors = self.lanes.iter().chain(self.terms.iter().map(|(_, factor)| factor));
        !self.divergent
            && self.constant % unit == 0
            && factors.into_iter().all(|factor| factor % unit == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_cancel() {
        let base = Linear::atom(Atom::Shared(1));
        let mine = base.plus(&Linear::lane(0), 4);
        let next = mine.plus(&Linear::constant(8), 1);
        assert_eq!(next.plus(&mine, -1), Linear::constant(8));
        assert_eq!(mine.symbol(), Some(Atom::Shared(1)));
        assert!(!mine.is_uniform() && base.is_uniform());
    }

    #[test]
    fn what_is_not_known_keeps_its_variable() {
        let somewhere = Linear::atom(Atom::Dynamic).plus(&Linear::unknown(), 4);
        assert_eq!((somewhere.symbol(), somewhere.divergent), (Some(Atom::Dynamic), true));
        assert_eq!(somewhere.plus(&Linear::lane(0), 4), somewhere);
    }
}
