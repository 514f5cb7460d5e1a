//! The worker's address space: everything but the session's window is occupied before the driver is
//! loaded, so that the driver places everything in the window.
//!
//! A driver takes device addresses from the address space of its own process. The system puts
//! mappings without an address into the first gap from a third of that space upwards (the
//! supervisor arranges that), and the occupied addresses leave the window as that gap. Later
//! mappings of this process itself, such as stacks of threads and the heap, lie in the window, too:
//! the system cannot distinguish them from the driver's. Only page-locked memory of the client has
//! addresses of its own, among the occupied ones.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use outboard_driver::{Table, call};
use outboard_ranges::{Mapping, gaps, own_mappings};
use outboard_transport::reserved::Reserved;
use outboard_wire::window::Window;

/// From here on, addresses are occupied before the driver is loaded. Below, NVIDIA's needs some
/// that it names: from 0x200000000 to 0x301000000, seen of release 580.
const BEFORE_THE_DRIVER: u64 = 0x4_2000_0000;
/// From here on, once it has started: it would use what is left of those for reservations of
/// programs.
const ONCE_IT_HAS_STARTED: u64 = 0x2_0000_0000;
/// Above this is the stack of the main thread, to which the system gives what it needs.
const HIGHEST: u64 = 0x7ff0_0000_0000;
/// How often gaps are looked for: to occupy them may take memory, which leaves new ones.
const TRIES: usize = 8;
/// Bytes of the reservation by which a driver shows where it places things; all of NVIDIA's take
/// multiples of this.
const TRIAL: usize = 2 << 20;

/// Occupies all addresses but those of a window and some that the driver names. The process has one
/// thread still.
pub(super) fn occupy(window: Window) -> io::Result<Arc<Reserved>> {
    let reserved = Reserved::new();
    let outcome = occupy_from(BEFORE_THE_DRIVER, &reserved, window);
    if outcome.is_err() {
        reserved.clear();
    }
    outcome.map(|()| Arc::new(reserved))
}

/// Occupies the addresses in the window that the driver has not taken.
pub(super) fn occupy_the_rest(reserved: &Reserved, window: Window) -> io::Result<()> {
    occupy_from(ONCE_IT_HAS_STARTED, reserved, window)
}

fn occupy_from(lowest: u64, reserved: &Reserved, window: Window) -> io::Result<()> {
    for _ in 0..TRIES {
        let free = free_outside(&own_mappings()?.collect::<Vec<_>>(), lowest, window);
        if free.is_empty() {
            return Ok(());
        }
        for gap in free {
            match reserved.reserve(gap) {
                // The next look finds what is left of it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                outcome => outcome?,
            }
        }
    }
    Err(io::Error::other("the process's mappings do not stand still"))
}

/// The gaps between mappings that are to be occupied.
fn free_outside(mapped: &[Mapping], lowest: u64, window: Window) -> Vec<Range<u64>> {
    let Range { start, end } = window.range();
    [lowest..start, end..HIGHEST].iter().flat_map(|part| gaps(mapped, part)).collect()
}

/// Whether the driver uses the window, tested by a reservation, which needs no context.
pub(super) fn is_kept_to(table: &Table, window: Window) -> bool {
    let mut address = 0;
    if call!(table, cuMemAddressReserve(&raw mut address, TRIAL, 0, 0, 0)).is_err() {
        return false;
    }
    let _ = call!(table, cuMemAddressFree(address, TRIAL));
    window.contains(address, TRIAL as u64)
}

#[cfg(test)]
mod tests {
    use outboard_ranges::mappings;

    use super::*;

    const MAPS: &str = "\
        00400000-00500000 r-xp 00000000 fe:00 1  /a/program\n\
        200000000-210000000 rw-s 00000000 00:00 0 \n\
        2aaaab000000-2aaaab200000 r-xp 00000000 fe:00 2  /a/library.so\n\
        320000100000-320000200000 rw-p 00000000 00:00 0 \n\
        555555554000-555555600000 rw-p 00000000 00:00 0  [heap]\n\
        7ffc181d4000-7ffc181f5000 rw-p 00000000 00:00 0  [stack]\n\
        ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]\n";

    #[test]
    fn all_is_occupied_but_the_window_and_what_there_is() {
        let window = |number| Window::numbered(number).unwrap();
        let wanted = [
            0x4_2000_0000..0x2aaa_ab00_0000,
            0x2aaa_ab20_0000..0x3200_0000_0000,
            0x3400_0000_0000..0x5555_5555_4000,
            0x5555_5560_0000..0x7ff0_0000_0000,
        ];
        let mapped: Vec<Mapping> = mappings(MAPS.as_bytes()).collect();
        assert_eq!(free_outside(&mapped, BEFORE_THE_DRIVER, window(1)), wanted);
        let rest = free_outside(&mapped, ONCE_IT_HAS_STARTED, window(1));
        assert_eq!((rest[0].clone(), &rest[1..]), (0x2_1000_0000..0x2aaa_ab00_0000, &wanted[1..]));
    }
}
