//! Links to workers of other servers.

use std::sync::Arc;

use outboard_abi::{CUevent, CUresult};
use outboard_control::meter::{self, Direction, Way};
use outboard_driver::call;
use outboard_session::chunks::Cut;
use outboard_session::groups::Groups;
use outboard_wire::StreamId;
use outboard_wire::handshake::Local;
use outboard_wire::handshake::peers::Ticket;
use outboard_wire::messages::*;

use super::{Handle, Wait, Worker};
use crate::answer::{Answer, Outcome};
use crate::generated::dispatch::PeerLinkCommands;
use crate::io::{Bulk, Called, Half, Replier};
use crate::staging::{self, At, CopySite, DeviceSide, Failed, PeerCopy, Place};

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
            neighbour: (!m.socket.is_empty()).then(|| Local {
                host: m.host,
                user: m.user,
                path: m.socket.to_owned(),
            }),
        };
        let (replier, link) = (replier.clone(), m.link);
        self.helpers.run(move || {
            let opened = replier.peers().open(&replier, link, &called);
            let shares = opened.as_ref().is_ok_and(|shares| *shares);
            let failure = opened.err().unwrap_or_default();
            answer.result(Ok(PeerLinkOpenReply { failure: &failure, shares }));
        });
    }

    fn peer_copy_out(&mut self, m: PeerCopyOut) -> Outcome {
        let Some(link) = self.link(m.link) else { return no_link(m.leads) };
        let target = |worker: &Worker, bytes| worker.target(m.src, m.extent, 0, bytes);
        let about = (m.stream, m.extent.bytes(), m.chunk);
        let at = At { flags: m.flags, slots: Some(m.slots) };
        let copy = (m.link, m.transfer, m.leads, at);
        self.start_peer_copy(&link, copy, about, target, false).inspect_err(|_| {
            link.cancel(m.transfer, 0);
            link.end(m.transfer);
        })
    }

    fn peer_copy_in(&mut self, m: PeerCopyIn) -> Outcome {
        let Some(link) = self.link(m.link) else { return no_link(m.leads) };
        let target = |worker: &Worker, bytes| worker.target(m.dst, m.extent, 0, bytes);
        let about = (m.stream, m.extent.bytes(), m.chunk);
        let at = At { flags: m.flags, slots: Some(m.slots) };
        let copy = (m.link, m.transfer, m.leads, at);
        self.start_peer_copy(&link, copy, about, target, true).inspect_err(|_| {
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
        let place = self.place(&link, m.link, signal(m.flags), staging::signal_groups())?;
        let site = self.peer_copy_site(&link, stream)?;
        match place {
            Some(place) => staging::wait_for_flag(&site, m.number, half, place),
            None => staging::wait_for_peer(&site, m.number, &half),
        }
    }
}

/// The link has been lost. The program is told once: by the half whose stream has to wait.
fn no_link(leads: bool) -> Outcome {
    if leads { Err(CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE) } else { Ok(()) }
}

/// Where the flag of a signal is.
fn signal(flags: u64) -> At {
    At { flags, slots: None }
}

fn ticket(bytes: &[u8]) -> Option<Ticket> {
    Some(Ticket { key: u128::from_le_bytes(bytes.try_into().ok()?) })
}

impl Worker {
    pub(super) fn link(&self, number: u32) -> Option<Bulk> {
        self.client.replier()?.peers().link(number)
    }

    /// Tells the peer now, when the device says so, or when this thread sees it.
    fn tell_peer_when(&mut self, link: &Bulk, m: &PeerTell) -> Outcome {
        let place = self.place(link, m.link, signal(m.flags), staging::signal_groups())?;
        self.enter()?;
        let event = self.streams.event(m.event)?;
        let tell = Telling { link: link.clone(), number: m.number, place };
        if call!(self.table, cuEventQuery(event)).is_ok() {
            tell.tell(true, self.client.replier());
            return Ok(());
        }
        let site = self.peer_copy_site(link, core::ptr::null_mut())?;
        let Some(tell) = tell.by_device(&site, event)? else { return Ok(()) };
        let replier = self.client.replier().cloned();
        self.wait_then(Wait::Event(Handle::new(event)), move |outcome| {
            tell.tell(outcome.is_ok(), replier.as_ref());
        });
        Ok(())
    }

    /// The place that the client names, in memory that the peer shares; none if it names none.
    fn place(
        &mut self,
        link: &Bulk,
        number: u32,
        at: At,
        groups: Option<Groups>,
    ) -> Result<Option<Place>, CUresult> {
        if at.flags == 0 {
            return Ok(None);
        }
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let peers = self.client.replier().ok_or(invalid)?.peers().clone();
        let is_there = |other| peers.link(other).is_some();
        let area = self.copies.area(self.table, (number, link), is_there).ok_or(invalid)?;
        let place = Place::new(&area, at, groups.ok_or(invalid)?);
        Ok(Some(place.ok_or(invalid)?))
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
        (link_number, number, leads, at): (u32, u64, bool, At),
        (stream, bytes, chunk): (StreamId, Option<u64>, u32),
        target: impl FnOnce(&Worker, u64) -> Result<DeviceSide, CUresult>,
        to_device: bool,
    ) -> Outcome {
        let half = self.announced(link, number)?;
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let bytes = bytes.filter(|bytes| *bytes > 0).ok_or(invalid)?;
        let cut = Cut::new(bytes, chunk).map_err(|_| invalid)?;
        let copy = PeerCopy { number, cut, leads, half };
        let groups = Some(staging::passing_groups(&copy));
        let place = self.place(link, link_number, at, groups)?;
        let found = target(self, bytes).and_then(|target| Ok((target, self.stream(stream)?)));
        let (target, stream) = match found {
            Ok(found) => found,
            Err(error) => {
                if let Some((place, replier)) = place.zip(self.client.replier()) {
                    place.abandon(replier);
                }
                return Err(error);
            }
        };
        let site = self.peer_copy_site(link, stream)?;
        if let Some(place) = place {
            let direction = if to_device { Direction::In } else { Direction::Out };
            meter::page().moved(direction, Way::Shared, bytes);
            return staging::pass(&site, copy, place, &target, to_device);
        }
        let start = if to_device { staging::copy_from_peer } else { staging::copy_to_peer };
        start(&site, copy, &target).map_err(|failed| match failed {
            Failed::NotStarted(error) | Failed::BrokeOff(error) => error,
            Failed::Violation(error) => {
                self.violated(&error);
                invalid
            }
        })
    }
}

/// What a peer is to be told of an event.
struct Telling {
    link: Bulk,
    number: u64,
    /// The place of a flag for which the peer's device waits, if it does.
    place: Option<Place>,
}

impl Telling {
    /// The event has happened, or never will.
    fn tell(self, well: bool, replier: Option<&Replier>) {
        match self.place.zip(replier) {
            Some((place, replier)) => place.tell(well, replier),
            None => self.link.reached(self.number, well),
        }
    }

    /// Has the device tell. Gives this back if it is to be seen to in another way.
    fn by_device(self, site: &CopySite<'_>, event: CUevent) -> Result<Option<Telling>, CUresult> {
        let Telling { link, number, place } = self;
        Ok(match place {
            Some(place) => staging::raise(site, number, event, place)?.map(|place| Telling {
                link,
                number,
                place: Some(place),
            }),
            None => (!staging::tell_peer(site, number, event)?).then_some(Telling {
                link,
                number,
                place: None,
            }),
        })
    }
}
