//! Copies to the host under way. Their bytes travel on lanes of their own, so that an answer on the
//! command connection may overtake them: the client is told which copies the device had done by
//! then, and waits for those.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::io::Replier;
use super::staging::Copied;

/// A copy by its number. One that is gone has ended: it must not keep its memory for this.
type Copy = (u64, Weak<dyn Copied>);

/// The copies that the client has not been told of.
#[derive(Clone, Default)]
pub(crate) struct UnreportedCopies(Arc<Mutex<Vec<Copy>>>);

impl UnreportedCopies {
    pub(crate) fn add(&self, number: u64, copy: &Arc<dyn Copied>) {
        self.0.lock().push((number, Arc::downgrade(copy)));
    }

    /// Tells of those that the device has done. Replies that follow arrive after it.
    pub(crate) fn report(&self, replier: &Replier) {
        let mut copies = self.0.lock();
        copies.retain(|(number, copy)| {
            let done = copy.upgrade().is_none_or(|copy| copy.is_copied());
            if done {
                let _ = replier.notice(outboard_wire::notice::COPIED, |writer| writer.u64(*number));
            }
            !done
        });
    }
}
