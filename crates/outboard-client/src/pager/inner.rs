//! What the pager's lock guards: regions, and what is known of the device's work.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use outboard_front::backend::{ContextId, ObjectId, Result, StreamId, UnifiedPtr};

use super::fault::{self, Service};
use super::moved::Moved;
use super::open::{Looks, Opens};
use super::region::Region;
use super::store::{Kind, Store};
use super::{Brought, Done, StreamName, Wait};

/// Represents a context's streams whose end no event shows: destroyed ones, and unknown ones.
const ENDED: StreamId = StreamId(u64::MAX);

pub(super) struct Inner {
    /// The thread that answers faults, once it has been started.
    pub(super) service: Option<&'static Service>,
    pub(super) regions: BTreeMap<UnifiedPtr, Region>,
    pub(super) opens: Opens,
    pub(super) looks: Looks,
    /// Streams with work that no wait has covered yet, and the number of the latest work.
    pub(super) outstanding: BTreeMap<StreamName, u64>,
    /// Those of them that have been destroyed, though an event can still show the end of their
    /// work.
    ended: BTreeSet<StreamName>,
    pub(super) work: u64,
    /// Waits that bring pages along, or compare.
    pub(super) waits: u64,
    /// Of sums.
    pub(super) seed: u64,
    /// Where events were recorded last: the stream, and its latest work by then.
    pub(super) events: BTreeMap<ObjectId, (StreamName, u64)>,
    /// How often managed memory was sent from each context's regions, and which of it streams wait
    /// for.
    pub(super) sent: BTreeMap<ContextId, u64>,
    pub(super) joined: BTreeMap<(StreamName, ContextId), u64>,
    /// The memory to fetch once a stream's work is done.
    pub(super) wanted: Vec<(StreamName, Range<UnifiedPtr>)>,
    pub(super) moved: Moved,
}

impl Inner {
    pub(super) const fn new() -> Inner {
        Inner {
            service: None,
            regions: BTreeMap::new(),
            opens: Opens::new(),
            looks: Looks::new(),
            outstanding: BTreeMap::new(),
            ended: BTreeSet::new(),
            work: 0,
            waits: 0,
            seed: 0,
            events: BTreeMap::new(),
            sent: BTreeMap::new(),
            joined: BTreeMap::new(),
            wanted: Vec::new(),
            moved: Moved { faults: 0, fetched: 0, pushed: 0 },
        }
    }

    pub(super) fn region(&mut self, address: UnifiedPtr) -> Option<&mut Region> {
        let (_, region) = self.regions.range_mut(..=address).next_back()?;
        region.range().contains(&address).then_some(region)
    }

    /// Tells the fault handler which ranges are tracked.
    pub(super) fn publish(&self) {
        self.publish_with(None);
    }

    pub(super) fn publish_with(&self, more: Option<(UnifiedPtr, UnifiedPtr)>) {
        let ranges = self.regions.values().map(Region::range).chain(self.opens.pages());
        if let Some(service) = self.service {
            service.publish(ranges.map(|range| (range.start, range.end)).chain(more));
        }
    }

    /// Has the pager's thread look whether something is due.
    pub(super) fn ring(&self) {
        if let Some(service) = self.service {
            service.ring();
        }
    }

    /// Sends what the program has written to some of the regions.
    pub(super) fn flush(
        &mut self,
        store: &dyn Store,
        which: impl Fn(&Region) -> bool,
    ) -> Result<()> {
        let Inner { regions, sent, moved, outstanding, .. } = self;
        let (mut armed, mut later) = (false, false);
        for region in regions.values_mut().filter(|region| region.has_open_pages() && which(region))
        {
            if !armed {
                let _ = fault::arm_unless_watched();
                armed = true;
            }
            if outstanding.is_empty() {
                // Nothing has run since the device was known to have what is here.
                region.trust();
            }
            if region.flush(store, moved)? && region.home.kind == Kind::Managed {
                *sent.entry(region.home.ctx).or_default() += 1;
            }
            later |= region.due.is_some();
        }
        if later {
            self.ring();
        }
        Ok(())
    }

    /// Sends what the program has written to memory that stays accessible.
    pub(super) fn flush_opens(&mut self, store: &dyn Store) -> Result<bool> {
        let works = !self.outstanding.is_empty();
        self.opens.flush(store, works, &mut self.moved)
    }

    /// Sends what the program has written, and waits until the server has it.
    pub(super) fn flush_and_settle(&mut self, store: &dyn Store) -> Result<()> {
        let outcome = self.flush(store, |_| true).and(self.flush_opens(store).map(drop));
        let settled = self.sent.keys().try_for_each(|home| store.settle(*home));
        let mapped = self.regions.iter().find(|(_, region)| region.home.kind == Kind::Mapped);
        let place = mapped.map(|(base, region)| (region.home, *base));
        let arrived = place.or(self.opens.first());
        let arrived = arrived.map_or(Ok(()), |(home, address)| {
            let mut byte = 0u8;
            // The server takes commands in order. SAFETY: a byte of this function.
            unsafe { store.fetch(home, address, &raw mut byte, 1, None) }.map(drop)
        });
        outcome.and(settled).and(arrived)
    }

    /// Has a stream wait for the managed memory that was sent.
    pub(super) fn join(
        &mut self,
        store: &dyn Store,
        ctx: ContextId,
        stream: StreamId,
    ) -> Result<()> {
        for (home, count) in &self.sent {
            let seen = self.joined.entry(((ctx, stream), *home)).or_default();
            if *seen != *count {
                store.join(*home, ctx, stream)?;
                *seen = *count;
            }
        }
        Ok(())
    }

    /// Has the program see what the device has written to memory that stays accessible, once a wait
    /// has ended.
    pub(super) fn take_opens(&mut self, store: &dyn Store, wait: &Wait, brought: &Brought<'_>) {
        let works = !self.outstanding.is_empty();
        self.opens.take(store, (wait, brought), self.seed, works, &mut self.moved);
    }

    pub(super) fn invalidate(&mut self) {
        // The bytes that come with another wait's answer may be older than the work that this wait
        // covered.
        self.regions.values_mut().for_each(|region| region.coming = None);
        self.regions
            .values_mut()
            .filter(|region| region.has_same_pages())
            .for_each(Region::invalidate);
    }

    /// Work has been queued in a stream.
    pub(super) fn queued(&mut self, stream: StreamName) {
        self.work += 1;
        self.outstanding.insert(stream, self.work);
    }

    /// A context may have work in any stream.
    pub(super) fn suspect(&mut self, ctx: ContextId) {
        self.queued((ctx, ENDED));
    }

    /// Takes the work that is done out of what is outstanding.
    pub(super) fn finish(&mut self, done: Done, latest: u64) {
        match done {
            Done::Context(ctx) => {
                self.outstanding.retain(|stream, number| stream.0 != ctx || *number > latest)
            }
            Done::Stream(done) => {
                self.outstanding.retain(|stream, number| *stream != done || *number > latest)
            }
            Done::Event(event) => {
                if let Some((stream, latest)) = self.events.get(&event)
                    && self.outstanding.get(stream) == Some(latest)
                {
                    self.outstanding.remove(stream);
                }
            }
        }
        self.ended.retain(|stream| self.outstanding.contains_key(stream));
    }

    /// An event now covers the work that its stream has so far.
    pub(super) fn record(&mut self, event: ObjectId, stream: StreamName) {
        let latest = self.outstanding.get(&stream).copied().unwrap_or(0);
        let before = self.events.insert(event, (stream, latest));
        self.event_changed(before);
    }

    /// A stream or an event is gone. The stream's work still counts until a wait covers it.
    pub(super) fn forget(&mut self, name: ObjectId) {
        let before = self.events.remove(&name);
        self.event_changed(before);
        let name = StreamId::created(name);
        self.joined.retain(|((_, stream), _), _| *stream != name);
        let stream = self.outstanding.keys().find(|(_, stream)| *stream == name).copied();
        if let Some(stream) = stream {
            self.ended.insert(stream);
            self.put_together(stream);
        }
    }

    /// A context has ended, and all that was in it.
    pub(super) fn forget_context(&mut self, ctx: ContextId) {
        self.outstanding.retain(|stream, _| stream.0 != ctx);
        self.ended.retain(|stream| stream.0 != ctx);
        self.events.retain(|_, (stream, _)| stream.0 != ctx);
        self.wanted.retain(|(stream, _)| stream.0 != ctx);
        self.joined.retain(|(stream, home), _| stream.0 != ctx && *home != ctx);
        self.sent.remove(&ctx);
    }

    /// Nothing is tracked any more: work that was queued cannot use what will be.
    pub(super) fn clear(&mut self) {
        self.outstanding.clear();
        self.ended.clear();
        self.events.clear();
        self.sent.clear();
        self.joined.clear();
        self.wanted.clear();
    }

    /// An event is recorded anew or destroyed.
    fn event_changed(&mut self, before: Option<(StreamName, u64)>) {
        if let Some((stream, _)) = before
            && self.ended.contains(&stream)
        {
            self.put_together(stream);
        }
    }

    /// Counts the work of a destroyed stream with that of the others, unless an event shows its
    /// end.
    fn put_together(&mut self, stream: StreamName) {
        let Some(latest) = self.outstanding.get(&stream).copied() else { return };
        if self.events.values().any(|told| *told == (stream, latest)) {
            return;
        }
        self.ended.remove(&stream);
        self.outstanding.remove(&stream);
        let all = (stream.0, ENDED);
        let number = self.outstanding.entry(all).or_default();
        *number = latest.max(*number);
        for (wanted, _) in self.wanted.iter_mut().filter(|(wanted, _)| *wanted == stream) {
            *wanted = all;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CTX: ContextId = ContextId(1);
    const MAIN: StreamName = (CTX, StreamId(7));

    fn queue(inner: &mut Inner, stream: StreamName) {
        inner.work += 1;
        inner.outstanding.insert(stream, inner.work);
    }

    #[test]
    fn streams_that_are_no_more_are_not_kept() {
        let mut inner = Inner::new();
        for name in 100..1100 {
            let stream = (CTX, StreamId(name));
            queue(&mut inner, stream);
            inner.wanted.push((stream, UnifiedPtr(0)..UnifiedPtr(1)));
            // The event of the previous round now covers another stream.
            inner.record(ObjectId(1), stream);
            inner.record(ObjectId(2), MAIN);
            inner.forget(ObjectId(name));
            queue(&mut inner, MAIN);
            inner.finish(Done::Stream(MAIN), inner.work);
        }
        assert_eq!(
            inner.outstanding.len(),
            2,
            "the one that the event tells of, and the others together"
        );
        assert!(inner.wanted.iter().all(|(stream, _)| inner.outstanding.contains_key(stream)));
        inner.finish(Done::Event(ObjectId(1)), inner.work);
        assert_eq!(inner.outstanding.len(), 1, "their work may not be done yet");
        inner.finish(Done::Context(ContextId(2)), inner.work);
        assert_eq!(inner.outstanding.len(), 1);
        inner.finish(Done::Context(CTX), inner.work);
        assert!(inner.outstanding.is_empty() && inner.ended.is_empty());
    }

    #[test]
    fn an_event_tells_of_a_stream_that_is_no_more() {
        let mut inner = Inner::new();
        queue(&mut inner, MAIN);
        inner.record(ObjectId(1), MAIN);
        inner.forget(ObjectId(MAIN.1.0));
        inner.finish(Done::Event(ObjectId(1)), inner.work);
        assert!(inner.outstanding.is_empty() && inner.ended.is_empty());
        // It does not cover work queued after it.
        queue(&mut inner, (CTX, StreamId(8)));
        inner.record(ObjectId(1), (CTX, StreamId(8)));
        queue(&mut inner, (CTX, StreamId(8)));
        inner.forget(ObjectId(8));
        inner.finish(Done::Event(ObjectId(1)), inner.work);
        assert_eq!(inner.outstanding.len(), 1);
        // Nor does one that is gone.
        queue(&mut inner, (CTX, StreamId(9)));
        inner.record(ObjectId(2), (CTX, StreamId(9)));
        inner.forget(ObjectId(9));
        assert_eq!(inner.outstanding.len(), 2);
        inner.forget(ObjectId(2));
        assert_eq!(inner.outstanding.len(), 1);
    }
}
