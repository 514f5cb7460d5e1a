//! The hooks around work and waits of a server.

use std::time::Duration;

use outboard_front::backend::{Result, ServerId};

use super::region::Region;
use super::{Common, State, say_lost};
use crate::pager::fault;

impl Common {
    /// Work of a server that may use any of its memory is about to be queued.
    pub(in crate::pager) fn before_work(&self, server: ServerId) -> Result<()> {
        let mut state = self.lock();
        // One is the calling thread.
        let works = state.may_work(server, 1);
        let State { regions, .. } = &mut *state;
        let mut outcome = Ok(());
        let mut armed = false;
        for region in regions.values_mut().filter(|region| region.mirror(server).is_some()) {
            if !armed {
                let _ = fault::arm_unless_watched();
                armed = true;
            }
            match region.prepare(server, works) {
                Ok(lost) => say_lost(lost),
                Err(error) => outcome = Err(error),
            }
        }
        outcome
    }

    /// The work is queued.
    pub(in crate::pager) fn after_work(&self, server: ServerId) {
        let mut state = self.lock();
        let State { regions, working, .. } = &mut *state;
        working.insert(server);
        let mut rings = false;
        for region in regions.values_mut() {
            if region.mirror(server).is_some()
                && region.workers(working) > 1
                && region.due.is_none()
            {
                region.look_again(Duration::ZERO);
                rings = true;
            }
        }
        if rings {
            self.service.ring();
        }
    }

    /// The program is about to wait for a server: kernels that poll memory see what the program has
    /// written there.
    pub(in crate::pager) fn before_wait(&self) {
        let mut state = self.lock();
        let State { regions, working, .. } = &mut *state;
        if working.is_empty() {
            return;
        }
        for region in regions.values_mut().filter(|region| region.workers(working) > 0) {
            region.close();
            for server in working.iter() {
                // The next call of the program in this server's contexts reports it.
                let _ = region.give(*server, true);
            }
        }
    }

    /// The program has waited for a server, which may still have work: that is asked once no other
    /// thread can tell of more, and before the memory is looked at.
    pub(in crate::pager) fn after_wait(&self, server: ServerId, is_busy: impl FnOnce() -> bool) {
        let mut state = self.lock();
        if !state.working.contains(&server) {
            return;
        }
        let is_busy = is_busy();
        state.changed();
        if !is_busy {
            state.working.remove(&server);
        }
        // Kernels that still run may wait for what those have written that are done.
        let State { regions, working, .. } = &mut *state;
        let due = |region: &&mut Region| region.workers(working) > 0 && region.mirrors.len() > 1;
        if look_again(regions.values_mut().filter(due)) {
            self.service.ring();
        }
    }

    /// A stream of a server is about to call a function of the program.
    pub(in crate::pager) fn before_function(&self) {
        self.lock().changed();
    }

    /// Such a function has returned: what it has written is there for what the stream does next.
    pub(in crate::pager) fn after_function(&self, server: ServerId) {
        let mut state = self.lock();
        let works = state.may_work(server, 0);
        let State { regions, .. } = &mut *state;
        for region in regions.values_mut().filter(|region| region.mirror(server).is_some()) {
            // Failures are the context's, which the program's next call reports.
            let _ = region.prepare(server, works).map(say_lost);
        }
    }

    /// Work of a server that waits for another one's is about to go on: it has what all servers'
    /// kernels have written so far.
    pub(crate) fn hand_on(&self, to: ServerId) {
        let mut state = self.lock();
        let works = state.may_work(to, 0);
        let State { regions, working, .. } = &mut *state;
        for region in regions.values_mut().filter(|region| region.mirror(to).is_some()) {
            region.close();
            say_lost(region.gather_all(Some(to), Some(working)));
            // It goes on by word that may overtake what is sent. A failure is one that the next
            // call of the program in this server's contexts reports.
            let _ = region.give_and_settle(to, works);
        }
    }
}

/// Has regions be looked at soon; whether there are any that would not be anyway.
fn look_again<'a>(regions: impl Iterator<Item = &'a mut Region>) -> bool {
    let mut rings = false;
    for region in regions.filter(|region| region.due.is_none()) {
        region.look_again(Duration::ZERO);
        rings = true;
    }
    rings
}

impl State {
    /// Whether work of a server may run: that which counts, and what other threads than so many are
    /// queuing.
    fn may_work(&self, server: ServerId, but: u32) -> bool {
        let queuing = self.pagers.get(&server).map_or(0, |pager| pager.queuing());
        self.working.contains(&server) || queuing > but
    }

    /// Servers may have written to any page: the program gets that when it touches the page.
    fn changed(&mut self) {
        let State { regions, working, .. } = self;
        let _ = fault::arm_unless_watched();
        for region in regions.values_mut().filter(|region| region.workers(working) > 0) {
            region.close();
            region.may_have_changed(working);
            if !region.memory.is_protectable() {
                say_lost(region.gather_all(None, None));
            }
        }
    }
}
