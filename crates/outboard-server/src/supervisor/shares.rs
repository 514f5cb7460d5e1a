//! What sessions share with each other: the driver's own handles, under tokens that cannot be guessed.
//!
//! A worker says what its client exports, under a token that it drew; the worker of any other session of this server that shows the token gets it. What
//! a session has shared ends with it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Tokens that a session may have out at once.
const MOST_OF_A_SESSION: usize = 1 << 16;
/// Descriptors among them: they are the supervisor's own.
const MOST_DESCRIPTORS: usize = 4096;

/// Everything that is shared.
#[derive(Default)]
pub(super) struct Shares {
    table: RefCell<Table>,
}

#[derive(Default)]
struct Table {
    shares: HashMap<u128, Share>,
    /// Tokens and descriptors of each session.
    counts: HashMap<u64, (usize, usize)>,
}

struct Share {
    session: u64,
    kind: u8,
    payload: Vec<u8>,
    descriptor: Option<OwnedFd>,
}

impl Shares {
    /// Keeps what a session shares; `false` if the token is taken or the session has too many.
    pub(super) fn add(
        &self,
        session: u64,
        token: u128,
        kind: u8,
        payload: Vec<u8>,
        descriptor: Option<OwnedFd>,
    ) -> bool {
        let mut table = self.table.borrow_mut();
        let (tokens, descriptors) = table.counts.get(&session).copied().unwrap_or_default();
        let more = usize::from(descriptor.is_some());
        if tokens >= MOST_OF_A_SESSION || descriptors + more > MOST_DESCRIPTORS || table.shares.contains_key(&token) {
            return false;
        }
        table.counts.insert(session, (tokens + 1, descriptors + more));
        table.shares.insert(token, Share { session, kind, payload, descriptor });
        true
    }

    /// Forgets one of a session's own tokens.
    pub(super) fn remove(&self, session: u64, token: u128) {
        let mut table = self.table.borrow_mut();
        if table.shares.get(&token).is_some_and(|share| share.session == session)
            && let Some(share) = table.shares.remove(&token)
            && let Some((tokens, descriptors)) = table.counts.get_mut(&session)
        {
            *tokens -= 1;
            *descriptors -= usize::from(share.descriptor.is_some());
        }
    }

    /// Forgets all that a session has shared.
    pub(super) fn forget(&self, session: u64) {
        let mut table = self.table.borrow_mut();
        table.counts.remove(&session);
        table.shares.retain(|_, share| share.session != session);
    }

    /// Shows what has that token, if it is of that kind.
    pub(super) fn find<T>(
        &self,
        token: u128,
        kind: u8,
        show: impl FnOnce(Option<(&[u8], Option<BorrowedFd<'_>>)>) -> T,
    ) -> T {
        let table = self.table.borrow();
        let share = table.shares.get(&token).filter(|share| share.kind == kind);
        show(share.map(|share| (share.payload.as_slice(), share.descriptor.as_ref().map(AsFd::as_fd))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(shares: &Shares, token: u128, kind: u8) -> Option<Vec<u8>> {
        shares.find(token, kind, |share| share.map(|(payload, _)| payload.to_vec()))
    }

    #[test]
    fn tokens_end_with_their_session() {
        let shares = Shares::default();
        assert!(shares.add(1, 10, 1, vec![5], None) && shares.add(2, 20, 1, vec![6], None));
        assert!(!shares.add(2, 10, 1, vec![7], None), "a token of another session cannot be taken over");
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
        let shares = Shares::default();
        for token in 0..MOST_OF_A_SESSION as u128 {
            assert!(shares.add(1, token, 1, Vec::new(), None));
        }
        assert!(!shares.add(1, u128::MAX, 1, Vec::new(), None) && shares.add(2, u128::MAX, 1, Vec::new(), None));
        shares.remove(1, 5);
        assert!(shares.add(1, 5, 1, Vec::new(), None));
    }
}
