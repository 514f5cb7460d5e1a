//! Streams and events, by the client's names, and the waits for them.

use outboard_abi::{CUevent, CUresult, CUstream};
use outboard_driver::{Table, call};
use outboard_wire::{ContextId, ObjectId, StreamId};

use super::answer::Outcome;
use super::bounds::Kind;
use super::contexts::Context;
use super::objects::{Handle, Named};
use super::order::Order;
use super::waits::Waits;

/// The streams and events of a session.
pub(crate) struct Streams {
    streams: Named<Handle<outboard_abi::CUstream_st>>,
    events: Named<Handle<outboard_abi::CUevent_st>>,
    /// What streams of green contexts lack.
    order: Order,
    /// A part of its own.
    pub(crate) waits: Waits,
}

impl Streams {
    pub(crate) fn new(waits: Waits) -> Streams {
        Streams {
            streams: Named::new(Kind::Stream),
            events: Named::new(Kind::Event),
            order: Order::default(),
            waits,
        }
    }

    /// The stream of that name; 0 is the legacy default stream.
    #[inline]
    pub(crate) fn get(&self, name: StreamId) -> Result<CUstream, CUresult> {
        match name.object() {
            None => Ok(core::ptr::null_mut()),
            Some(name) => self.streams.get(name).map(|stream| stream.get()),
        }
    }

    /// The same, for work that is about to be queued in it. Its context is current.
    #[inline]
    pub(crate) fn queue(
        &mut self,
        table: &'static Table,
        (ctx, context): (ContextId, &Context),
        name: StreamId,
    ) -> Result<CUstream, CUresult> {
        let stream = self.get(name)?;
        if context.green.is_some() {
            self.order.queue(table, ctx, name)?;
        }
        self.waits.used(table, ctx, stream);
        Ok(stream)
    }

    /// The same, to see how far it is.
    pub(crate) fn so_far(
        &mut self,
        table: &Table,
        (ctx, context): (ContextId, &Context),
        name: StreamId,
    ) -> Result<CUstream, CUresult> {
        // The default stream is only as far as those that it waits for.
        if name == StreamId::LEGACY && context.green.is_some() {
            self.order.queue(table, ctx, name)?;
        }
        self.get(name)
    }

    /// Whether a stream may have this name.
    pub(crate) fn check_new(&self, name: ObjectId) -> Outcome {
        self.streams.check_new(name)
    }

    pub(crate) fn add(&mut self, ctx: ContextId, name: ObjectId, stream: CUstream) {
        self.streams.insert(name, ctx, Handle::new(stream));
    }

    /// A stream that was added is one of those that the default stream of a green context waits
    /// for, and that wait for it.
    pub(crate) fn heeds_default(&mut self, ctx: ContextId, name: ObjectId, stream: CUstream) {
        self.order.opened(ctx, StreamId::created(name), stream);
    }

    /// Forgets a stream of the current context, which is to be destroyed then. Its work goes on.
    pub(crate) fn remove(
        &mut self,
        table: &'static Table,
        ctx: ContextId,
        name: ObjectId,
    ) -> Result<CUstream, CUresult> {
        let stream = self.streams.remove(name)?.get();
        self.order.ending(table, ctx, StreamId::created(name))?;
        self.waits.ending(table, ctx, stream);
        Ok(stream)
    }

    pub(crate) fn event(&self, name: ObjectId) -> Result<CUevent, CUresult> {
        self.events.get(name).map(|event| event.get())
    }

    /// Whether an event may have this name.
    pub(crate) fn check_new_event(&self, name: ObjectId) -> Outcome {
        self.events.check_new(name)
    }

    pub(crate) fn add_event(&mut self, ctx: ContextId, name: ObjectId, event: CUevent) {
        self.events.insert(name, ctx, Handle::new(event));
    }

    /// Forgets an event, which is to be destroyed then.
    pub(crate) fn remove_event(&mut self, name: ObjectId) -> Result<CUevent, CUresult> {
        self.events.remove(name).map(|event| event.get())
    }

    /// Milliseconds between two events of the current context, start and end.
    pub(crate) fn time_between(
        &self,
        table: &Table,
        (start, end): (ObjectId, ObjectId),
    ) -> Result<f32, CUresult> {
        let (start, end) = (self.event(start)?, self.event(end)?);
        let mut milliseconds = 0.0;
        call!(table, cuEventElapsedTime(&raw mut milliseconds, start, end)).map(|()| milliseconds)
    }

    /// A context is about to end. Nothing is looked at that it has.
    pub(crate) fn forget(&mut self, table: &Table, ctx: ContextId) {
        self.waits.forget(ctx);
        self.order.forget(table, ctx);
        self.streams.forget(ctx);
        self.events.forget(ctx);
    }
}

#[cfg(test)]
mod tests {
    use outboard_transport::SpinLimits;

    use super::*;
    use crate::recorded::{calls, table};

    const CTX: ContextId = ContextId(1);
    const NAME: ObjectId = ObjectId(7);

    fn context(green: bool) -> Context {
        let green = green.then(|| Handle::new(0x90 as *mut _));
        Context { real: Handle::new(0x10 as *mut _), device: 0, primary: true, green }
    }

    /// A stream, whose handle is 0x70.
    fn streams() -> Streams {
        let mut streams = Streams::new(Waits::new(SpinLimits::from_env()));
        streams.check_new(NAME).unwrap();
        streams.add(CTX, NAME, 0x70 as CUstream);
        streams
    }

    #[test]
    fn a_name_stands_for_one_stream_until_it_or_its_context_ends() {
        let (table, mut streams) = (table(), streams());
        let name = StreamId::created(NAME);
        assert_eq!(streams.get(name), Ok(0x70 as CUstream));
        assert_eq!(streams.get(StreamId::LEGACY), Ok(core::ptr::null_mut()));
        assert!(streams.check_new(NAME).is_err() && streams.check_new(ObjectId::NONE).is_err());
        assert_eq!(streams.remove(table, CTX, NAME), Ok(0x70 as CUstream));
        assert_eq!(streams.get(name), Err(CUresult::CUDA_ERROR_INVALID_HANDLE));
        streams.add(CTX, NAME, 0x80 as CUstream);
        streams.add_event(CTX, NAME, 0x88 as CUevent);
        assert_eq!(streams.event(NAME), Ok(0x88 as CUevent));
        streams.forget(table, ContextId(2));
        assert!(streams.get(name).is_ok() && streams.event(NAME).is_ok());
        streams.forget(table, CTX);
        assert!(streams.get(name).is_err() && streams.event(NAME).is_err());
    }

    #[test]
    fn a_context_is_quiet_when_the_streams_with_work_are() {
        let (table, mut streams) = (table(), streams());
        assert!(streams.waits.is_quiet(table, CTX));
        assert!(calls().is_empty(), "nothing was queued that could be asked for");
        for _ in 0..3 {
            streams.queue(table, (CTX, &context(false)), StreamId::created(NAME)).unwrap();
        }
        assert!(calls().is_empty(), "to queue work takes no call");
        assert!(streams.waits.is_quiet(table, CTX));
        assert_eq!(calls(), ["cuStreamQuery(0x70)"]);
        assert!(streams.waits.is_quiet(table, ContextId(2)) && calls().is_empty());
        // What was in it goes on, so that the driver is asked; it was done.
        streams.remove(table, CTX, NAME).unwrap();
        assert_eq!(calls(), ["cuStreamQuery(0x70)"]);
        assert!(streams.waits.is_quiet(table, CTX) && calls().is_empty());
    }

    #[test]
    fn only_streams_of_green_contexts_are_put_in_order() {
        for (green, expected) in [(false, 0), (true, 1)] {
            let (table, mut streams) = (table(), streams());
            let context = context(green);
            streams.heeds_default(CTX, NAME, 0x70 as CUstream);
            streams.queue(table, (CTX, &context), StreamId::created(NAME)).unwrap();
            calls();
            streams.so_far(table, (CTX, &context), StreamId::LEGACY).unwrap();
            let waits =
                calls().iter().filter(|call| call.starts_with("cuStreamWaitEvent(0x0")).count();
            assert_eq!(waits, expected, "the default stream is as far as the other");
            streams.so_far(table, (CTX, &context), StreamId::created(NAME)).unwrap();
            assert!(calls().is_empty());
        }
    }
}
