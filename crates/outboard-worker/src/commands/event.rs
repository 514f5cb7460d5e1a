//! Events.

use outboard_abi::CUresult;
use outboard_driver::call;
use outboard_wire::ObjectId;
use outboard_wire::messages::*;

use super::{Handle, Wait, Worker};
use crate::answer::{Answer, Outcome};
use crate::generated::dispatch::EventCommands;
use crate::shares::Thing;

impl EventCommands for Worker {
    fn event_create(&mut self, m: EventCreate) -> Outcome {
        self.enter()?;
        self.objects.events.check_new(m.event)?;
        let mut event = core::ptr::null_mut();
        call!(self.table, cuEventCreate(&raw mut event, m.flags))?;
        self.objects.events.insert(m.event, self.contexts.here(), Handle::new(event));
        Ok(())
    }

    fn event_destroy(&mut self, m: EventDestroy) -> Outcome {
        self.enter()?;
        let event = self.objects.events.remove(m.event)?;
        self.leaves_event(event.get());
        self.unshare(Thing::Event(m.event));
        call!(self.table, cuEventDestroy_v2(event.get()))
    }

    fn event_record(&mut self, m: EventRecord) -> Outcome {
        let stream = self.stream(m.stream)?;
        let event = self.objects.event(m.event)?;
        self.leaves_event(event);
        if m.flags == 0 {
            call!(self.table, cuEventRecord(event, stream))
        } else {
            call!(self.table, cuEventRecordWithFlags(event, stream, m.flags))
        }
    }

    fn event_synchronize(&mut self, m: EventSynchronize, answer: Answer<EventSynchronize>) {
        match self.objects.event(m.event) {
            Ok(event) => self.wait(Wait::Event(Handle::new(event)), answer, |answer, outcome| {
                answer.result(outcome.map(|()| EventSynchronizeReply {}));
            }),
            Err(error) => answer.error(error),
        }
    }

    fn event_query(&mut self, m: EventQuery, answer: Answer<EventQuery>) {
        let event = self.enter().and_then(|_| self.objects.event(m.event));
        let outcome = event.and_then(|event| call!(self.table, cuEventQuery(event)));
        self.client.tell_copies();
        answer.result(outcome.map(|()| EventQueryReply {}));
    }

    fn event_elapsed(&mut self, m: EventElapsed, answer: Answer<EventElapsed>) {
        let outcome = self.enter().and_then(|_| self.time_between((m.start, m.end)));
        answer.result(outcome.map(|milliseconds| EventElapsedReply { milliseconds }));
    }

    fn events_elapsed(&mut self, m: EventsElapsed, answer: Answer<EventsElapsed>) {
        let outcome = self.enter().map(|_| {
            let told = |pair| {
                self.time_between(pair).map_or_else(|error| (error.0, 0.0), |time| (0, time))
            };
            m.pairs.into_iter().map(told).collect()
        });
        answer.result(outcome.map(|times| EventsElapsedReply { times }));
    }
}

impl Worker {
    /// Milliseconds between two events, start and end.
    fn time_between(&self, (start, end): (ObjectId, ObjectId)) -> Result<f32, CUresult> {
        let (start, end) = (self.objects.event(start)?, self.objects.event(end)?);
        let mut milliseconds = 0.0;
        call!(self.table, cuEventElapsedTime(&raw mut milliseconds, start, end))
            .map(|()| milliseconds)
    }
}
