//! Files that a worker asks for, and the answers.

use std::rc::Rc;

use outboard_control::messages::{FileAnswer, ToWorker};
use outboard_control::number::Number;
use outboard_files::Access;
use outboard_wire::files::{FileOpening, FileReference};
use outboard_wire::{Encode, Writer};

use super::attend::Attendant;

impl Attendant<'_> {
    /// Opens a file, and answers with what its client is to show.
    pub(super) fn open_file(&self, request: u64, file: FileReference, reads: bool, writes: bool) {
        let (session, table) = (self.session, Rc::clone(self.table));
        let owner = table.sessions.borrow().get(&session).map(|entry| entry.about.owner());
        let (true, Some(owner)) = (table.outside.files.are_shared(), owner) else {
            return self.reply(request, None);
        };
        let (answers, opening) = (self.answers.clone(), Rc::clone(&self.opening));
        let access = match (reads, writes) {
            (_, false) => Access::Read,
            (true, true) => Access::ReadWrite,
            (false, true) => Access::Write,
        };
        tokio::task::spawn_local(async move {
            let path = String::from_utf8_lossy(&file.path).into_owned();
            let source = file.source.clone();
            let opened = table.outside.files.open((session, &opening), owner, file, access).await;
            let (opened, opening) = match opened {
                Ok((number, challenge)) => (number, FileOpening::Opened(challenge)),
                Err(reason) => {
                    tracing::debug!(session = %Number(session), source, path, reason, "a file is not opened for a client");
                    (0, FileOpening::Refused(reason))
                }
            };
            let mut writer = Writer::new();
            FileAnswer { opened, opening }.encode(&mut writer);
            let answer = ToWorker::Answer { request, payload: Some(writer.into_vec()) };
            if answers.send(answer).is_err() {
                // The worker has ended meanwhile.
                table.outside.files.forget(session);
            }
        });
    }

    /// Gives a file to the worker, if its client has shown that it can read it.
    pub(super) fn prove_file(&self, request: u64, opened: u64, proof: [u8; 32]) {
        let (session, table) = (self.session, Rc::clone(self.table));
        let (answers, opening) = (self.answers.clone(), Rc::clone(&self.opening));
        tokio::task::spawn_local(async move {
            let answer = |payload| ToWorker::Answer { request, payload: Some(payload) };
            match table.outside.files.prove((session, &opening), opened, proof).await {
                Ok(checked) => {
                    let sessions = table.sessions.borrow();
                    // Without the session, nobody needs it.
                    let Some(entry) = sessions.get(&session) else { return };
                    if entry.further.try_send((answer(Vec::new()), checked.file)).is_err() {
                        let _ = answers.send(answer(b"too many files are opened at once".into()));
                    }
                }
                Err(reason) => {
                    tracing::debug!(session = %Number(session), reason, "a file is not given to a client");
                    let _ = answers.send(answer(reason.into_bytes()));
                }
            }
        });
    }
}
