//! Slots of private tables that refuse: each slot has a function of its own, so that the statistics
//! can say which one a program called. This shows which functions a library needs.

use std::collections::BTreeMap;

use outboard_abi::CUresult;
use parking_lot::Mutex;

/// More slots than any table has.
pub(crate) const SLOTS: usize = 100;

/// Refused functions by name, while statistics are kept.
static REFUSED: Mutex<BTreeMap<String, (u64, CUresult)>> = Mutex::new(BTreeMap::new());

/// Refuses, and notes that slot `SLOT` of the table whose id begins with `TABLE` was called.
extern "C" fn refuse<const TABLE: u16, const SLOT: usize>() -> CUresult {
    let refusal = CUresult::CUDA_ERROR_NOT_SUPPORTED;
    // Nothing here panics but an allocation that fails, which ends the process anyway.
    note(|| format!("table {TABLE:04x}, slot {SLOT}"), refusal);
    refusal
}

/// Counts a request for an unknown table.
pub(crate) fn unknown_table(id: &[u8; 16]) {
    let name =
        || id.iter().fold(String::from("unknown table "), |text, byte| format!("{text}{byte:02x}"));
    note(name, CUresult::CUDA_ERROR_INVALID_VALUE);
}

#[cold]
fn note(name: impl FnOnce() -> String, error: CUresult) {
    if crate::profile::is_on() {
        let mut refused = REFUSED.lock();
        let (count, last) = refused.entry(name()).or_insert((0, error));
        *count += 1;
        *last = error;
    }
}

/// (name, how often, with which error)
pub(crate) fn refused() -> Vec<(String, u64, CUresult)> {
    let refused = REFUSED.lock();
    refused.iter().map(|(name, (count, last))| (name.clone(), *count, *last)).collect()
}

/// The functions of a table all of whose slots refuse.
pub(crate) fn slots<const TABLE: u16>() -> [usize; SLOTS] {
    macro_rules! functions {
        ($($slot:literal)*) => { [$(refuse::<TABLE, $slot> as *const () as usize),*] };
    }
    functions! {
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40 41 42 43 44
        45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86
        87 88 89 90 91 92 93 94 95 96 97 98 99
    }
}

#[cfg(test)]
mod tests {
    use super::{SLOTS, slots};
    use std::collections::BTreeSet;

    #[test]
    fn every_slot_has_a_function_of_its_own() {
        let all: BTreeSet<usize> = slots::<1>().into_iter().chain(slots::<2>()).collect();
        assert_eq!(all.len(), 2 * SLOTS);
    }
}
