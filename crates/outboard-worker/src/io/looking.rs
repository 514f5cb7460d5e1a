//! A worker without a client, which sends the supervisor the devices' gauges. A library that hangs
//! blocks only this worker.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use outboard_wire::handshake::Refusal;

use super::arrival::is_orphan_of;
use super::exit::{REFUSED, SERVED};
use super::handler::Build;
use outboard_control::board::{self as boards, Board};
use outboard_control::messages::{self, ToSupervisor, ToWorker, Watch};

/// Answers the supervisor until it wants no more. `confine` removes the rights that the started
/// driver does not need.
pub(super) fn serve<B: Build>(
    build: B,
    control: &OwnedFd,
    watch: &Watch,
    board: BorrowedFd<'_>,
    confine: impl FnOnce() -> Result<(), Refusal>,
) -> io::Result<i32> {
    if is_orphan_of(watch.supervisor) {
        return Ok(SERVED);
    }
    boards::set(Board::attach(board)?);
    let prepared = match &watch.platform {
        Some(platform) => build.describe(platform),
        None => build.prepare(None, None),
    };
    let prepared = prepared.and_then(|prepared| confine().map(|()| prepared));
    let mut look = match prepared {
        Ok(prepared) => B::watch(prepared),
        Err(Refusal { code, sentence }) => {
            messages::send(control.as_fd(), &ToSupervisor::Failed { code, sentence }, None)?;
            return Ok(REFUSED);
        }
    };
    loop {
        match messages::receive(control.as_fd())? {
            Some((ToWorker::Look, _)) => {
                messages::send(control.as_fd(), &ToSupervisor::Gauges(look()), None)?
            }
            Some(_) => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "this is for workers with a client",
                ));
            }
            None => return Ok(SERVED),
        }
    }
}
