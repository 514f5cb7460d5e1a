//! How memory ceases to be common.

use std::ops::Range;

use outboard_front::backend::{ContextId, UnifiedPtr};

use super::mirror::Mirror;
use super::region::Region;
use super::{Common, State, say_lost};
use crate::pager::store::{Home, Kind, Store};

/// What a server is to give up once no lock is held.
struct ToClose {
    mirrors: Vec<(&'static dyn Store, Home, Range<UnifiedPtr>)>,
}

impl ToClose {
    fn close(self) {
        for (store, home, whole) in self.mirrors {
            store.close(home, whole.start, whole.end.since(whole.start));
        }
    }
}

impl ToClose {
    fn add(&mut self, mirror: &Mirror, region: &Region) {
        let is_new = |(_, home, whole): &(_, Home, Range<UnifiedPtr>)| {
            home.ctx != mirror.home.ctx || *whole != region.whole
        };
        if mirror.home.kind == Kind::Mapped && self.mirrors.iter().all(is_new) {
            self.mirrors.push((mirror.store, mirror.home, region.whole.clone()));
        }
    }
}

impl Common {
    /// Memory is not common any more. If it is to be kept, the program has it for itself, up to
    /// date. Servers but the owner's give it up.
    pub(crate) fn remove(&'static self, whole: &Range<UnifiedPtr>, keep: bool) {
        let mut state = self.lock();
        let bases: Vec<UnifiedPtr> =
            state.regions.range(whole.clone()).map(|(base, _)| *base).collect();
        if bases.is_empty() {
            return;
        }
        let to_close = state.remove(&bases, keep);
        state.publish(&self.service, None);
        drop(state);
        // Servers may be waited for here.
        to_close.close();
    }

    /// A context ends, and with it what is of it.
    pub(crate) fn forget_context(&'static self, ctx: ContextId) {
        let mut state = self.lock();
        let owned: Vec<UnifiedPtr> = state
            .regions
            .iter()
            .filter(|(_, region)| region.owner == ctx)
            .map(|(base, _)| *base)
            .collect();
        let mut to_close = state.remove(&owned, true);
        let State { regions, working, moved, .. } = &mut *state;
        for region in regions.values_mut() {
            let Some(place) = region.mirrors.iter().position(|mirror| mirror.home.ctx == ctx)
            else {
                continue;
            };
            say_lost(region.gather_all(None, Some(working)));
            if place < region.mirrors.len() && region.mirrors[place].home.ctx == ctx {
                let mirror = region.mirrors.remove(place);
                let sum = moved.entry(mirror.server).or_default();
                sum.fetched += mirror.moved.fetched;
                sum.pushed += mirror.moved.pushed;
                to_close.add(&mirror, region);
            }
        }
        state.leave();
        state.publish(&self.service, None);
        drop(state);
        to_close.close();
    }
}

impl State {
    /// Servers without a part in anything that is left do not call any more.
    fn leave(&mut self) {
        let State { regions, pagers, working, .. } = self;
        pagers.retain(|server, pager| {
            let stays = regions.values().any(|region| region.mirror(*server).is_some());
            if !stays {
                pager.has_common(None);
                working.remove(server);
            }
            stays
        });
    }

    /// Takes regions out.
    fn remove(&mut self, bases: &[UnifiedPtr], keep: bool) -> ToClose {
        let mut to_close = ToClose { mirrors: Vec::new() };
        for base in bases {
            let Some(mut region) = self.regions.remove(base) else { continue };
            if keep {
                region.close();
                say_lost(region.gather_all(None, Some(&self.working)));
                region.memory.give_back();
            }
            for mirror in &region.mirrors {
                let sum = self.moved.entry(mirror.server).or_default();
                sum.fetched += mirror.moved.fetched;
                sum.pushed += mirror.moved.pushed;
                // The owner's server closes it as it does what is not common.
                if mirror.server != region.owner.server() {
                    to_close.add(mirror, &region);
                }
            }
        }
        self.leave();
        to_close
    }
}
