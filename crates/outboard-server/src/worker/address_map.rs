//! The worker's addresses: all but those of the session's window are kept from the driver, so that what it places lies there.
//!
//! A driver takes addresses of devices from the address space of its own process, where the system puts what is mapped without an address in the first
//! gap from a third of it upwards (the supervisor sees to that). What is occupied here before the driver is loaded leaves the window as that gap. What this
//! process maps itself from then on, stacks of threads and the heap among it, comes to lie there, too, as nobody could tell it from the driver's. Only page-locked
//! memory of the client has addresses of its own, in what is occupied.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use outboard_driver::{Table, call};
use outboard_transport::reserved::{Reserved, gaps};
use outboard_wire::window::Window;

/// Below this, NVIDIA's driver needs addresses that it names: from 0x205600000 to 0x301000000, seen of release 580.
const LOWEST: u64 = 0x4_2000_0000;
/// Above this is the stack of the main thread, to which the system gives what it needs.
const HIGHEST: u64 = 0x7ff0_0000_0000;
/// How often gaps are looked for: to occupy them may take memory, which leaves new ones.
const TRIES: usize = 8;
/// Bytes of the reservation by which a driver shows where it places things; all of NVIDIA's take multiples of this.
const TRIAL: usize = 2 << 20;

/// Occupies all addresses but those of a window. The process has one thread still.
pub(super) fn occupy(window: Window) -> io::Result<Arc<Reserved>> {
    let reserved = Reserved::new();
    let outcome = occupy_outside(&reserved, &window.range());
    if outcome.is_err() {
        reserved.clear();
    }
    outcome.map(|()| Arc::new(reserved))
}

fn occupy_outside(reserved: &Reserved, window: &Range<u64>) -> io::Result<()> {
    for _ in 0..TRIES {
        let maps = std::fs::read("/proc/self/maps")?;
        let free = free_outside(&String::from_utf8_lossy(&maps), window);
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
fn free_outside(maps: &str, window: &Range<u64>) -> Vec<Range<u64>> {
    let outside = [LOWEST..window.start, window.end..HIGHEST];
    outside.iter().flat_map(|part| gaps(maps, part)).collect()
}

/// Whether the driver places what it places in the window, by a reservation, for which no context is needed.
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
        let window = Window::numbered(1).unwrap().range();
        let free = free_outside(MAPS, &window);
        let wanted = [
            0x4_2000_0000..0x2aaa_ab00_0000,
            0x2aaa_ab20_0000..0x3200_0000_0000,
            0x3400_0000_0000..0x5555_5555_4000,
            0x5555_5560_0000..0x7ff0_0000_0000,
        ];
        assert_eq!(free, wanted);
        // The program's own mapping lies in the window.
        let window = Window::numbered(18).unwrap().range();
        assert!(free_outside(MAPS, &window).iter().all(|gap| gap.end <= window.start || gap.start >= window.end));
    }
}
