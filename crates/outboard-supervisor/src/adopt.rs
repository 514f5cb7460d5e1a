//! Adoption of sessions: those of an earlier supervisor, whose workers have continued without it.
//!
//! Their workers wait at sockets that [`Records`] lists. Each worker returns what it was given to
//! keep and what its session shares. The owner and the limits of its session come from the earlier
//! supervisor's records, never from the worker.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::sleep;

use super::config::Config;
use super::error::ServeError;
use super::orphan::collect;
use super::outside::Outside;
use super::pool::Pool;
use super::records::Records;
use super::sessions::{Heritage, Sessions};
use super::shares::Descriptors;
use super::supervisor::Supervisor;
use super::{sharing, traces};
use outboard_control::board::Board;
use outboard_control::messages::kept;

/// When workers that have not answered are asked again.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// The table of sessions, with those that an earlier server has left; and how many more there are
/// whose workers have not answered yet.
pub(super) async fn sessions(
    config: &Config,
    address: SocketAddr,
    outside: Outside,
    (queue, pool): (&sharing::Queue, Option<&Rc<Pool>>),
    traces: &Rc<traces::Traces>,
    shared: Descriptors,
) -> Result<(Sessions, usize), ServeError> {
    let standing = &config.standing;
    let records = Records::open(&standing.records, address)
        .map_err(|error| ServeError::Records { folder: standing.records.clone(), error })?
        .map(Rc::new);
    if let Some(pool) = pool {
        pool.note_in(records.as_ref().map(|records| records.pool_notes()));
    }
    let (mut orphans, mut late) = (Vec::new(), 0);
    if let Some(records) = &records {
        records.sweep();
        (orphans, late) = collect(records, |_| false).await;
    }
    // A worker may have kept another board than the one that was noted.
    let boards = orphans.iter_mut().filter_map(|orphan| {
        let board = orphan.take_kept(kept::BOARD)?;
        let name = Board::name(board.as_fd(), config.max_sessions).ok()?;
        (name == orphan.record.board).then_some(board)
    });
    let board = boards.collect::<Vec<_>>().into_iter().next();
    let sessions = {
        let lending = sharing::Lending::new(&config.sharing);
        Sessions::new(
            config.max_sessions,
            Heritage {
                records,
                outlive: standing.outlive,
                board,
                shared,
                log_format: config.log_format,
            },
            Rc::clone(traces),
            lending,
            outside,
        )?
    };
    let workers: Vec<u32> = orphans.iter().map(|orphan| orphan.worker.id()).collect();
    sessions.adopt_all(orphans, queue, pool);
    if late == 0 {
        sessions.tidy(&workers);
    }
    Ok((sessions, late))
}

/// Asks workers that have not answered again, until all have or are gone.
pub(super) async fn later(supervisor: Rc<Supervisor>) {
    let Some(records) = supervisor.sessions.records() else { return };
    loop {
        sleep(ASKED_AGAIN_AFTER).await;
        let (orphans, late) = collect(&records, |session| supervisor.sessions.has(session)).await;
        let (queue, pool) = (&supervisor.queue, supervisor.pool.as_ref());
        supervisor.sessions.adopt_all(orphans, queue, pool);
        supervisor.unanswered.set(late);
        if late == 0 {
            break;
        }
    }
}
