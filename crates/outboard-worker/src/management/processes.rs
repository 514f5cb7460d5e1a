//! The processes that a client sees: those of its own machine that use this server.
//!
//! A server's NVML lists the workers of all clients, by process ids that mean nothing to a client.
//! Each worker writes its client's process and machine on the supervisor's board.

use outboard_control::board::{self, Session};

/// For memory that is not known: `NVML_VALUE_NOT_AVAILABLE`.
const NOT_KNOWN: u64 = u64::MAX;

/// The processes of this client's machine with a context on a device, each with its bytes of device
/// memory. `native` is what the server's NVML lists, by worker.
pub(super) fn list(ordinal: u32, native: Option<&[(u32, u64)]>) -> Vec<(u32, u64)> {
    let Some(board) = board::get() else { return Vec::new() };
    let own = board.own_machine();
    select(&board.sessions(), own, ordinal, native)
}

fn select(
    sessions: &[Session],
    machine: u64,
    ordinal: u32,
    native: Option<&[(u32, u64)]>,
) -> Vec<(u32, u64)> {
    let mut found: Vec<(u32, u64)> = Vec::new();
    for session in sessions {
        if machine == 0 || session.machine != machine || !session.has_context(ordinal) {
            continue;
        }
        let bytes = match native {
            // NVML may number processes as another namespace does.
            Some(listed) => listed
                .iter()
                .find(|(worker, _)| *worker == session.worker)
                .map_or(NOT_KNOWN, |found| found.1),
            None => session.used(ordinal),
        };
        match found.iter_mut().find(|(process, _)| *process == session.process) {
            // A process may have had a session before, or have two.
            Some((_, sum)) => {
                *sum = if *sum == NOT_KNOWN { bytes } else { sum.saturating_add(bytes) }
            }
            None => found.push((session.process, bytes)),
        }
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(worker: u32, process: u32, machine: u64, contexts: u64) -> Session {
        Session {
            worker,
            process,
            machine,
            contexts,
            used: vec![u64::from(worker), 0],
            held: vec![],
        }
    }

    #[test]
    fn a_client_sees_its_own_machine() {
        let sessions = [
            session(10, 1, 7, 1),
            session(11, 2, 7, 0),
            session(12, 3, 8, 1),
            session(13, 4, 7, 3),
            session(14, 1, 7, 1),
        ];
        assert_eq!(select(&sessions, 7, 0, None), [(1, 24), (4, 13)]);
        assert_eq!(select(&sessions, 7, 1, None), [(4, 0)]);
        assert_eq!(select(&sessions, 0, 0, None), []);
        assert_eq!(
            select(&sessions, 7, 0, Some(&[(10, 100), (12, 5)])),
            [(1, NOT_KNOWN), (4, NOT_KNOWN)]
        );
        assert_eq!(select(&sessions, 8, 0, Some(&[(10, 100), (12, 5)])), [(3, 5)]);
    }
}
