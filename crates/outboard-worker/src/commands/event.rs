//! Events.

use outboard_driver::call;
use outboard_wire::messages::*;

use super::{Handle, Wait};
use crate::answer::{Answer, Outcome};
use crate::generated::dispatch::EventCommands;
use crate::shares::Thing;
use crate::worker::Worker;

impl EventCommands for Worker {
    fn event_create(&mut self, m: EventCreate) -> Outcome {
        self.enter()?;
        self.streams.check_new_event(m.event)?;
        let mut event = core::ptr::null_mut();
        call!(self.table, cuEventCreate(&raw mut event, m.flags))?;
        self.streams.add_event(self.contexts.here(), m.event, event);
        Ok(())
    }

    fn event_destroy(&mut self, m: EventDestroy) -> Outcome {
        self.enter()?;
        let event = self.streams.remove_event(m.event)?;
        self.leaves_event(event);
        self.memory.shared.unshare(self.client.registry(), Thing::Event(m.event));
        call!(self.table, cuEventDestroy_v2(event))
    }

    fn event_record(&mut self, m: EventRecord) -> Outcome {
        let stream = self.stream(m.stream)?;
        let event = self.streams.event(m.event)?;
        self.leaves_event(event);
        if m.flags == 0 {
            call!(self.table, cuEventRecord(event, stream))
        } else {
            call!(self.table, cuEventRecordWithFlags(event, stream, m.flags))
        }
    }

    fn event_synchronize(&mut self, m: EventSynchronize, answer: Answer<EventSynchronize>) {
        match self.streams.event(m.event) {
            Ok(event) => self.wait(Wait::Event(Handle::new(event)), answer, |answer, outcome| {
                answer.result(outcome.map(|()| EventSynchronizeReply {}));
            }),
            Err(error) => answer.error(error),
        }
    }

    fn event_query(&mut self, m: EventQuery, answer: Answer<EventQuery>) {
        let event = self.enter().and_then(|_| self.streams.event(m.event));
        let outcome = event.and_then(|event| call!(self.table, cuEventQuery(event)));
        self.client.report_copies();
        answer.result(outcome.map(|()| EventQueryReply {}));
    }

    fn event_elapsed(&mut self, m: EventElapsed, answer: Answer<EventElapsed>) {
        let outcome =
            self.enter().and_then(|_| self.streams.time_between(self.table, (m.start, m.end)));
        answer.result(outcome.map(|milliseconds| EventElapsedReply { milliseconds }));
    }

    fn events_elapsed(&mut self, m: EventsElapsed, answer: Answer<EventsElapsed>) {
        let outcome = self.enter().map(|_| {
            let told = |pair| {
                self.streams
                    .time_between(self.table, pair)
                    .map_or_else(|error| (error.0, 0.0), |time| (0, time))
            };
            m.pairs.into_iter().map(told).collect()
        });
        answer.result(outcome.map(|times| EventsElapsedReply { times }));
    }
}
