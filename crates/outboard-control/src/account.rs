//! The account of a lease on a server: what each of its sessions holds of each device's memory, so
//! that all of them together keep to what the lease has.
//!
//! The sessions' workers have it in common, and nobody else: a worker gone wrong can harm the
//! sessions of its own lease, which have one owner. A worker writes only its own seat. When it has
//! ended, however that was, the supervisor clears the seat.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::sealed;

/// Sessions of a lease at once.
pub const SEATS: usize = 64;
/// Devices of a server whose memory is counted, by ordinal.
pub const DEVICES: usize = 64;

/// What one session holds.
#[repr(C)]
struct Holdings {
    /// What its account counts.
    charged: [AtomicU64; DEVICES],
    /// What pools and graphs hold, as far as the worker has asked them.
    elsewhere: [AtomicU64; DEVICES],
}

/// All zero is an account of which nothing is used.
#[repr(C)]
struct Page {
    seats: [Holdings; SEATS],
}

const BYTES: usize = size_of::<Page>();

fn map(memory: BorrowedFd<'_>) -> io::Result<*mut Page> {
    let flags = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping, wherever there is room.
    let address =
        unsafe { mmap(core::ptr::null_mut(), BYTES, flags, MapFlags::SHARED, memory, 0) }?;
    Ok(address.cast())
}

impl Holdings {
    fn of(&self, device: u32) -> u64 {
        let device = device as usize;
        let (Some(charged), Some(elsewhere)) =
            (self.charged.get(device), self.elsewhere.get(device))
        else {
            return 0;
        };
        charged.load(Ordering::SeqCst).saturating_add(elsewhere.load(Ordering::SeqCst))
    }
}

/// A session's seat at the account, in its worker.
#[derive(Clone, Copy)]
pub struct Seat {
    page: &'static Page,
    own: usize,
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Seat").field(&self.own).finish()
    }
}

impl Seat {
    /// The seat with this number; the account stays mapped for ever.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if there is no such seat, or the system's error.
    pub fn at(memory: BorrowedFd<'_>, own: u32) -> io::Result<Seat> {
        let own = own as usize;
        if own >= SEATS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: mapped for ever, and sealed so that it never shrinks; a page is only atomics, for
        // which any bytes are valid.
        let page = unsafe { &*map(memory)? };
        Ok(Seat { page, own })
    }

    /// Which one it is.
    pub fn number(&self) -> u32 {
        self.own as u32
    }

    /// What the session's account counts of a device.
    pub fn charged(&self, device: u32) -> Option<&'static AtomicU64> {
        self.page.seats[self.own].charged.get(device as usize)
    }

    /// Notes what pools and graphs hold of a device.
    pub fn set_elsewhere(&self, device: u32, bytes: u64) {
        if let Some(elsewhere) = self.page.seats[self.own].elsewhere.get(device as usize) {
            elsewhere.store(bytes, Ordering::SeqCst);
        }
    }

    /// What the other sessions hold of a device.
    pub fn others(&self, device: u32) -> u64 {
        let others = self.page.seats.iter().enumerate().filter(|(seat, _)| *seat != self.own);
        others.fold(0, |sum: u64, (_, held)| sum.saturating_add(held.of(device)))
    }
}

/// This worker's seat.
static SEAT: OnceLock<Seat> = OnceLock::new();

/// Takes the seat that the supervisor has given.
///
/// # Errors
/// As [`Seat::at`].
pub fn join(memory: BorrowedFd<'_>, own: u32) -> io::Result<()> {
    // A worker joins once.
    let _ = SEAT.set(Seat::at(memory, own)?);
    Ok(())
}

/// This worker's seat, if its session is one of a lease.
pub fn seat() -> Option<Seat> {
    SEAT.get().copied()
}

/// An account from the supervisor's side.
pub struct Account {
    page: *mut Page,
    memory: OwnedFd,
}

impl Account {
    /// Makes one.
    ///
    /// # Errors
    /// The system's error if it has no memory, descriptor or mapping to give.
    pub fn create() -> io::Result<Account> {
        Account::attach(sealed::create("outboard-account", BYTES)?)
    }

    /// Goes on with one that a worker has kept.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if the file is none, or the system's error.
    pub fn take_over(memory: OwnedFd) -> io::Result<Account> {
        sealed::check(memory.as_fd(), BYTES, "an account")?;
        Account::attach(memory)
    }

    fn attach(memory: OwnedFd) -> io::Result<Account> {
        Ok(Account { page: map(memory.as_fd())?, memory })
    }

    /// What workers map for it.
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped while this lives, and sealed so that it never shrinks; a page is only
        // atomics, for which any bytes are valid.
        unsafe { &*self.page }
    }

    /// What all sessions hold of all devices, as far as their workers say.
    pub fn total(&self) -> u64 {
        let devices = 0..DEVICES as u32;
        let all = self.page().seats.iter().flat_map(|held| devices.clone().map(|one| held.of(one)));
        all.fold(0, u64::saturating_add)
    }

    /// The session of this seat has ended: it holds nothing.
    pub fn clear(&self, seat: u32) {
        if let Some(held) = self.page().seats.get(seat as usize) {
            held.charged.iter().chain(&held.elsewhere).for_each(|cell| {
                cell.store(0, Ordering::SeqCst);
            });
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        // SAFETY: this mapping is its own, and nobody uses it any more.
        let _ = unsafe { munmap(self.page.cast(), BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_see_what_the_others_hold_until_they_are_cleared() {
        let account = Account::create().unwrap();
        let [one, two] = [0, 63].map(|seat| Seat::at(account.memory(), seat).unwrap());
        one.charged(1).unwrap().store(5, Ordering::SeqCst);
        one.set_elsewhere(1, 2);
        assert_eq!((two.others(1), one.others(1), two.others(0)), (7, 0, 0));
        two.charged(1).unwrap().store(u64::MAX, Ordering::SeqCst);
        two.set_elsewhere(1, 9);
        assert_eq!(one.others(1), u64::MAX, "whatever a worker writes");
        assert_eq!(account.total(), u64::MAX);
        account.clear(63);
        assert_eq!(account.total(), 7);
        account.clear(0);
        account.clear(64);
        assert_eq!((one.others(1), two.others(1)), (0, 0));
        assert!(Seat::at(account.memory(), 64).is_err());
        assert!(one.charged(64).is_none() && one.others(64) == 0);
    }

    #[test]
    fn only_an_account_is_taken_over() {
        let account = Account::create().unwrap();
        let again = account.memory().try_clone_to_owned().unwrap();
        Seat::at(account.memory(), 3).unwrap().set_elsewhere(0, 4);
        let again = Account::take_over(again).unwrap();
        assert_eq!(Seat::at(again.memory(), 1).unwrap().others(0), 4);
        let small = sealed::create("outboard-test", 64).unwrap();
        assert!(Account::take_over(small).is_err());
    }
}
