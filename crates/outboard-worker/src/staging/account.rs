//! Divides staging memory among the session's copies, of all contexts.
//!
//! The client must keep its uploads within [`UPLOADS`]; the table of transfers ends a session that
//! does not. The worker assigns the memory of downloads: a part of [`DOWNLOADS`] is for copies that
//! are queued whole at once, the rest for copies that their stream has reached, in that order. A
//! blocked stream therefore never keeps memory from one that progresses.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use outboard_driver::Table;
use outboard_wire::limits::{DOWNLOADS, WINDOW};
use parking_lot::{Mutex, MutexGuard};

use super::locking::PageLocking;
use super::memory::{BLOCK, Pool};
use super::watch::Watcher;

/// Downloads that are queued before their stream has come to them leave room for the largest of
/// those to which it has come.
const IMMEDIATE_BYTES: usize = DOWNLOADS - BLOCK;
/// Blocks of page-locked memory: pieces of unlike sizes do not fill them.
const MAX_BLOCKS: usize = 16;
/// Downloads that wait for their stream and for memory. The driver, too, has a caller wait when a
/// stream holds too much.
const MAX_WAITING: usize = 4096;
/// How often a dispatcher that must wait looks.
const PAUSE: Duration = Duration::from_millis(1);

const _: () =
    assert!(IMMEDIATE_BYTES >= WINDOW && MAX_BLOCKS * BLOCK <= 3 * outboard_wire::limits::STAGING);

/// The account of a session.
#[derive(Default)]
pub(crate) struct Account {
    locking: PageLocking,
    state: Mutex<AccountState>,
}

/// Copies whose memory is counted together. Copies of one class may wait for those of the other to
/// end, so neither takes the other's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// To the client or a peer, and late ones from the client.
    Leaving,
    /// From a peer.
    Arriving,
}

#[derive(Default)]
struct AccountState {
    classes: [Counts; 2],
    blocks: usize,
    tickets: u64,
    pools: Vec<Weak<Pool>>,
}

/// The memory of a class.
#[derive(Default)]
struct Counts {
    bytes: usize,
    waiting: usize,
    /// Copies whose turn has come and that have no memory yet.
    queue: VecDeque<u64>,
}

impl AccountState {
    fn of(&mut self, class: Class) -> &mut Counts {
        &mut self.classes[class as usize]
    }
}

/// A copy's share of the account, returned on drop.
pub(super) struct Share {
    account: Arc<Account>,
    class: Class,
    bytes: usize,
    watcher: Arc<Watcher>,
}

/// A copy that waits.
pub(super) struct Ticket {
    account: Arc<Account>,
    class: Class,
    number: u64,
}

/// A block of page-locked memory that counts while this lives.
pub(super) struct BlockPermit(Arc<Account>);

impl Account {
    /// One whose memory a driver locks in this way.
    pub(crate) fn new(locking: PageLocking) -> Account {
        Account { locking, state: Mutex::default() }
    }

    /// How the driver locks its memory.
    pub(super) fn locking(&self) -> PageLocking {
        self.locking
    }

    fn state(&self) -> MutexGuard<'_, AccountState> {
        self.state.lock()
    }

    /// A further context's pool.
    pub(super) fn add_pool(&self, pool: &Arc<Pool>) {
        let mut state = self.state();
        state.pools.retain(|pool| pool.strong_count() > 0);
        state.pools.push(Arc::downgrade(pool));
    }

    /// Memory for a copy to be queued whole, unless others wait or have it.
    pub(super) fn try_reserve(
        self: &Arc<Account>,
        class: Class,
        bytes: usize,
        watcher: &Arc<Watcher>,
    ) -> Option<Share> {
        let mut state = self.state();
        let counts = state.of(class);
        if counts.bytes + bytes > IMMEDIATE_BYTES {
            return None;
        }
        counts.bytes += bytes;
        Some(self.share(class, bytes, watcher))
    }

    fn share(self: &Arc<Account>, class: Class, bytes: usize, watcher: &Arc<Watcher>) -> Share {
        Share { account: Arc::clone(self), class, bytes, watcher: Arc::clone(watcher) }
    }

    /// A ticket for a copy that waits; the dispatcher waits while there are too many.
    pub(super) fn ticket(self: &Arc<Account>, class: Class) -> Ticket {
        loop {
            let mut state = self.state();
            if state.of(class).waiting < MAX_WAITING {
                state.of(class).waiting += 1;
                state.tickets += 1;
                return Ticket { account: Arc::clone(self), class, number: state.tickets };
            }
            drop(state);
            std::thread::sleep(PAUSE);
        }
    }

    /// Room for one more block. If there is none, unused memory of other contexts is released
    /// first, and the caller may try again.
    pub(super) fn block_permit(self: &Arc<Account>, table: &Table) -> Option<BlockPermit> {
        let mut state = self.state();
        if state.blocks >= MAX_BLOCKS {
            let pools: Vec<_> = state.pools.iter().filter_map(Weak::upgrade).collect();
            drop(state);
            pools.iter().for_each(|pool| pool.release_unused(table));
            state = self.state();
        }
        if state.blocks >= MAX_BLOCKS {
            return None;
        }
        state.blocks += 1;
        Some(BlockPermit(Arc::clone(self)))
    }
}

impl Ticket {
    /// The stream has come to the copy: memory for it, when it is its turn.
    pub(super) fn try_reserve(&self, bytes: usize, watcher: &Arc<Watcher>) -> Option<Share> {
        let mut state = self.account.state();
        let counts = state.of(self.class);
        if !counts.queue.contains(&self.number) {
            counts.queue.push_back(self.number);
        }
        if counts.queue.front() != Some(&self.number) || counts.bytes + bytes > DOWNLOADS {
            return None;
        }
        counts.queue.pop_front();
        counts.bytes += bytes;
        Some(self.account.share(self.class, bytes, watcher))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.account.state();
        let counts = state.of(self.class);
        counts.bytes -= self.bytes;
        let awaited = !counts.queue.is_empty();
        drop(state);
        if awaited {
            self.watcher.nudge();
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.account.state();
        let counts = state.of(self.class);
        counts.waiting -= 1;
        counts.queue.retain(|number| *number != self.number);
    }
}

impl Drop for BlockPermit {
    fn drop(&mut self) {
        self.0.state().blocks -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::helpers::Helpers;

    #[test]
    fn downloads_whose_turn_it_is_get_memory_in_that_order() {
        let (account, watcher) = (Arc::new(Account::default()), Watcher::new(Helpers::new()));
        let first =
            account.try_reserve(Class::Leaving, WINDOW, &watcher).expect("room for a window");
        let mut more = Vec::new();
        while let Some(share) = account.try_reserve(Class::Leaving, WINDOW, &watcher) {
            more.push(share);
        }
        assert!(
            account.try_reserve(Class::Leaving, 1 << 20, &watcher).is_some(),
            "small ones find room beside large ones"
        );
        let (one, two) = (account.ticket(Class::Leaving), account.ticket(Class::Leaving));
        let share = one
            .try_reserve(BLOCK, &watcher)
            .expect("what is queued whole leaves room for those that have come to their turn");
        assert!(two.try_reserve(WINDOW, &watcher).is_none());
        let three = account.ticket(Class::Leaving);
        let other = account.ticket(Class::Arriving);
        assert!(other.try_reserve(WINDOW, &watcher).is_some(), "its memory is its own");
        drop(share);
        assert!(three.try_reserve(1, &watcher).is_none(), "it is behind another");
        let share = two.try_reserve(WINDOW, &watcher).expect("its turn");
        assert!(three.try_reserve(1, &watcher).is_some());
        drop((share, first, more, one, two, three, other));
        for counts in &account.state().classes {
            assert_eq!((counts.bytes, counts.waiting, counts.queue.len()), (0, 0, 0));
        }
    }
}
