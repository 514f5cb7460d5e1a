//! Streams.

use outboard_driver::call;
use outboard_wire::messages::*;

use super::{Handle, Wait, Worker};
use crate::generated::dispatch::StreamCommands;
use crate::worker::answer::{Answer, Outcome};

impl StreamCommands for Worker {
    fn stream_create(&mut self, m: StreamCreate) -> Outcome {
        self.enter()?;
        self.objects.streams.check_new(m.stream)?;
        let mut stream = core::ptr::null_mut();
        call!(self.table, cuStreamCreateWithPriority(&raw mut stream, m.flags, m.priority))?;
        self.objects.streams.insert(m.stream, self.ctx, Handle::new(stream));
        Ok(())
    }

    fn stream_destroy(&mut self, m: StreamDestroy) -> Outcome {
        self.enter()?;
        let stream = self.objects.streams.remove(m.stream)?;
        call!(self.table, cuStreamDestroy_v2(stream.get()))
    }

    fn stream_synchronize(&mut self, m: StreamSynchronize, answer: Answer<StreamSynchronize>) {
        match self.objects.stream(m.stream) {
            Ok(stream) => self.wait(Wait::Stream(Handle::new(stream)), answer, |answer, outcome| {
                answer.result(outcome.map(|()| StreamSynchronizeReply {}));
            }),
            Err(error) => answer.error(error),
        }
    }

    fn stream_query(&mut self, m: StreamQuery, answer: Answer<StreamQuery>) {
        let outcome = self.stream(m.stream).and_then(|stream| call!(self.table, cuStreamQuery(stream)));
        self.copies_told();
        answer.result(outcome.map(|()| StreamQueryReply {}));
    }

    fn host_call(&mut self, m: HostCall) -> Outcome {
        let call = self.host_function(m.call, m.always)?;
        match self.stream(m.stream) {
            Ok(stream) => call.queue(self.table, stream),
            Err(error) => call.fail(error),
        }
    }

    fn stream_wait_event(&mut self, m: StreamWaitEvent) -> Outcome {
        let stream = self.stream(m.stream)?;
        let event = self.objects.event(m.event)?;
        call!(self.table, cuStreamWaitEvent(stream, event, m.flags))
    }

    fn stream_wait_value(&mut self, m: StreamWaitValue) -> Outcome {
        let stream = self.stream(m.stream)?;
        self.allocations.check(m.address, if m.wide { 8 } else { 4 })?;
        if m.wide {
            call!(self.table, cuStreamWaitValue64_v2(stream, m.address, m.value, m.flags))
        } else {
            call!(self.table, cuStreamWaitValue32_v2(stream, m.address, m.value as u32, m.flags))
        }
    }

    fn stream_write_value(&mut self, m: StreamWriteValue) -> Outcome {
        let stream = self.stream(m.stream)?;
        self.allocations.check(m.address, if m.wide { 8 } else { 4 })?;
        if m.wide {
            call!(self.table, cuStreamWriteValue64_v2(stream, m.address, m.value, m.flags))
        } else {
            call!(self.table, cuStreamWriteValue32_v2(stream, m.address, m.value as u32, m.flags))
        }
    }
}
