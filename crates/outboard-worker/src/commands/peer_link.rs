//! Links to workers of other servers.

use std::sync::Arc;

use outboard_abi::CUresult;
use outboard_driver::call;
use outboard_session::chunks::Cut;
use outboard_wire::StreamId;
use outboard_wire::handshake::peers::Ticket;
use outboard_wire::messages::*;

use super::{Handle, Wait, Worker};
use crate::answer::{Answer, Outcome};
use crate::generated::dispatch::PeerLinkCommands;
use crate::io::{Bulk, Called, Half};
use crate::staging::{self, CopySite, DeviceSide, Failed, PeerCopy};

impl PeerLinkCommands for Worker {
    fn peer_link_open(&mut self, m: PeerLinkOpen<'_>, answer: Answer<PeerLinkOpen<'static>>) {
        let (Some(replier), Some(ticket)) = (self.client.replier(), ticket(m.ticket)) else {
            return answer.error(CUresult::CUDA_ERROR_INVALID_VALUE);
        };
        let called = Called {
            address: m.address.to_owned(),
            session: m.session,
            ticket,
            fingerprint: m.fingerprint.try_into().ok(),
        };
        let (replier, link) = (replier.clone(), m.link);
        self.helpers.run(move || {
            let failure = replier.peers().open(&replier, link, &called).err().unwrap_or_default();
            answer.result(Ok(PeerLinkOpenReply { failure: &failure }));
        });
    }

    fn peer_copy_out(&mut self, m: PeerCopyOut) -> Outcome {
        let Some(link) = self.link(m.link) else { return no_link(m.leads) };
        let target = |worker: &Worker, bytes| worker.target(m.src, m.extent, 0, bytes);
        let about = (m.stream, m.extent.bytes(), m.chunk);
        self.start_peer_copy(&link, m.transfer, m.leads, about, target, staging::copy_to_peer)
            .inspect_err(|_| {
                link.cancel(m.transfer, 0);
                link.end(m.transfer);
            })
    }

    fn peer_copy_in(&mut self, m: PeerCopyIn) -> Outcome {
        let Some(link) = self.link(m.link) else { return no_link(m.leads) };
        let target = |worker: &Worker, bytes| worker.target(m.dst, m.extent, 0, bytes);
        let about = (m.stream, m.extent.bytes(), m.chunk);
        self.start_peer_copy(&link, m.transfer, m.leads, about, target, staging::copy_from_peer)
            .inspect_err(|_| {
                link.done(m.transfer, false);
                link.end(m.transfer);
            })
    }

    fn peer_tell(&mut self, m: PeerTell) -> Outcome {
        let Some(link) = self.link(m.link) else { return no_link(false) };
        self.tell_peer_when(&link, &m).inspect_err(|_| link.reached(m.number, false))
    }

    fn peer_wait(&mut self, m: PeerWait) -> Outcome {
        let Some(link) = self.link(m.link) else { return no_link(true) };
        let stream = self.stream(m.stream)?;
        let half = self.announced(&link, m.number)?;
        let site = self.peer_copy_site(&link, stream)?;
        staging::wait_for_peer(&site, m.number, &half)
    }
}

/// The link has been lost. The program is told once: by the half whose stream has to wait.
fn no_link(leads: bool) -> Outcome {
    if leads { Err(CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE) } else { Ok(()) }
}

fn ticket(bytes: &[u8]) -> Option<Ticket> {
    Some(Ticket { key: u128::from_le_bytes(bytes.try_into().ok()?) })
}

impl Worker {
    fn link(&self, number: u32) -> Option<Bulk> {
        self.client.replier()?.peers().link(number)
    }

    /// Tells the peer now, when the device says so, or when this thread sees it.
    fn tell_peer_when(&mut self, link: &Bulk, m: &PeerTell) -> Outcome {
        self.enter()?;
        let event = self.streams.event(m.event)?;
        if call!(self.table, cuEventQuery(event)).is_ok() {
            link.reached(m.number, true);
            return Ok(());
        }
        let site = self.peer_copy_site(link, core::ptr::null_mut())?;
        if !staging::tell_peer(&site, m.number, event)? {
            let (link, number) = (link.clone(), m.number);
            self.wait_then(Wait::Event(Handle::new(event)), move |outcome| {
                link.reached(number, outcome.is_ok());
            });
        }
        Ok(())
    }

    /// The client has announced a number of a link. If it has done so before, the session ends.
    fn announced(&self, link: &Bulk, number: u64) -> Result<Arc<Half>, CUresult> {
        let watcher = self.copies.watcher();
        link.begin(number, Arc::new(move || watcher.nudge())).map_err(|error| {
            self.violated(&error);
            CUresult::CUDA_ERROR_INVALID_VALUE
        })
    }

    fn start_peer_copy(
        &mut self,
        link: &Bulk,
        number: u64,
        leads: bool,
        (stream, bytes, chunk): (StreamId, Option<u64>, u32),
        target: impl FnOnce(&Worker, u64) -> Result<DeviceSide, CUresult>,
        start: impl FnOnce(&CopySite<'_>, PeerCopy, &DeviceSide) -> Result<(), Failed>,
    ) -> Outcome {
        let half = self.announced(link, number)?;
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let bytes = bytes.filter(|bytes| *bytes > 0).ok_or(invalid)?;
        let cut = Cut::new(bytes, chunk).map_err(|_| invalid)?;
        let target = target(self, bytes)?;
        let stream = self.stream(stream)?;
        let site = self.peer_copy_site(link, stream)?;
        start(&site, PeerCopy { number, cut, leads, half }, &target).map_err(
            |failed| match failed {
                Failed::NotStarted(error) | Failed::BrokeOff(error) => error,
                Failed::Violation(error) => {
                    self.violated(&error);
                    invalid
                }
            },
        )
    }
}
