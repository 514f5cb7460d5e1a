//! Threads that somebody waits for.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

/// A thread whose end somebody may wait for.
#[derive(Debug)]
pub struct Joined(Arc<Ending>);

#[derive(Debug, Default)]
struct Ending {
    state: Mutex<EndingState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct EndingState {
    thread: Option<ThreadId>,
    is_over: bool,
}

impl Ending {
    fn lock(&self) -> MutexGuard<'_, EndingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Joined {
    /// Waits until the thread has done what it was started for. The thread itself does not wait.
    pub fn join(&self) {
        let own = std::thread::current().id();
        let mut state = self.0.lock();
        while !state.is_over && state.thread != Some(own) {
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Starts a thread as [`start`](crate::start) does, whose end can be waited for.
///
/// # Errors
/// The system's error if it starts no thread.
pub fn start_joined(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Joined> {
    let ending = Arc::new(Ending::default());
    let of_thread = Arc::clone(&ending);
    crate::start(name, move || {
        of_thread.lock().thread = Some(std::thread::current().id());
        // A panic ends the thread, too.
        let _ = catch_unwind(AssertUnwindSafe(body));
        of_thread.lock().is_over = true;
        of_thread.changed.notify_all();
    })?;
    Ok(Joined(ending))
}

/// Does `there` on a thread of its own and `here` on this one, and returns what both returned: of
/// `there` nothing if it panicked.
///
/// # Errors
/// The system's error if it starts no thread. Then neither was called.
pub fn beside<A: Send, B>(
    name: &str,
    there: impl FnOnce() -> A + Send,
    here: impl FnOnce() -> B,
) -> io::Result<(Option<A>, B)> {
    /// Waits even if this thread panics.
    struct Wait(Joined);
    impl Drop for Wait {
        fn drop(&mut self) {
            self.0.join();
        }
    }

    let mut result = None;
    let place = &mut result;
    let there: Box<dyn FnOnce() + Send + '_> = Box::new(move || *place = Some(there()));
    // SAFETY: the thread is over with the function before `wait` is dropped, and what the function
    // borrows lives longer. If no thread starts, the function is dropped at once.
    let there: Box<dyn FnOnce() + Send + 'static> = unsafe { std::mem::transmute(there) };
    let wait = Wait(start_joined(name, there)?);
    let own = here();
    drop(wait);
    Ok((result, own))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn both_are_done_and_what_they_borrow_is_theirs_meanwhile() {
        let mut numbers = [0; 2];
        let (left, right) = numbers.split_at_mut(1);
        let both = Barrier::new(2);
        let sum = beside(
            "beside",
            || {
                both.wait();
                left[0] = 7;
                left[0] + 1
            },
            || {
                both.wait();
                right[0] = 5;
                right[0]
            },
        );
        assert_eq!(sum.unwrap(), (Some(8), 5));
        assert_eq!(numbers, [7, 5]);
    }

    #[test]
    fn a_panic_there_leaves_nothing_and_one_here_waits() {
        std::panic::set_hook(Box::new(|_| {}));
        let (there, here) = beside("panics", || -> u32 { panic!("meant") }, || 3).unwrap();
        assert_eq!((there, here), (None, 3));
        let mut done = false;
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let slow = || {
                std::thread::sleep(std::time::Duration::from_millis(50));
                done = true;
            };
            beside("slow", slow, || panic!("meant")).map(drop)
        }));
        assert!(panicked.is_err() && done);
    }

    #[test]
    fn a_thread_does_not_wait_for_itself() {
        let (say, hear) = channel::<Joined>();
        let (done, is_done) = channel();
        let joined = start_joined("itself", move || {
            hear.recv().unwrap().join();
            done.send(()).unwrap();
        });
        say.send(joined.unwrap()).unwrap();
        is_done.recv().unwrap();
    }
}
