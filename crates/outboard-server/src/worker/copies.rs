//! Copies to the host under way. Their bytes travel on lanes of their own, so that an answer on the command connection may overtake them:
//! the client is told which copies the device had done by then, and waits for those.

use std::sync::{Arc, Mutex, PoisonError};

use super::io::Replier;
use super::staging::Out;

/// The copies that the client has not been told of.
#[derive(Clone, Default)]
pub(crate) struct Copies(Arc<Mutex<Vec<Arc<Out>>>>);

impl Copies {
    pub(crate) fn add(&self, copy: Arc<Out>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(copy);
    }

    /// Tells of those that the device has done. Replies that follow arrive after it.
    pub(crate) fn tell(&self, replier: &Replier) {
        let mut copies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        copies.retain(|copy| {
            let done = copy.is_copied();
            if done {
                let number = copy.number();
                let _ = replier.notice(outboard_wire::notice::COPIED, |writer| writer.u64(number));
            }
            !done
        });
    }
}
