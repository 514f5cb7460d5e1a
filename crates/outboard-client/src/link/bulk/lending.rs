//! Page-locked memory of the program that an adapter of the server's reads and writes itself.
//!
//! An allocation is registered with the client's own adapter at its first large copy, and until the
//! program gives it up. The connection for it ends before any lane goes on over another one:
//! whatever comes again on lanes, no adapter writes there any more.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};

use outboard_transport::rdma::direct::{Lender, Loan};
use outboard_wire::lane::Place;
use outboard_wire::limits::UNSTAGED_FROM;

use super::super::locks::lock;
use super::host_bytes::HostBytes;

/// Fewer bytes are sent in less time than both sides need to say where they are.
const LEAST: u64 = 128 << 10;

/// What is lent to the server's adapter.
#[derive(Debug, Default)]
pub(in super::super) struct Lending {
    lender: OnceLock<Lender>,
    /// The program's page-locked memory, by its first address.
    memory: Mutex<BTreeMap<u64, PageLocked>>,
    /// Whether the adapter moves bytes between lent memory and the device itself.
    unstaged: AtomicBool,
}

#[derive(Debug)]
struct PageLocked {
    bytes: u64,
    loan: LoanState,
}

#[derive(Debug)]
enum LoanState {
    /// No large copy has needed one.
    None,
    Lent(Loan),
    /// The adapter does not take the memory.
    Refused,
}

impl Lending {
    /// The server's adapter is connected from here on.
    pub(in super::super) fn begin(&self, lender: Lender) {
        // There is one for each session; another one would end here.
        let _ = self.lender.set(lender);
    }

    /// From here on, the adapter moves bytes between lent memory and the device itself.
    pub(super) fn begin_unstaged(&self) {
        self.unstaged.store(true, Ordering::Relaxed);
    }

    /// Whether a copy of so many bytes from lent memory to the device needs no staging memory.
    pub(super) fn takes_unstaged(&self, len: u64) -> bool {
        self.unstaged.load(Ordering::Relaxed) && len >= UNSTAGED_FROM
    }

    fn lender(&self) -> Option<&Lender> {
        self.lender.get().filter(|lender| lender.is_connected())
    }

    /// The program has page-locked memory.
    ///
    /// # Safety
    /// It stays mapped until [`remove`](Self::remove) has returned.
    pub(in super::super) unsafe fn add(&self, start: *mut u8, bytes: usize) {
        let memory = PageLocked { bytes: bytes as u64, loan: LoanState::None };
        lock(&self.memory).insert(start as u64, memory);
    }

    /// The memory goes, or is not to be read and written by adapters: no copy uses it, and none is
    /// begun meanwhile.
    pub(in super::super) fn remove(&self, start: *mut u8) {
        let removed = lock(&self.memory).remove(&(start as u64));
        if let (Some(PageLocked { loan: LoanState::Lent(loan), .. }), Some(lender)) =
            (removed, self.lender.get())
        {
            lender.take_back(loan);
        }
    }

    /// Lends the memory of a transfer of `len` bytes, if it is page-locked and lies in one piece.
    pub(super) fn lend(&self, host: &HostBytes, len: u64) -> Option<Place> {
        let lender = self.lender().filter(|_| len >= LEAST)?;
        self.with(host, len, |start, memory| {
            if matches!(memory.loan, LoanState::None) {
                // SAFETY: `add` was promised that it stays until `remove`, which takes it back.
                let lent = unsafe { lender.lend(start as *mut u8, memory.bytes as usize) };
                memory.loan = lent.map_or(LoanState::Refused, LoanState::Lent);
            }
        })
    }

    /// The place of bytes in memory that is lent.
    pub(super) fn place(&self, host: &HostBytes, len: u64) -> Option<Place> {
        self.lender().filter(|_| len >= LEAST)?;
        self.with(host, len, |_, _| ())
    }

    fn with(
        &self,
        host: &HostBytes,
        len: u64,
        prepare: impl FnOnce(u64, &mut PageLocked),
    ) -> Option<Place> {
        let address = host.contiguous()? as u64;
        let mut all = lock(&self.memory);
        let (start, memory) = all.range_mut(..=address).next_back()?;
        if address - start + len > memory.bytes {
            return None;
        }
        prepare(*start, memory);
        let LoanState::Lent(loan) = &memory.loan else { return None };
        let there = loan.remote(address)?;
        Some(Place { address: there.address, key: there.rkey })
    }

    /// The server's adapter reads and writes nothing from here on.
    pub(super) fn end(&self) {
        if let Some(lender) = self.lender.get() {
            lender.end();
        }
    }

    /// In a forked child: leaves all to the parent.
    pub(super) fn abandon(&self) {
        if let Some(lender) = self.lender.get() {
            lender.abandon();
        }
    }
}
