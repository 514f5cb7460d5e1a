//! Ending a session from the server's side: its client gets the reason before the connection is
//! closed.

use std::io;
use std::time::Duration;

use outboard_wire::notice::ENDED;
use parking_lot::Mutex;

use super::exit::{SERVED, exit};
use super::replier::Replier;

/// How long the client has to read the reason and go by itself. The supervisor is a little more
/// patient.
const GRACE: Duration = Duration::from_secs(1);

/// Whether the session is ended, and how the client hears of it.
#[derive(Default)]
pub(super) struct Ending(Mutex<State>);

#[derive(Default)]
enum State {
    /// It has been welcomed, and says next how it wants to be served.
    #[default]
    Welcomed,
    /// The same, and it is to be told this.
    ToBeTold(String),
    Served(Replier),
}

impl Ending {
    /// The client is served from now on, and told what it is to be told.
    pub(super) fn serve(&self, replier: &Replier) -> io::Result<()> {
        let before = std::mem::replace(&mut *self.0.lock(), State::Served(replier.clone()));
        if let State::ToBeTold(sentence) = before {
            let replier = replier.clone();
            std::thread::Builder::new()
                .name("end".into())
                .spawn(move || end(&replier, &sentence))?;
        }
        Ok(())
    }

    /// Tells the client and ends the process. A client that is not served yet is told once it is;
    /// the supervisor ends the process of one that takes too long.
    pub(super) fn end(&self, sentence: String) {
        let mut state = self.0.lock();
        match &*state {
            State::Served(replier) => {
                let replier = replier.clone();
                drop(state);
                end(&replier, &sentence)
            }
            State::Welcomed | State::ToBeTold(_) => *state = State::ToBeTold(sentence),
        }
    }
}

/// For how long the client of a session that ends at once is told why. Nothing is read meanwhile.
#[cfg(not(fuzzing))]
const TELLING: Duration = Duration::from_millis(100);

/// Ends this session and its process: the client broke the protocol. It is told so, if it reads.
#[cfg(not(fuzzing))]
pub(crate) fn end_session(replier: Option<&Replier>, sentence: &str) -> ! {
    if let Some(replier) = replier.cloned() {
        let sentence = sentence.to_owned();
        let (done, told) = std::sync::mpsc::channel();
        let tell = move || {
            let _ = replier.notice(ENDED, |writer| writer.str(&sentence));
            let _ = done.send(());
        };
        if std::thread::Builder::new().name("end".into()).spawn(tell).is_ok() {
            let _ = told.recv_timeout(TELLING);
        }
    }
    exit(super::exit::BROKEN)
}

#[cfg(fuzzing)]
pub(crate) fn end_session(_replier: Option<&Replier>, _sentence: &str) -> ! {
    std::panic::resume_unwind(Box::new(super::exit::Violation));
}

fn end(replier: &Replier, sentence: &str) -> ! {
    tracing::info!(reason = sentence, "the session is ended");
    let _ = replier.notice(ENDED, |writer| writer.str(sentence));
    // A socket that is closed with bytes unread takes what was said back. The dispatcher continues
    // to read meanwhile.
    std::thread::sleep(GRACE);
    crate::spans::finish();
    exit(SERVED)
}
