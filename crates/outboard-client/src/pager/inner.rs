//! What the pager's lock guards: regions, and what is known of the device's work.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use outboard_front::backend::{ContextId, Result};

use super::edge::Edge;
use super::fault;
use super::region::{Moved, Region};
use super::store::{Kind, Store};
use super::{Done, StreamName};

pub(super) struct Inner {
    pub(super) started: bool,
    pub(super) regions: BTreeMap<u64, Region>,
    pub(super) edges: Vec<Edge>,
    /// Streams with work that nobody has waited for yet, and the number of the latest.
    pub(super) outstanding: BTreeMap<StreamName, u64>,
    pub(super) work: u64,
    /// Where events were recorded last: the stream, and its latest work by then.
    pub(super) events: BTreeMap<u64, (StreamName, u64)>,
    /// How often managed memory was sent from each context's regions, and which of it streams wait for.
    pub(super) sent: BTreeMap<ContextId, u64>,
    pub(super) joined: BTreeMap<(StreamName, ContextId), u64>,
    /// What is to be brought once a stream's work is done.
    pub(super) wanted: Vec<(StreamName, Range<u64>)>,
    /// When mapped memory is to be closed again.
    pub(super) due: Option<Instant>,
    pub(super) moved: Moved,
}

impl Inner {
    pub(super) const fn new() -> Inner {
        Inner {
            started: false,
            regions: BTreeMap::new(),
            edges: Vec::new(),
            outstanding: BTreeMap::new(),
            work: 0,
            events: BTreeMap::new(),
            sent: BTreeMap::new(),
            joined: BTreeMap::new(),
            wanted: Vec::new(),
            due: None,
            moved: Moved { faults: 0, fetched: 0, pushed: 0 },
        }
    }

    pub(super) fn region(&mut self, address: u64) -> Option<&mut Region> {
        let (_, region) = self.regions.range_mut(..=address).next_back()?;
        region.range().contains(&address).then_some(region)
    }

    /// Tells the fault handler which ranges are tracked.
    pub(super) fn publish(&self) {
        self.publish_with(None);
    }

    pub(super) fn publish_with(&self, more: Option<(u64, u64)>) {
        let ranges = self.regions.values().map(|region| (region.range().start, region.range().end));
        let mut ranges: Vec<_> = ranges.chain(more).collect();
        ranges.sort_unstable();
        fault::RANGES.replace(ranges);
    }

    /// Sends what the program has written to some of the regions.
    pub(super) fn flush(&mut self, store: &dyn Store, which: impl Fn(&Region) -> bool) -> Result<()> {
        let Inner { regions, edges, sent, moved, .. } = self;
        let mut armed = false;
        for region in regions.values_mut().filter(|region| region.has_open_pages() && which(region)) {
            if !armed {
                let _ = fault::arm();
                armed = true;
            }
            if region.flush(store, moved)? && region.home.kind == Kind::Managed {
                *sent.entry(region.home.ctx).or_default() += 1;
            }
        }
        edges.iter_mut().try_for_each(|edge| edge.flush(store, moved))
    }

    /// Has a stream wait for the managed memory that was sent.
    pub(super) fn join(&mut self, store: &dyn Store, ctx: ContextId, stream: u64) -> Result<()> {
        for (home, count) in &self.sent {
            let seen = self.joined.entry(((ctx.0, stream), *home)).or_default();
            if *seen != *count {
                store.join(*home, ctx, stream)?;
                *seen = *count;
            }
        }
        Ok(())
    }

    pub(super) fn invalidate(&mut self, store: &dyn Store) {
        self.regions.values_mut().filter(|region| region.has_same_pages()).for_each(Region::invalidate);
        for edge in &mut self.edges {
            let _ = edge.bring(store, &mut self.moved);
        }
    }

    /// Takes the work that is done out of what is outstanding.
    pub(super) fn finish(&mut self, done: Done, latest: u64) {
        match done {
            Done::Context(ctx) => self.outstanding.retain(|stream, number| stream.0 != ctx.0 || *number > latest),
            Done::Stream(done) => self.outstanding.retain(|stream, number| *stream != done || *number > latest),
            Done::Event(event) => {
                if let Some((stream, latest)) = self.events.get(&event)
                    && self.outstanding.get(stream) == Some(latest)
                {
                    self.outstanding.remove(stream);
                }
            }
        }
    }
}
