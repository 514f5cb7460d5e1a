//! The thread that answers touches, and looks at memory while servers work.

use std::time::{Duration, Instant};

use outboard_abi::CUresult;
use outboard_front::backend::{Result, UnifiedPtr};

use super::{Common, State, say_lost};
use crate::pager::fault;

impl Common {
    pub(super) fn start(&'static self, state: &mut State) -> Result<()> {
        if !state.is_served {
            self.service
                .start(move |address, write| self.open(address, write), move || self.look_in_time())
                .map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
            state.is_served = true;
        }
        fault::arm().map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)
    }

    /// Opens the page at an address. If it is not here any more, its thread finds that out by
    /// itself.
    fn open(&self, address: UnifiedPtr, write: bool) {
        let mut state = self.lock();
        let State { regions, working, faults, .. } = &mut *state;
        let region = regions.range_mut(..=address).next_back().map(|(_, region)| region);
        let Some(region) = region.filter(|region| region.range().contains(&address)) else {
            return;
        };
        if let Some(mirror) = region.mirrors.first() {
            *faults.entry(mirror.server).or_default() += 1;
        }
        say_lost(region.touch(address, write, working));
    }

    /// Looks at regions whose time has come; when to call again.
    pub(super) fn look_in_time(&self) -> Option<Duration> {
        let mut state = self.lock();
        let State { regions, working, .. } = &mut *state;
        let now = Instant::now();
        for region in regions.values_mut() {
            if region.due.is_some_and(|due| due <= now) {
                region.due = None;
                if region.workers(working) > 0 {
                    let begun = Instant::now();
                    say_lost(region.exchange(working));
                    if region.workers(working) > 1 {
                        region.look_again(begun.elapsed());
                    }
                }
            }
        }
        let next = regions.values().filter_map(|region| region.due).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }
}
