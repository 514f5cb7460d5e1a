//! Times between events.
//!
//! A program that measures records many pairs of events, waits once, and asks for the time of one
//! pair after the other. A query therefore also asks for the pairs that the program is likely to
//! ask for next: later events in the order of their records, by the step from the pair asked for
//! before.

use outboard_wire::ObjectId;
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::progress::Progress;

/// Pairs in one question.
const MOST_PAIRS: usize = 256;
/// Events that are looked through for one.
const LOOKED_AT: usize = 1 << 14;

/// Start and end.
type Pair = (ObjectId, ObjectId);

/// Times that a server has returned.
#[derive(Debug, Default)]
pub(crate) struct Times(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Events that take times.
    timed: FxHashSet<ObjectId>,
    last: Option<Pair>,
    /// The answers of the last query, by the records that it meant.
    told: FxHashMap<Pair, ((u64, u64), f32)>,
}

/// A question; the first pair is the one that is asked for.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) pairs: Vec<Pair>,
    /// The commands that have recorded them.
    recorded: Vec<Option<(u64, u64)>>,
}

impl Times {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock()
    }

    /// An event has been made that takes times.
    pub(crate) fn made(&self, event: ObjectId) {
        self.known().timed.insert(event);
    }

    /// An event is no more.
    pub(crate) fn forget(&self, event: ObjectId) {
        self.known().timed.remove(&event);
    }

    /// The time of a pair in milliseconds, or the query to send.
    pub(crate) fn find(&self, pair: Pair, progress: &Progress) -> Result<f32, Question> {
        let mut known = self.known();
        let records =
            |(start, end): Pair| Some((progress.record_of(start)?, progress.record_of(end)?));
        let (recorded, last) = (records(pair), known.last.replace(pair));
        if let Some((meant, milliseconds)) = known.told.get(&pair)
            && recorded == Some(*meant)
        {
            return Ok(*milliseconds);
        }
        let mut pairs = vec![pair];
        if known.timed.len() <= LOOKED_AT {
            let mut order: Vec<(u64, ObjectId)> = known
                .timed
                .iter()
                .filter_map(|event| Some((progress.record_of(*event)?, *event)))
                .collect();
            order.sort_unstable();
            let order: Vec<ObjectId> = order.into_iter().map(|(_, event)| event).collect();
            pairs.extend(next(&order, pair, last));
        }
        let recorded = pairs.iter().map(|pair| records(*pair)).collect();
        Err(Question { pairs, recorded })
    }

    /// The answer to a question: an outcome and milliseconds for each pair.
    pub(crate) fn answered(&self, question: &Question, times: &[(u32, f32)]) {
        let pairs = question.pairs.iter().zip(&question.recorded).zip(times);
        let told = pairs.filter(|(_, (status, _))| *status == 0);
        self.known().told = told
            .filter_map(|((pair, recorded), (_, milliseconds))| {
                Some((*pair, ((*recorded)?, *milliseconds)))
            })
            .collect();
    }
}

/// The pairs behind `pair`, in steps of what lies between it and `last`; without that, or at its
/// end, every other event starts one.
fn next(order: &[ObjectId], pair: Pair, last: Option<Pair>) -> Vec<Pair> {
    let place = |event: ObjectId| {
        order.iter().position(|known| *known == event).map(|place| place as isize)
    };
    let places = |(start, end): Pair| Some((place(start)?, place(end)?));
    let Some((start, end)) = places(pair) else { return Vec::new() };
    let at = |place: isize| usize::try_from(place).ok().and_then(|place| order.get(place)).copied();
    let along = |(by_start, by_end): (isize, isize)| -> Vec<Pair> {
        let pairs = (1..MOST_PAIRS as isize)
            .map_while(|k| Some((at(start + k * by_start)?, at(end + k * by_end)?)));
        pairs.collect()
    };
    let step = last.and_then(places).map(|last| (start - last.0, end - last.1));
    let learnt = step.filter(|step| *step != (0, 0)).map(along).unwrap_or_default();
    // A step that leads nowhere was the way back to the beginning.
    if learnt.is_empty() { along((2, 2)) } else { learnt }
}

#[cfg(test)]
mod tests {
    use outboard_front::backend::{ContextId, StreamId};

    use super::*;

    fn record(progress: &Progress, event: ObjectId, seq: u64) {
        progress.record(event, ContextId(1), StreamId::LEGACY, |_| Ok::<u64, ()>(seq)).unwrap();
    }

    fn pair((start, end): (u64, u64)) -> Pair {
        (ObjectId(start), ObjectId(end))
    }

    /// Pairs that were recorded, one behind the other, with an event of another kind between them.
    fn recorded(pairs: u64) -> (Times, Progress) {
        let (times, progress) = (Times::default(), Progress::default());
        for event in 0..2 * pairs {
            times.made(ObjectId(event));
            record(&progress, ObjectId(event), 10 + 2 * event);
            record(&progress, ObjectId(1000 + event), 11 + 2 * event);
        }
        (times, progress)
    }

    fn answer(times: &Times, question: &Question) {
        let all: Vec<_> = question.pairs.iter().map(|(start, _)| (0, start.0 as f32)).collect();
        times.answered(question, &all);
    }

    /// How many questions it takes to know these pairs.
    fn questions(
        times: &Times,
        progress: &Progress,
        pairs: impl IntoIterator<Item = (u64, u64)>,
    ) -> usize {
        let mut asked = 0;
        for pair in pairs.into_iter().map(pair) {
            match times.find(pair, progress) {
                Ok(milliseconds) => assert_eq!(milliseconds, pair.0.0 as f32),
                Err(question) => {
                    assert_eq!(question.pairs[0], pair);
                    answer(times, &question);
                    asked += 1;
                }
            }
        }
        asked
    }

    #[test]
    fn pairs_in_the_order_of_their_records_are_told_together() {
        let (times, progress) = recorded(1000);
        let pairs = || (0..1000).map(|k| (2 * k, 2 * k + 1));
        assert_eq!(questions(&times, &progress, pairs()), 4);
        assert_eq!(questions(&times, &progress, pairs()), 4, "and again from the beginning");
    }

    #[test]
    fn other_steps_are_learnt() {
        let (times, progress) = recorded(200);
        assert_eq!(questions(&times, &progress, (1..200).map(|k| (0, k))), 2, "from one start");
        assert_eq!(
            questions(&times, &progress, (0..200).rev().map(|k| (2 * k, 2 * k + 1))),
            2,
            "backwards"
        );
    }

    #[test]
    fn what_is_recorded_anew_is_asked_for() {
        let (times, progress) = recorded(4);
        assert_eq!(questions(&times, &progress, [(0, 1), (2, 3)]), 1);
        record(&progress, ObjectId(3), 100);
        assert_eq!(questions(&times, &progress, [(2, 3)]), 1);
        assert_eq!(questions(&times, &progress, [(2, 3)]), 0);
        progress.record_unnamed(|| Ok::<u64, ()>(101)).unwrap();
        assert_eq!(
            questions(&times, &progress, [(2, 3), (2, 3)]),
            2,
            "a graph may have recorded it"
        );
    }

    #[test]
    fn times_that_there_are_not_are_not_known() {
        let (times, progress) = recorded(2);
        let question = times.find(pair((0, 1)), &progress).unwrap_err();
        assert_eq!(question.pairs, [pair((0, 1)), pair((2, 3))]);
        times.answered(&question, &[(0, 1.0), (600, 0.0)]);
        assert_eq!(times.find(pair((0, 1)), &progress).unwrap(), 1.0);
        assert!(times.find(pair((2, 3)), &progress).is_err());
        times.forget(ObjectId(2));
        assert!(times.find(pair((0, 3)), &progress).unwrap_err().pairs.len() == 1);
    }
}
