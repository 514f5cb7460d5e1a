//! How the pool has been used: a day in detail, a month in outline.

use super::kept::Change;
use jiff::Timestamp;
use outboard_pool::api::{HistoryView, Point};
use std::collections::VecDeque;

/// The length of a piece of the day, in seconds.
const FINE: i64 = 10;
/// For how long these are known.
const DAY: i64 = 24 * 3600;
/// The length of a piece of the month, which is kept on disk.
const COARSE: i64 = 300;
/// For how long these are known.
const MONTH: i64 = 31 * DAY;

/// The most pieces of an answer.
const MOST_POINTS: u32 = 1000;

/// What was, with the second at which each piece began; the oldest first.
type Pieces = VecDeque<(i64, Point)>;

/// A piece that is not over.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    all: Point,
    count: u16,
}

impl Sum {
    fn add(&mut self, point: &Point) {
        self.count = self.count.saturating_add(1);
        self.all.devices += point.devices;
        self.all.leased += point.leased;
        self.all.load_percent += point.load_percent;
        self.all.waiting = self.all.waiting.max(point.waiting);
    }

    fn mean(&self) -> Option<Point> {
        let part = |sum: f32| (sum / f32::from(self.count) * 100.0).round() / 100.0;
        (self.count > 0).then(|| Point {
            devices: part(self.all.devices),
            leased: part(self.all.leased),
            load_percent: part(self.all.load_percent),
            waiting: self.all.waiting,
        })
    }
}

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct History {
    fine: Pieces,
    coarse: Pieces,
    /// The piece of the month that is not over, and when it began.
    present: Option<(i64, Sum)>,
    /// When this broker noted something first.
    since: Option<i64>,
}

/// Forgets what is not over yet by a clock that was set back, and what is too long ago.
fn forget(pieces: &mut Pieces, now: i64, length: i64) {
    while pieces.back().is_some_and(|(at, _)| *at > now) {
        pieces.pop_back();
    }
    while pieces.front().is_some_and(|(at, _)| now - at > length) {
        pieces.pop_front();
    }
}

impl History {
    pub(super) fn restore(&mut self, at: i64, point: Point) {
        self.coarse.push_back((at, point));
    }

    /// Notes how the pool is, if a piece has begun since the last note. Returns what is to be kept.
    pub(super) fn note(&mut self, now: Timestamp, look: impl FnOnce() -> Point) -> Vec<Change> {
        let now = now.as_second();
        let piece = now.div_euclid(FINE) * FINE;
        if self.fine.back().is_some_and(|(at, _)| *at == piece) {
            return Vec::new();
        }
        forget(&mut self.fine, now, DAY);
        self.since = Some(self.since.unwrap_or(piece).min(piece));
        let point = look();
        self.fine.push_back((piece, point));
        let mut changes = Vec::new();
        let piece = now.div_euclid(COARSE) * COARSE;
        let (began, mut sum) = self.present.unwrap_or((piece, Sum::default()));
        if began != piece {
            if let Some(mean) = sum.mean() {
                forget(&mut self.coarse, began.min(now), MONTH);
                self.coarse.push_back((began, mean));
                changes.push(Change::Passed(began, mean));
                changes.push(Change::NoPassed(began - MONTH));
            }
            sum = Sum::default();
        }
        sum.add(&point);
        self.present = Some((piece, sum));
        changes
    }

    /// The last so many seconds, in at most so many pieces.
    pub(super) fn view(&self, now: Timestamp, seconds: u32, points: u32) -> HistoryView {
        let (now, points) = (now.as_second(), i64::from(points.clamp(1, MOST_POINTS)));
        let seconds = i64::from(seconds).clamp(FINE, MONTH);
        let step = ((seconds + points - 1) / points + FINE - 1) / FINE * FINE;
        let end = (now.div_euclid(step) + 1) * step;
        let count = ((seconds + step - 1) / step).clamp(1, points);
        let since = end - count * step;
        let mut sums = vec![Sum::default(); usize::try_from(count).unwrap_or(0)];
        let mut add = |from: i64, until: i64, point: &Point| {
            let (first, last) = ((from - since).div_euclid(step), (until - 1 - since) / step);
            for piece in first.max(0)..=last.min(count - 1) {
                if let Some(sum) = usize::try_from(piece).ok().and_then(|at| sums.get_mut(at)) {
                    sum.add(point);
                }
            }
        };
        let detailed = self.fine.front().map_or(i64::MAX, |(at, _)| *at);
        for (at, point) in self.coarse.iter().filter(|(at, _)| *at < detailed && *at < end) {
            // Where there is more detail, that counts. A piece may be older than the broker.
            let end = *at + COARSE;
            let begin = self.since.filter(|since| *since < end).map_or(*at, |since| since.max(*at));
            add(begin, end.min(detailed), point);
        }
        for (at, point) in self.fine.iter().filter(|(at, _)| *at >= since && *at < end) {
            add(*at, *at + FINE, point);
        }
        HistoryView {
            since: Timestamp::from_second(since).unwrap_or(Timestamp::UNIX_EPOCH),
            step_seconds: u32::try_from(step).unwrap_or(u32::MAX),
            points: sums.iter().map(Sum::mean).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).expect("it is a time")
    }

    fn point(leased: f32, waiting: u32) -> Point {
        Point { devices: 8.0, leased, load_percent: 50.0, waiting }
    }

    /// Notes what each second of these was; returns what is to be kept.
    fn run(history: &mut History, seconds: std::ops::Range<i64>, leased: f32) -> Vec<Change> {
        seconds.flat_map(|second| history.note(at(second), || point(leased, 3))).collect()
    }

    #[test]
    fn a_piece_is_the_mean_of_what_was() {
        let mut history = History::default();
        run(&mut history, 0..30, 2.0);
        run(&mut history, 30..60, 4.0);
        let view = history.view(at(59), 60, 6);
        assert_eq!((view.since, view.step_seconds), (at(0), 10));
        let leased: Vec<f32> = view.points.iter().flatten().map(|point| point.leased).collect();
        assert_eq!(leased, [2.0, 2.0, 2.0, 4.0, 4.0, 4.0]);
        assert_eq!(history.view(at(59), 60, 1).points, [Some(point(3.0, 3))]);
    }

    #[test]
    fn a_broker_that_was_away_leaves_a_gap() {
        let mut history = History::default();
        run(&mut history, 0..10, 1.0);
        run(&mut history, 40..50, 1.0);
        let there: Vec<bool> =
            history.view(at(49), 50, 5).points.iter().map(Option::is_some).collect();
        assert_eq!(there, [true, false, false, false, true]);
    }

    #[test]
    fn an_outline_outlasts_the_broker() {
        let mut history = History::default();
        let kept = run(&mut history, 0..1201, 5.0);
        let passed = kept.iter().filter(|change| matches!(change, Change::Passed(..)));
        assert_eq!(passed.count(), 4);
        let mut next = History::default();
        for change in kept {
            if let Change::Passed(at, point) = change {
                next.restore(at, point);
            }
        }
        run(&mut next, 1500..1600, 7.0);
        let view = next.view(at(1599), 1600, 16);
        let leased: Vec<f32> =
            view.points.iter().map(|point| point.map_or(0.0, |point| point.leased)).collect();
        assert_eq!(leased, [[5.0; 12].as_slice(), &[0.0, 0.0, 0.0, 7.0]].concat());
    }

    #[test]
    fn nothing_is_told_of_the_time_before_the_broker() {
        let mut history = History::default();
        run(&mut history, 200..400, 5.0);
        let there = history.view(at(399), 400, 40).points;
        let there: Vec<usize> =
            (0..).zip(&there).filter(|(_, one)| one.is_some()).map(|(n, _)| n).collect();
        assert_eq!(there, (20..40).collect::<Vec<_>>());
    }

    #[test]
    fn it_takes_bounded_memory_whatever_the_clock_does() {
        let mut history = History::default();
        for second in (0..2 * MONTH).step_by(97) {
            history.note(at(second), || point(1.0, 0));
        }
        let pieces = |history: &History| (history.fine.len(), history.coarse.len());
        let (fine, coarse) = pieces(&history);
        assert!(fine <= 8641 && coarse <= 8930, "{fine} and {coarse}");
        // The clock is set back by a month, and forth again.
        run(&mut history, MONTH..MONTH + 700, 2.0);
        assert!(pieces(&history).1 <= coarse);
        let view = history.view(at(MONTH + 700), u32::MAX, u32::MAX);
        assert!(view.points.len() <= MOST_POINTS as usize);
        assert_eq!(history.view(at(MONTH + 700), 0, 0).points.len(), 1);
    }
}
