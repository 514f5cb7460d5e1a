use std::convert::Infallible;

use proptest::prelude::*;

use std::collections::HashMap;

use super::*;

const CTX: ContextId = ContextId(1);
/// The legacy default stream, two that wait for it, and two that do not.
const STREAMS: [StreamId; 5] = [LEGACY, StreamId(11), StreamId(12), StreamId(13), StreamId(14)];
const EVENTS: [ObjectId; 3] = [ObjectId(21), ObjectId(22), ObjectId(23)];

fn is_apart(stream: StreamId) -> bool {
    stream >= StreamId(13)
}

#[derive(Debug, Clone)]
enum Step {
    Post(usize),
    PostSomewhere(usize),
    Record(usize, usize),
    /// The launch of a graph that records an event.
    RecordUnnamed(usize, usize),
    WaitForStream(usize),
    WaitForEvent(usize),
    WaitForContext,
}

fn step() -> impl Strategy<Value = Step> {
    let (stream, event) = (0..STREAMS.len(), 0..EVENTS.len());
    prop_oneof![
        stream.clone().prop_map(Step::Post),
        stream.clone().prop_map(Step::PostSomewhere),
        (event.clone(), stream.clone()).prop_map(|(event, stream)| Step::Record(event, stream)),
        (event.clone(), stream.clone())
            .prop_map(|(event, stream)| Step::RecordUnnamed(event, stream)),
        stream.prop_map(Step::WaitForStream),
        event.prop_map(Step::WaitForEvent),
        Just(Step::WaitForContext),
    ]
}

/// A device that does nothing before it must: work is done when a wait needs it.
#[derive(Default)]
struct Lazy {
    /// Commands that are not done, with their streams, in order.
    pending: Vec<(u64, StreamId)>,
    /// The latest record of each event.
    records: HashMap<ObjectId, u64>,
}

impl Lazy {
    /// Does all of a stream before `seq`, and what that waits for.
    fn finish(&mut self, stream: StreamId, seq: u64) {
        let Some(last) = self
            .pending
            .iter()
            .filter(|(at, of)| *of == stream && *at < seq)
            .map(|(at, _)| *at)
            .max()
        else {
            return;
        };
        let joins = |of: StreamId| {
            of == stream
                || (!is_apart(stream) && !is_apart(of) && (stream == LEGACY || of == LEGACY))
        };
        let others: Vec<StreamId> = self
            .pending
            .iter()
            .filter(|(at, of)| *at < last && joins(*of) && *of != stream)
            .map(|(_, of)| *of)
            .collect();
        self.pending.retain(|(at, of)| *of != stream || *at > last);
        for other in others {
            self.finish(other, last);
        }
    }

    fn is_busy(&self, stream: StreamId) -> bool {
        self.pending.iter().any(|(_, of)| *of == stream)
    }

    fn has_happened(&self, event: ObjectId) -> bool {
        self.records
            .get(&event)
            .is_none_or(|record| self.pending.iter().all(|(at, _)| at != record))
    }
}

proptest! {
    /// What is said to be done is done, whatever the device has put off.
    #[test]
    fn nothing_is_taken_for_done_that_is_not(steps in proptest::collection::vec(step(), 1..60)) {
        let (progress, mut device) = (Progress::default(), Lazy::default());
        for stream in STREAMS.into_iter().filter(|stream| is_apart(*stream)) {
            progress.made_apart(stream);
        }
        for (index, step) in steps.into_iter().enumerate() {
            let seq = index as u64 + 1;
            match step {
                Step::Post(stream) => {
                    device.pending.push((seq, STREAMS[stream]));
                    progress.posted_to(STREAMS[stream], seq);
                }
                Step::PostSomewhere(stream) => {
                    device.pending.push((seq, STREAMS[stream]));
                    progress.posted(seq);
                }
                Step::Record(event, stream) => {
                    let (event, stream) = (EVENTS[event], STREAMS[stream]);
                    device.records.insert(event, seq);
                    if record(&progress, event, stream, seq) {
                        prop_assert!(!device.is_busy(stream), "{stream:?} is not idle");
                    } else {
                        device.pending.push((seq, stream));
                    }
                }
                Step::RecordUnnamed(event, stream) => {
                    device.pending.push((seq, STREAMS[stream]));
                    device.records.insert(EVENTS[event], seq);
                    progress.posted_to(STREAMS[stream], seq);
                    let _ = progress.record_unnamed::<Infallible>(|| Ok(seq));
                }
                Step::WaitForStream(stream) => {
                    device.finish(STREAMS[stream], seq);
                    progress.stream_done(CTX, STREAMS[stream], seq);
                }
                Step::WaitForEvent(event) => {
                    let event = EVENTS[event];
                    if let Some(record) = device.records.get(&event).copied()
                        && let Some((_, stream)) = device.pending.iter().find(|(at, _)| *at == record).copied()
                    {
                        device.finish(stream, record + 1);
                    }
                    progress.event_done(event, seq);
                }
                Step::WaitForContext => {
                    device.pending.clear();
                    progress.context_done(CTX, seq);
                    prop_assert!(progress.is_context_idle(CTX));
                }
            }
            prop_assert!(!progress.is_context_idle(CTX) || device.pending.is_empty());
            for stream in STREAMS {
                prop_assert!(!progress.is_stream_idle(CTX, stream) || !device.is_busy(stream), "{stream:?}");
            }
            for event in EVENTS {
                prop_assert!(!progress.has_happened(event) || device.has_happened(event), "{event:?}");
            }
        }
    }
}

/// Records an event, and says whether the stream was idle.
fn record(progress: &Progress, event: ObjectId, stream: StreamId, seq: u64) -> bool {
    let mut was_idle = false;
    let _ = progress.record::<Infallible>(event, CTX, stream, |idle| {
        was_idle = idle;
        if !idle {
            progress.posted_to(stream, seq);
        }
        Ok(seq)
    });
    was_idle
}

#[test]
fn a_wait_is_known_until_something_is_queued() {
    let progress = Progress::default();
    assert!(
        !progress.is_stream_idle(CTX, StreamId(11)) && !progress.is_context_idle(CTX),
        "nothing is known of the start"
    );
    progress.posted_to(StreamId(11), 1);
    progress.stream_done(CTX, StreamId(11), 2);
    assert!(progress.is_stream_idle(CTX, StreamId(11)));
    assert!(!progress.is_stream_idle(CTX, StreamId(12)) && !progress.is_context_idle(CTX));
    progress.context_done(CTX, 3);
    assert!(
        progress.is_stream_idle(CTX, StreamId(12))
            && progress.is_context_idle(CTX)
            && progress.is_stream_idle(CTX, LEGACY)
    );
    assert!(!progress.is_context_idle(ContextId(2)));
    progress.posted_to(StreamId(12), 4);
    assert!(
        progress.is_stream_idle(CTX, StreamId(11)) && !progress.is_stream_idle(CTX, StreamId(12))
    );
    assert!(!progress.is_stream_idle(CTX, LEGACY) && !progress.is_context_idle(CTX));
}

#[test]
fn streams_that_join_the_default_stream_are_busy_with_it() {
    let progress = Progress::default();
    progress.made_apart(StreamId(13));
    progress.context_done(CTX, 1);
    progress.posted_to(LEGACY, 2);
    assert!(!progress.is_stream_idle(CTX, StreamId(11)));
    assert!(progress.is_stream_idle(CTX, StreamId(13)));
}

#[test]
fn an_event_is_known_by_its_own_wait_and_by_those_around_it() {
    let progress = Progress::default();
    assert!(!progress.has_happened(ObjectId(21)), "never recorded");
    record(&progress, ObjectId(21), StreamId(11), 1);
    progress.event_done(ObjectId(21), 2);
    assert!(progress.has_happened(ObjectId(21)) && progress.is_stream_idle(CTX, StreamId(11)));
    progress.posted_to(StreamId(11), 3);
    record(&progress, ObjectId(21), StreamId(11), 4);
    assert!(!progress.has_happened(ObjectId(21)));
    progress.stream_done(CTX, StreamId(11), 5);
    assert!(progress.has_happened(ObjectId(21)));
    let _ = progress.record_unnamed::<Infallible>(|| Ok(6));
    assert!(!progress.has_happened(ObjectId(21)), "a graph may have recorded it");
    progress.event_done(ObjectId(21), 7);
    assert!(progress.has_happened(ObjectId(21)));
}

#[test]
fn an_event_happens_at_once_in_an_idle_stream() {
    let progress = Progress::default();
    assert!(!record(&progress, ObjectId(21), StreamId(11), 1), "nothing is known of the start");
    progress.stream_done(CTX, StreamId(11), 2);
    for seq in 3..6 {
        assert!(record(&progress, ObjectId(21), StreamId(11), seq));
        assert!(
            progress.has_happened(ObjectId(21)) && progress.is_stream_idle(CTX, StreamId(11)),
            "nor is it work"
        );
    }
    progress.posted_to(StreamId(11), 6);
    assert!(
        !record(&progress, ObjectId(21), StreamId(11), 7) && !progress.has_happened(ObjectId(21))
    );
    let other = record(&progress, ObjectId(22), StreamId(12), 8);
    assert!(!other && !progress.has_happened(ObjectId(22)));
}

#[test]
fn nothing_is_known_of_an_event_that_others_have_nor_of_one_that_has_ended() {
    let progress = Progress::default();
    progress.share_event(ObjectId(21));
    record(&progress, ObjectId(21), StreamId(11), 1);
    progress.event_done(ObjectId(21), 2);
    progress.context_done(CTX, 3);
    assert!(!progress.has_happened(ObjectId(21)));
    record(&progress, ObjectId(22), StreamId(11), 4);
    progress.event_done(ObjectId(22), 5);
    progress.forget_event(ObjectId(22));
    assert!(!progress.has_happened(ObjectId(22)));
    record(&progress, ObjectId(23), StreamId(11), 6);
    progress.context_done(CTX, 7);
    progress.context_ended(CTX);
    assert!(
        !progress.has_happened(ObjectId(23))
            && !progress.is_context_idle(CTX)
            && !progress.is_stream_idle(CTX, StreamId(11))
    );
}
