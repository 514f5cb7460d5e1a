//! The servers of a process.

use outboard_abi::CUresult;
use outboard_front::backend::{
    ContextId, Extent, ObjectId, Result, ServerId, Side, StreamId, UnifiedPtr,
};
use outboard_front::fault::is_sticky;
use outboard_front::several::{Awaited, HalfCopy, Hold, Linked, Member, Numbered, OwnStream, Then};
use outboard_wire::platform::Platform;

use crate::remote::Remote;
use crate::session::{OpenError, explain};
use crate::speech;
use crate::target::Target;
use crate::wanted;

impl Member for Remote {
    fn list() -> Vec<ServerId> {
        // A mistake in the list is reported when the first server is asked for its devices.
        wanted::of_this_process()
            .map_or_else(|_| vec![ServerId::FIRST], |targets| targets.entries().to_vec())
    }

    fn of_server(server: ServerId) -> &'static Remote {
        Box::leak(Box::new(Remote::new(server)))
    }

    fn load_what_all_need() {
        if let Ok(targets) = wanted::of_this_process() {
            targets.servers().iter().for_each(Target::load_what_it_needs);
        }
    }

    fn check_apart(servers: &[(&'static Remote, &Platform)]) -> Result<()> {
        for (place, (second, theirs)) in servers.iter().enumerate() {
            for (first, ours) in &servers[..place] {
                let (one, other) = (first.session()?, second.session()?);
                let twice = ours
                    .devices
                    .iter()
                    .find(|device| theirs.devices.iter().any(|other| other.id == device.id));
                if let Some(device) = twice.filter(|_| one.has_server_of(other)) {
                    let (first, second) = (one.server().to_owned(), other.server().to_owned());
                    explain(&OpenError::Twice { first, second, index: device.id.ordinal() });
                    return Err(CUresult::CUDA_ERROR_SYSTEM_NOT_READY);
                }
            }
        }
        Ok(())
    }

    fn hold(&'static self, ctx: ContextId, stream: StreamId) -> Result<Option<Hold>> {
        Ok(self.hold_stream(ctx, stream)?.map(|hold| Box::new(hold) as Hold))
    }

    fn when_done(&'static self, ctx: ContextId, what: Awaited, then: Then) -> Result<()> {
        self.tell_when_done(ctx, what, then)
    }

    fn is_known_to_be_done(&'static self, ctx: ContextId, what: Awaited) -> bool {
        self.knows_to_be_done(what, ctx)
    }

    fn has_bytes_to_take_in(&'static self) -> bool {
        self.session().is_ok_and(|session| session.copies.are_downloads_under_way())
            || self.has_pages_to_take_in()
    }

    fn take_in(&'static self) {
        if let Ok(session) = self.session() {
            session.take_in();
        }
        self.take_in_pages();
    }

    fn knows_work_done(&'static self) {
        self.take_in_pages();
    }

    fn uses_memory_of_the_program(&'static self) -> bool {
        self.tracks_memory()
    }

    fn hand_on(&'static self) {
        self.hand_on_pages();
    }

    fn take_part(
        &'static self,
        ctx: ContextId,
        owner: (&'static Remote, ContextId),
        address: UnifiedPtr,
    ) -> Result<()> {
        self.take_part_in(ctx, owner, address)
    }

    fn fail_later(&'static self, error: CUresult) {
        // It tells of another server's device: a fault there is none of this server's contexts.
        let error = if is_sticky(error) { CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE } else { error };
        if let Ok(session) = self.session() {
            session.fail_later(error);
        }
    }

    fn link_to(
        &'static self,
        other: &'static Remote,
        link: u32,
    ) -> std::result::Result<Linked, String> {
        self.link_to_server(other, link)
    }

    fn say(sentence: &str) {
        speech::say(sentence);
    }

    fn has_lost_link(&'static self, link: u32) -> bool {
        self.has_lost_link_to_server(link)
    }

    fn is_for_links(&'static self, side: &Side, extent: Extent) -> bool {
        self.is_only_the_devices(side, extent)
    }

    fn copy_over_link(&'static self, numbered: Numbered, half: &HalfCopy) -> Result<()> {
        self.half_copy(numbered, half)
    }

    fn tell_peer(&'static self, numbered: Numbered, ctx: ContextId, event: ObjectId) -> Result<()> {
        self.tell_peer_of_event(numbered, ctx, event)
    }

    fn wait_for_peer(
        &'static self,
        numbered: Numbered,
        ctx: ContextId,
        stream: StreamId,
    ) -> Result<()> {
        self.stream_wait_for_peer(numbered, ctx, stream)
    }

    fn own_stream(&'static self, ctx: ContextId, which: OwnStream) -> Result<StreamId> {
        self.crossing_stream(ctx, which)
    }
}
