//! Handles of the driver that sessions share with each other, under tokens that cannot be guessed.
//!
//! A worker registers what its client exports, under a random token; the worker of any other
//! session of this server that presents the token gets it. A session's shares end with it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};

use crate::closing::Foreign;

/// Tokens that a session may have out at once.
const MOST_OF_A_SESSION: usize = 1 << 16;
/// Bytes that a worker says of what has a token.
const LONGEST_PAYLOAD: usize = 256;

/// Everything that is shared.
pub(super) struct Shares {
    table: RefCell<Table>,
    most: Descriptors,
}

/// Descriptors that may be shared: they are the supervisor's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptors {
    /// By all sessions together.
    pub(super) all: usize,
    /// By one session.
    pub(super) of_a_session: usize,
}

#[derive(Default)]
struct Table {
    shares: HashMap<u128, Share>,
    /// Tokens and descriptors of each session.
    counts: HashMap<u64, (usize, usize)>,
    /// Descriptors of all sessions.
    descriptors: usize,
}

struct Share {
    session: u64,
    kind: u8,
    payload: Vec<u8>,
    descriptor: Option<Foreign>,
}

impl Shares {
    /// Nothing yet, and room for so many descriptors.
    pub(super) fn new(most: Descriptors) -> Shares {
        Shares { table: RefCell::default(), most }
    }

    /// Keeps what a session shares; `false` if the token is taken, or the session or all of them
    /// have too many.
    pub(super) fn add(
        &self,
        session: u64,
        token: u128,
        kind: u8,
        payload: Vec<u8>,
        descriptor: Option<Foreign>,
    ) -> bool {
        let mut table = self.table.borrow_mut();
        let (tokens, descriptors) = table.counts.get(&session).copied().unwrap_or_default();
        let more = usize::from(descriptor.is_some());
        let has_room = tokens < MOST_OF_A_SESSION
            && descriptors + more <= self.most.of_a_session
            && table.descriptors + more <= self.most.all;
        if !has_room || payload.len() > LONGEST_PAYLOAD || table.shares.contains_key(&token) {
            return false;
        }
        table.descriptors += more;
        table.counts.insert(session, (tokens + 1, descriptors + more));
        table.shares.insert(token, Share { session, kind, payload, descriptor });
        true
    }

    /// Forgets one of a session's own tokens.
    pub(super) fn remove(&self, session: u64, token: u128) {
        let mut table = self.table.borrow_mut();
        if table.shares.get(&token).is_some_and(|share| share.session == session)
            && let Some(share) = table.shares.remove(&token)
        {
            let less = usize::from(share.descriptor.is_some());
            table.descriptors -= less;
            if let Some((tokens, descriptors)) = table.counts.get_mut(&session) {
                *tokens -= 1;
                *descriptors -= less;
            }
        }
    }

    /// Forgets all that a session has shared.
    pub(super) fn forget(&self, session: u64) {
        let mut table = self.table.borrow_mut();
        if let Some((_, descriptors)) = table.counts.remove(&session) {
            table.descriptors -= descriptors;
        }
        table.shares.retain(|_, share| share.session != session);
    }

    /// Returns the share with that token, if it is of that kind.
    pub(super) fn find<T>(
        &self,
        token: u128,
        kind: u8,
        show: impl FnOnce(Option<(&[u8], Option<BorrowedFd<'_>>)>) -> T,
    ) -> T {
        let table = self.table.borrow();
        let share = table.shares.get(&token).filter(|share| share.kind == kind);
        show(
            share.map(|share| {
                (share.payload.as_slice(), share.descriptor.as_ref().map(AsFd::as_fd))
            }),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares() -> Shares {
        Shares::new(Descriptors { all: 5, of_a_session: 3 })
    }

    fn found(shares: &Shares, token: u128, kind: u8) -> Option<Vec<u8>> {
        shares.find(token, kind, |share| share.map(|(payload, _)| payload.to_vec()))
    }

    #[test]
    fn tokens_end_with_their_session() {
        let shares = shares();
        assert!(shares.add(1, 10, 1, vec![5], None) && shares.add(2, 20, 1, vec![6], None));
        assert!(
            !shares.add(2, 10, 1, vec![7], None),
            "a token of another session cannot be taken over"
        );
        assert_eq!(found(&shares, 10, 1), Some(vec![5]));
        assert_eq!(found(&shares, 10, 2), None, "of another kind");
        assert_eq!(found(&shares, 11, 1), None);
        shares.remove(2, 10);
        assert!(found(&shares, 10, 1).is_some(), "only its own session takes it back");
        shares.forget(1);
        assert_eq!((found(&shares, 10, 1), found(&shares, 20, 1)), (None, Some(vec![6])));
    }

    #[test]
    fn a_session_shares_only_so_much() {
        let shares = shares();
        for token in 0..MOST_OF_A_SESSION as u128 {
            assert!(shares.add(1, token, 1, Vec::new(), None));
        }
        assert!(
            !shares.add(1, u128::MAX, 1, Vec::new(), None)
                && shares.add(2, u128::MAX, 1, Vec::new(), None)
        );
        shares.remove(1, 5);
        assert!(shares.add(1, 5, 1, Vec::new(), None));
        assert!(
            !shares.add(2, 6 << 64, 1, vec![0; LONGEST_PAYLOAD + 1], None),
            "what a worker says is short"
        );
    }

    #[test]
    fn descriptors_are_few_for_a_session_and_for_all() {
        let shares = shares();
        let descriptor = || Some(Foreign::new(std::fs::File::open("/dev/null").unwrap().into()));
        let add = |session, token| shares.add(session, token, 1, Vec::new(), descriptor());
        assert!((0..3).all(|token| add(1, token)));
        assert!(!add(1, 3) && shares.add(1, 3, 1, Vec::new(), None), "a session has its own share");
        assert!(add(2, 10) && add(2, 11));
        assert!(!add(2, 12) && !add(3, 20), "and all have one");
        shares.remove(1, 0);
        assert!(add(3, 20) && !add(1, 0));
        shares.forget(2);
        assert!(add(1, 0) && add(3, 21) && !add(3, 22));
        shares.forget(1);
        shares.forget(3);
        assert_eq!(shares.table.borrow().descriptors, 0);
    }
}
