//! Ending a session from the server's side: its client gets the reason before the connection is
//! closed.

use std::sync::OnceLock;
use std::time::Duration;

use outboard_wire::notice::ENDED;

use super::exit::{SERVED, exit};
use super::replier::Replier;

/// How long the client has to read the reason and go by itself. The supervisor is a little more
/// patient.
const GRACE: Duration = Duration::from_secs(1);

/// What the message to the client needs, once there is a client.
#[derive(Default)]
pub(super) struct Ending(OnceLock<Replier>);

impl Ending {
    /// The client is served from now on.
    pub(super) fn serve(&self, replier: &Replier) {
        // A session begins once.
        let _ = self.0.set(replier.clone());
    }

    /// Tells the client and ends the process.
    pub(super) fn end(&self, sentence: &str) -> ! {
        tracing::info!(reason = sentence, "the session is ended");
        if let Some(replier) = self.0.get() {
            let _ = replier.notice(ENDED, |writer| writer.str(sentence));
            // A socket that is closed with bytes unread takes what was said back. The dispatcher
            // continues to read meanwhile.
            std::thread::sleep(GRACE);
        }
        crate::spans::finish();
        exit(SERVED)
    }
}
