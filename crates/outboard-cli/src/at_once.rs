//! Questions to several servers at the same time.

use std::panic::resume_unwind;
use std::thread;

/// What `ask` says of each, in their order. None is waited for before the others are asked.
pub(crate) fn at_once<T: Sync, R: Send>(all: &[T], ask: impl Fn(&T) -> R + Sync) -> Vec<R> {
    if let [one] = all {
        return vec![ask(one)];
    }
    let ask = &ask;
    thread::scope(|scope| {
        let asked: Vec<_> = all.iter().map(|one| scope.spawn(move || ask(one))).collect();
        let answers = asked.into_iter().map(thread::ScopedJoinHandle::join);
        answers.map(|answer| answer.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn answers_come_in_order_and_nobody_waits_for_one() {
        let all = Barrier::new(3);
        let ask = |number: &u32| {
            all.wait();
            number * 2
        };
        assert_eq!(at_once(&[3, 1, 2], ask), [6, 2, 4]);
        assert_eq!(at_once(&[7], |number| number + 1), [8]);
        assert_eq!(at_once(&[], |number: &u32| *number), Vec::<u32>::new());
    }
}
